import { upstreamUnavailable } from "../../base/errors.ts";
import { FairQueue } from "../limits/fair-queue.ts";
import type { CallContext } from "./call-context.ts";
import { outOfRequestRoom } from "./refusals.ts";
import { RefusedRequest } from "./server-call.ts";

/** How many bytes of requests may be with the store at once, all connections together, give or take one request. */
const defaultMaxBytes = 64 * 1024 ** 2;

/** What a write takes beside its request, in bytes. */
const writeBytes = 1024;

/** How long a write waits for its turn, in milliseconds: as long as etcd may take for one. */
const waitMs = 5_000;

/** The call that a write is for. */
export interface WritingCall {
  readonly connection: object;
  readonly requestBytes: number;
  readonly signal: AbortSignal;
}

type WriteContext = Pick<CallContext, "clock" | "requestPool" | "maxUnreadBytesPerConnection">;

/**
 * The writes that the store has been asked for. Each keeps its value until the store has answered, so a store that
 * takes long would have the process keep all that clients send. Beyond a bound in bytes further writes wait, owners
 * (connections) in rotation, and are charged to their connection like requests that have not come whole.
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

  /** With the store now, in bytes. */
  get bytes(): number {
    return this.#bytes;
  }

  /**
   * Calls `write` when it is the call's turn, and resolves or rejects as it does. Where `write` is not called it rejects
   * with UPSTREAM_UNAVAILABLE after 5 s, with a `RefusedRequest` if the connection has no room for what waits, and with
   * the signal's reason.
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

  /** Waits for the turn, from which on the bytes are counted. */
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
    `The store has had more to write for ${waitMs / 1_000} s than it gets done. Nothing was written. Try again soon.`,
  );
}
