import { gunzip, inflate, type ZlibOptions } from "node:zlib";
import { status } from "@grpc/grpc-js";
import { FairQueue } from "../../base/fair-queue.ts";
import type { WireStatus } from "../../wire/errors.ts";
import { refused, tooLarge } from "../calls/refusals.ts";

/**
 * Maximum number of messages that are inflated at once, for all connections. Each needs up to twice the largest request
 * in memory, and one of the four threads of Node.js' pool, which other work needs as well.
 */
const maxAtOnce = 2;

/**
 * How much is inflated in one step, in bytes: as many times the size of the message, within these bounds. Each step costs
 * the event loop 10 us, so in steps of Node.js' 16 KiB a message of 2 MiB takes 1.5 ms of it, and in these 0.6 ms.
 */
const stepBytes = { perMessageByte: 64, least: 16 * 1024, most: 128 * 1024 };

type Decompress = (
  bytes: Uint8Array,
  options: ZlibOptions,
  callback: (error: Error | null, result: Buffer) => void,
) => void;

/** By their names in gRPC. */
const encodings: ReadonlyMap<string, Decompress> = new Map([
  ["gzip", gunzip],
  ["deflate", inflate],
]);

/** A message to inflate. */
export interface Inflation {
  /** The connection that sent it. */
  readonly owner: object;
  readonly encoding: string;
  readonly message: Buffer;
  /** Maximum size of the inflated message, in bytes. */
  readonly maxBytes: number;
  /** Called just before it is inflated. Returns false to skip it. */
  readonly onTurn: () => boolean;
  readonly onInflated: (message: Buffer) => void;
  /** Called if it can't be inflated. The call must end with the status. */
  readonly onRefused: (status: WireStatus) => void;
}

/**
 * Inflates compressed messages, two at a time, connections in rotation: a message of 2 KB may become one of 2 MiB. The
 * caller bounds the number and size of those that wait, with `delete`.
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

  /** Removes a message that waits. Idempotent. */
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
      const options = {
        maxOutputLength: next.maxBytes,
        chunkSize: stepBytesOf(next.message),
      };
      decompress(next.message, options, (error, message) => {
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

function stepBytesOf({ length }: Buffer): number {
  const { perMessageByte, least, most } = stepBytes;
  return Math.min(most, Math.max(least, perMessageByte * length));
}

function refusalOf(error: Error, maxBytes: number): WireStatus {
  if ("code" in error && error.code === "ERR_BUFFER_TOO_LARGE") return tooLarge("more", maxBytes);
  return refused(status.INTERNAL, "Failed to decompress message");
}
