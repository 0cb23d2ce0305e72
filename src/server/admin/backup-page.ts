import { createReadStream } from "node:fs";
import { mkdir, rm, stat } from "node:fs/promises";
import type { ServerResponse } from "node:http";
import { join } from "node:path";
import { pipeline } from "node:stream/promises";
import type { Logger } from "pino";
import { messageOf } from "../../base/errors.ts";
import { type Http1Page, sendPage } from "../listener/http1.ts";
import type { AdminEvents, AdminPages } from "./admin.ts";

/** How long a backup may take with its transfer, in milliseconds. */
const maxBackupMs = 3_600_000;

/** What a backup is made of. */
interface BackupPageOptions {
  /** Writes a copy of the data to a file that does not exist. Undefined: it can't yet, or no longer. */
  readonly source: () => { backup(path: string, signal?: AbortSignal): Promise<void> } | undefined;
  /** The folder in which the copy is until it is sent: there is one at a time. It is made and removed with that. */
  readonly temporaryFolder: string;
  /** Why no backup is made, a sentence. Undefined: each caller of the admin port may have one. */
  readonly refusal: string | undefined;
  readonly logger: Logger;
}

/**
 * `/backup`: a consistent copy of the embedded store, while it is in use. The copy is written to a file first, so that a slow
 * client does not hold up the store. One at a time: a second request gets 409.
 */
export class BackupPage implements AdminPages {
  /** Tokens of the admin port are also those of monitoring, which must not get all data. */
  readonly group = "backup";
  readonly #options: BackupPageOptions;
  /** Ends the backup in progress; undefined: no backup is in progress. */
  #running: AbortController | undefined;
  #ended = Promise.resolve();

  constructor(options: BackupPageOptions) {
    this.#options = options;
  }

  has(path: string): boolean {
    return path === "/backup";
  }

  async respond(): Promise<Http1Page | AdminEvents> {
    const { refusal } = this.#options;
    if (refusal !== undefined) return { status: 403, body: `${refusal}\n` };
    return {
      contentType: "application/vnd.sqlite3",
      begin: (response) => this.#begin(response),
    };
  }

  /** Ends a backup in progress, whose client notices it. Idempotent. */
  async close(): Promise<void> {
    this.#running?.abort(new Error("The service shuts down."));
    await this.#ended;
  }

  #begin(response: ServerResponse): void {
    const source = this.#options.source();
    if (this.#running !== undefined) {
      sendPage(response, { status: 409, body: "Another backup is in progress.\n" });
    } else if (source === undefined) {
      sendPage(response, { status: 503, body: "The embedded store is not open.\n" });
    } else {
      const running = new AbortController();
      this.#running = running;
      const gone = new Error("The client has ended the request.");
      response.once("close", () => running.abort(gone));
      const signal = AbortSignal.any([running.signal, AbortSignal.timeout(maxBackupMs)]);
      this.#ended = this.#run(source, response, signal).finally(() => {
        this.#running = undefined;
      });
    }
  }

  async #run(
    source: NonNullable<ReturnType<BackupPageOptions["source"]>>,
    response: ServerResponse,
    signal: AbortSignal,
  ): Promise<void> {
    const { temporaryFolder: folder, logger } = this.#options;
    const path = join(folder, "copy");
    const { socket } = response.req;
    const idleMs = socket.timeout ?? 0;
    try {
      // What a process has left behind when it was killed.
      await rm(folder, { recursive: true, force: true });
      await mkdir(folder, { mode: 0o700 });
      // Nothing is sent until the copy is complete.
      socket.setTimeout(0);
      await source.backup(path, signal);
      const { size } = await stat(path);
      socket.setTimeout(idleMs);
      response.writeHead(200, {
        "content-type": "application/vnd.sqlite3",
        "content-length": size,
        "content-disposition": 'attachment; filename="watch-fanout.db"',
        "cache-control": "no-store",
      });
      await pipeline(createReadStream(path), response, { signal });
      logger.info({ bytes: size }, "sent a backup of the embedded store");
    } catch (error) {
      const log = { problem: messageOf(error) };
      if (this.#running?.signal.aborted === true)
        logger.info(log, "a backup of the embedded store was cancelled");
      else logger.warn(log, "a backup of the embedded store was not completed");
      if (response.headersSent) response.destroy();
      else sendPage(response, { status: 500, body: `${messageOf(error)}\n` });
    } finally {
      await rm(folder, { recursive: true, force: true }).catch((error: unknown) =>
        logger.warn({ err: error, folder }, "the copy of a backup can't be removed"),
      );
    }
  }
}
