import { gunzip, inflate, type ZlibOptions } from "node:zlib";
import { status } from "@grpc/grpc-js";
import type { WireStatus } from "../../wire/errors.ts";
import { refused, tooLarge } from "../calls/refusals.ts";
import { FairQueue } from "../limits/fair-queue.ts";

/**
 * How many messages are inflated at once, of all connections together. Each takes up to twice the largest
 * request while it is, and a thread of Node.js's pool of four, which others need as well.
 */
const maxAtOnce = 2;

type Decompress = (
  bytes: Uint8Array,
  options: ZlibOptions,
  callback: (error: Error | null, result: Buffer) => void,
) => void;

/** By what gRPC calls them. */
const encodings: ReadonlyMap<string, Decompress> = new Map([
  ["gzip", gunzip],
  ["deflate", inflate],
]);

/** A message that is to be inflated. */
export interface Inflation {
  /** Who has sent it: a connection. */
  readonly owner: object;
  readonly encoding: string;
  readonly message: Buffer;
  /** The largest that it may become. */
  readonly maxBytes: number;
  /** Its turn has come. False: it is not to be inflated any more. */
  readonly onTurn: () => boolean;
  readonly onInflated: (message: Buffer) => void;
  /** It can't be inflated, and its call is to be ended with this. */
  readonly onRefused: (status: WireStatus) => void;
}

/**
 * Inflates compressed messages, a few at a time and by turns between connections: a message of 2 KB may
 * become one of 2 MiB. How many wait, and their bytes, is for the caller to bound, who can `delete` them.
 */
export class Inflater {
  readonly #waiting = new FairQueue<Inflation>();
  #running = 0;

  add(inflation: Inflation): void {
    const { encoding, owner } = inflation;
    if (encoding === "identity") {
      const details = "Received a compressed request without a grpc-encoding";
      inflation.onRefused(refused(status.INTERNAL, details));
      return;
    }
    if (!encodings.has(encoding)) {
      const details = `Received message compressed with unsupported encoding "${encoding}"`;
      inflation.onRefused(refused(status.UNIMPLEMENTED, details));
      return;
    }
    this.#waiting.push(owner, inflation);
    this.#startNext();
  }

  /** Inflates it no more, if it has not begun. Idempotent. */
  delete(inflation: Inflation): void {
    this.#waiting.delete(inflation.owner, inflation);
  }

  #startNext(): void {
    while (this.#running < maxAtOnce) {
      const next = this.#waiting.shift();
      if (next === undefined) return;
      const decompress = encodings.get(next.encoding);
      if (decompress === undefined || !next.onTurn()) continue;
      this.#running++;
      decompress(next.message, { maxOutputLength: next.maxBytes }, (error, message) => {
        this.#running--;
        try {
          if (error === null) next.onInflated(message);
          else next.onRefused(refusalOf(error, next.maxBytes));
        } finally {
          this.#startNext();
        }
      });
    }
  }
}

function refusalOf(error: Error, maxBytes: number): WireStatus {
  if ("code" in error && error.code === "ERR_BUFFER_TOO_LARGE") return tooLarge("more", maxBytes);
  return refused(status.INTERNAL, "Failed to decompress message");
}
