import { upstreamUnavailable } from "../../base/errors.ts";
import { FairQueue } from "../limits/fair-queue.ts";
import type { CallContext } from "./call-context.ts";
import { outOfRequestRoom } from "./refusals.ts";
import { RefusedRequest } from "./server-call.ts";

/** Maximum size of the writes that the store is processing, for all connections, in bytes; one request may exceed it. */
const defaultMaxBytes = 64 * 1024 ** 2;

/** Memory of a write in addition to its request, in bytes. */
const writeBytes = 1024;

/** How long a write waits before it is sent, in milliseconds: as long as etcd may take for one. */
const waitMs = 5_000;

/** The call that writes. */
export interface WritingCall {
  readonly connection: object;
  readonly requestBytes: number;
  readonly signal: AbortSignal;
}

type WriteContext = Pick<CallContext, "clock" | "requestPool" | "maxUnreadBytesPerConnection">;

/**
 * Bounds the writes that were sent to the store and have no response. Each holds its value until the store has responded, so
 * a slow store would make the process hold everything that clients send. Above the bound further writes wait,
 * connections in rotation, and are charged to their connection like incomplete requests.
 */
export class WritesInFlight {
  readonly #context: WriteContext;
  readonly #maxBytes: number;
  readonly #waiting = new FairQueue<() => void>();
  #bytes = 0;

  constructor(context: WriteContext, maxBytes: number = defaultMaxBytes) {
    this.#context = context;
    this.#maxBytes = maxBytes;
  }

  /** Size of the writes that the store is processing, in bytes. */
  get bytes(): number {
    return this.#bytes;
  }

  /**
   * Calls `write` when there is room, and resolves or rejects like it. Rejects without a call of `write`: with
   * UPSTREAM_UNAVAILABLE after 5 s, with a `RefusedRequest` if the waiting request is evicted, and with the signal's
   * reason.
   */
  async run<T>(call: WritingCall, write: () => Promise<T>): Promise<T> {
    const bytes = call.requestBytes + writeBytes;
    if (this.#hasRoom && this.#waiting.isEmpty) this.#bytes += bytes;
    else await this.#turnOf(call, bytes);
    try {
      return await write();
    } finally {
      this.#bytes -= bytes;
      while (this.#hasRoom && !this.#waiting.isEmpty) this.#waiting.shift()?.();
    }
  }

  get #hasRoom(): boolean {
    return this.#bytes < this.#maxBytes;
  }

  /** Waits for room, then counts the bytes. */
  #turnOf({ connection, requestBytes, signal }: WritingCall, bytes: number): Promise<void> {
    const { clock, requestPool, maxUnreadBytesPerConnection } = this.#context;
    signal.throwIfAborted();
    return new Promise((resolve, reject) => {
      const end = (settle: () => void): void => {
        this.#waiting.delete(connection, wake);
        signal.removeEventListener("abort", onAbort);
        timer.cancel();
        reservation.release();
        settle();
      };
      const wake = (): void => {
        this.#bytes += bytes;
        end(resolve);
      };
      const onAbort = (): void => end(() => reject(signal.reason));
      const timer = clock.setTimeout(() => end(() => reject(tooManyWrites())), waitMs);
      const reservation = requestPool.reserve(connection, 0, () =>
        end(() => reject(new RefusedRequest(outOfRequestRoom(maxUnreadBytesPerConnection)))),
      );
      this.#waiting.push(connection, wake);
      signal.addEventListener("abort", onAbort);
      reservation.resize(requestBytes);
    });
  }
}

function tooManyWrites(): Error {
  return upstreamUnavailable(
    `The store has been too busy for this write for ${waitMs / 1_000} s. Nothing was written. Try again soon.`,
  );
}
