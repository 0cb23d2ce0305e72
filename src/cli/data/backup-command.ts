import { createWriteStream } from "node:fs";
import { rename, rm, stat } from "node:fs/promises";
import type { IncomingMessage } from "node:http";
import { pipeline } from "node:stream/promises";
import type { Command } from "commander";
import { invalidRequest, WatchFanoutError } from "../../base/errors.ts";
import {
  type AdminPortOptions,
  addAdminPortOptions,
  requestAdminPort,
} from "../admin/admin-port.ts";
import { type CommandIo, processIo, readAll, reportFailure, say } from "../output/command-io.ts";
import { bytesOf } from "../output/printable.ts";

/** How long the service may take until it sends the backup, and then between two parts, in milliseconds. */
const responseMs = 600_000;
const idleMs = 30_000;

/** Maximum size of a response that is an error, in bytes. */
const maxErrorBytes = 64 * 1024;

/** Adds `backup`. */
export function addBackupCommand(program: Command, io: CommandIo = processIo): void {
  const command = program
    .command("backup")
    .description(
      "Copy the file of a service's embedded store, from its admin port, at one revision, while the service is in use. `restore` makes a new store of it.",
    )
    .argument("<file>", "the file to write; it must not exist");
  addAdminPortOptions(command).action(async (file: string, options: AdminPortOptions) => {
    const ending = new AbortController();
    const stop = io.onInterrupt(() => ending.abort(new Error("Interrupted.")));
    try {
      await checkAbsent(file);
      const bytes = await readBackup(file, options, ending.signal);
      say(io, `Wrote ${file}, ${bytesOf(bytes)}.`);
    } catch (error) {
      reportFailure(io, ending.signal.aborted ? ending.signal.reason : error);
    } finally {
      stop();
    }
  });
}

/** Rejects with INVALID_REQUEST if there is a file of this name. */
async function checkAbsent(file: string): Promise<void> {
  const found = await stat(file).catch(() => undefined);
  if (found === undefined) return;
  throw invalidRequest("file", `${file} exists already, and is left as it is. Name another file.`);
}

/** Writes the backup, and returns its size in bytes. */
async function readBackup(
  file: string,
  options: AdminPortOptions,
  interrupt: AbortSignal,
): Promise<number> {
  const partial = `${file}.partial`;
  const waiting = new AbortController();
  const timer = setTimeout(() => waiting.abort(new Error("no response in time")), responseMs);
  const signal = AbortSignal.any([interrupt, waiting.signal]);
  try {
    return await requestAdminPort(options, "/backup", signal, async (response) => {
      response.setTimeout(idleMs, () => response.destroy(new Error("it sends nothing more")));
      if (response.statusCode !== 200) throw await refusal(response, options.url);
      clearTimeout(timer);
      const bytes = await written(response, partial);
      await rename(partial, file);
      return bytes;
    });
  } catch (error) {
    await rm(partial, { force: true });
    throw error;
  } finally {
    clearTimeout(timer);
  }
}

/** Writes the whole response to a file that only this user can read, on the disk. Rejects if it is cut off. */
async function written(response: IncomingMessage, path: string): Promise<number> {
  const file = createWriteStream(path, { mode: 0o600, flush: true });
  await pipeline(response, file);
  return file.bytesWritten;
}

async function refusal(response: IncomingMessage, { origin }: URL): Promise<Error> {
  const text = (await readAll(response, maxErrorBytes))?.toString().trim() ?? "";
  switch (response.statusCode) {
    case 403:
      return new WatchFanoutError("PERMISSION_DENIED", text);
    case 404:
      return invalidRequest("url", `${origin} has no file of an embedded store to copy.`);
    case 409:
    case 503:
      return new WatchFanoutError("OVERLOADED", text);
    default:
      return new WatchFanoutError("INTERNAL", `The backup has failed: ${text}`);
  }
}
