import type { ServerResponse } from "node:http";
import type { Clock, Timer } from "../../../base/clock.ts";

/** Maximum number of open pages that are updated. */
const maxViewers = 32;
/** Interval of the updates, in milliseconds. */
const intervalMs = 1_000;

/**
 * The open status pages: sends the same server-sent event to all of them once a second. A page that has not accepted the
 * previous event is left out, and its connection is closed by the timeout of the server.
 */
export class Viewers {
  readonly #clock: Clock;
  readonly #read: () => Promise<string>;
  readonly #open = new Set<ServerResponse>();
  #timer: Timer | undefined;
  #isReading = false;
  #isClosed = false;

  /** `read` resolves to a line of JSON. */
  constructor(clock: Clock, read: () => Promise<string>) {
    this.#clock = clock;
    this.#read = read;
  }

  /** Number of open pages. */
  get size(): number {
    return this.#open.size;
  }

  /** Why no further page is updated, a sentence; undefined if one may be added. */
  get refusal(): string | undefined {
    if (this.#isClosed) return "The service is shutting down.";
    return this.#open.size < maxViewers
      ? undefined
      : `${maxViewers} status pages are open, the maximum. Close one, or request /status.json.`;
  }

  /** Begins to send updates as the body of the response, the first one at once. */
  add(response: ServerResponse): void {
    const { socket } = response.req;
    if (socket.destroyed) return;
    response.writeHead(200, {
      "content-type": "text/event-stream",
      "cache-control": "no-store",
      "x-content-type-options": "nosniff",
    });
    // A response behind another one of its connection has no "close" if that ends with it.
    for (const ending of [response, socket]) ending.once("close", () => this.#remove(response));
    this.#open.add(response);
    response.write("retry: 2000\n\n");
    void this.#send([response]);
    this.#timer ??= this.#clock.setTimeout(this.#tick, intervalMs);
  }

  /** Ends all responses, and refuses further ones. Idempotent. */
  close(): void {
    this.#isClosed = true;
    this.#stop();
    for (const response of this.#open) response.end();
  }

  readonly #tick = (): void => {
    this.#timer = this.#clock.setTimeout(this.#tick, intervalMs);
    // All of them get the one that is being read.
    if (this.#isReading) return;
    this.#isReading = true;
    void this.#send(this.#open).finally(() => {
      this.#isReading = false;
    });
  };

  async #send(to: Iterable<ServerResponse>): Promise<void> {
    let event: string;
    try {
      event = `data: ${await this.#read()}\n\n`;
    } catch {
      // It is logged where it is read. A comment keeps the connection open.
      event = ": the status could not be read\n\n";
    }
    for (const response of to) {
      if (!response.writableEnded && !response.writableNeedDrain) response.write(event);
    }
  }

  #remove(response: ServerResponse): void {
    this.#open.delete(response);
    if (this.#open.size === 0) this.#stop();
  }

  #stop(): void {
    this.#timer?.cancel();
    this.#timer = undefined;
  }
}
