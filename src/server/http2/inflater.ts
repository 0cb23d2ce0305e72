import { gunzip, inflate, type ZlibOptions } from "node:zlib";
import { status } from "@grpc/grpc-js";
import { Gate } from "../../base/gate.ts";
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
  /** See `RequestBody`. */
  readonly corruptCode?: status | undefined;
  /** Called just before it is inflated. Returns false to skip it. */
  readonly onTurn: () => boolean;
  readonly onInflated: (message: Buffer) => void;
  /** Called if it can't be inflated. The call must end with the status. */
  readonly onRefused: (status: WireStatus) => void;
}

/**
 * Inflates compressed messages, two at a time, connections in rotation: a message of 2 KB may become one of 2 MiB. The
 * caller bounds the number and size of those that wait.
 */
export class Inflater {
  readonly #gate = new Gate({ concurrent: maxAtOnce });

  /** The returned function removes it if it waits; it is idempotent. */
  add(inflation: Inflation): () => void {
    const { encoding, owner } = inflation;
    if (encoding === "identity") {
      const details = "Received a compressed request without a grpc-encoding";
      inflation.onRefused(refused(status.INTERNAL, details, "INVALID_REQUEST"));
      return () => {};
    }
    const decompress = encodings.get(encoding);
    if (decompress === undefined) {
      const details = `Received message compressed with unsupported encoding "${encoding}"`;
      inflation.onRefused(refused(status.UNIMPLEMENTED, details, "UNIMPLEMENTED"));
      return () => {};
    }
    const enter = (): void => this.#inflate(inflation, decompress);
    return this.#gate.queue(owner, { bytes: 0, enter });
  }

  #inflate(inflation: Inflation, decompress: Decompress): void {
    const { owner, message, maxBytes, corruptCode = status.INTERNAL } = inflation;
    if (!inflation.onTurn()) {
      this.#gate.leave(owner);
      return;
    }
    const options = { maxOutputLength: maxBytes, chunkSize: stepBytesOf(message) };
    decompress(message, options, (error, inflated) => {
      try {
        if (error === null) inflation.onInflated(inflated);
        else inflation.onRefused(refusalOf(error, maxBytes, corruptCode));
      } finally {
        this.#gate.leave(owner);
      }
    });
  }
}

function stepBytesOf({ length }: Buffer): number {
  const { perMessageByte, least, most } = stepBytes;
  return Math.min(most, Math.max(least, perMessageByte * length));
}

function refusalOf(error: Error, maxBytes: number, corruptCode: status): WireStatus {
  if ("code" in error && error.code === "ERR_BUFFER_TOO_LARGE") return tooLarge("more", maxBytes);
  return refused(corruptCode, "Failed to decompress message", "INVALID_REQUEST");
}
