import type { ServerHttp2Session } from "node:http2";
import type { Clock, Timer } from "../../base/clock.ts";

/** How many streams a connection may open beyond those that are open. Values below 100 are advised against (RFC 9113, 6.5.2). */
export const streamAllowance = 128;

/**
 * Maximum number of streams above the limit that are refused in a row before the connection is closed. A client that keeps
 * the limit can exceed it only if it resets many streams and opens others at the same time.
 */
export const maxRefusedStreams = 1_000;

export interface StreamAllowanceOptions {
  readonly clock: Clock;
  /** Maximum number of open streams of a connection. */
  readonly maxStreamsPerConnection: number;
  /** How long a client may take to acknowledge a lower limit, in milliseconds. */
  readonly acknowledgeMs: number;
  /** Number of open streams of a connection. Infinity: the allowance does not apply to it. */
  readonly openStreams: (session: ServerHttp2Session) => number;
  /** Closes a connection that did not acknowledge a lower limit in time. */
  readonly onUnacknowledged: (session: ServerHttp2Session) => void;
}

/** The limit of a connection. */
interface Limit {
  /** The last SETTINGS_MAX_CONCURRENT_STREAMS that was sent. */
  sent: number;
  /** Whether the client has not acknowledged it yet. */
  isPending: boolean;
}

/**
 * Limits the streams of a connection to some more than are open, by SETTINGS_MAX_CONCURRENT_STREAMS. Node.js processes a
 * read of 64 KiB as a whole, which can be 2,600 streams that are opened and reset, at some 30 us each: 80 ms in which the
 * event loop does nothing else. It also counts the streams that were reset within the read, and refuses those above the
 * limit natively, at little cost. So the limit bounds what one read costs. It is raised before a client that keeps it
 * reaches it, and lowered again once streams have ended. It applies from when the client acknowledges it.
 */
export class StreamAllowance {
  readonly #options: StreamAllowanceOptions;
  readonly #initial: number;
  readonly #limits = new WeakMap<ServerHttp2Session, Limit>();

  constructor(options: StreamAllowanceOptions) {
    this.#options = options;
    this.#initial = Math.min(streamAllowance, options.maxStreamsPerConnection);
  }

  /** Call it when a connection has opened a stream, or a stream of it has ended. */
  adjust(session: ServerHttp2Session): void {
    const limit = this.#limitOf(session);
    if (limit.isPending || session.destroyed) return;
    const { openStreams, maxStreamsPerConnection } = this.#options;
    const open = openStreams(session);
    const wanted = Math.min(maxStreamsPerConnection, open + streamAllowance);
    // Neither for each stream, nor so late that a client has to wait.
    const isTooLow =
      wanted >= limit.sent + streamAllowance / 2 ||
      (wanted === maxStreamsPerConnection && limit.sent < wanted);
    const isTooHigh = limit.sent >= wanted + 3 * streamAllowance;
    if (isTooLow || isTooHigh) this.#send(session, limit, wanted);
  }

  #limitOf(session: ServerHttp2Session): Limit {
    let limit = this.#limits.get(session);
    if (limit === undefined) {
      limit = { sent: this.#initial, isPending: false };
      this.#limits.set(session, limit);
    }
    return limit;
  }

  #send(session: ServerHttp2Session, limit: Limit, maxConcurrentStreams: number): void {
    const { clock, acknowledgeMs, onUnacknowledged } = this.#options;
    let timer: Timer | undefined;
    if (maxConcurrentStreams < limit.sent) {
      timer = clock.setTimeout(() => onUnacknowledged(session), acknowledgeMs);
    }
    limit.sent = maxConcurrentStreams;
    limit.isPending = true;
    session.settings({ maxConcurrentStreams }, () => {
      timer?.cancel();
      limit.isPending = false;
      this.adjust(session);
    });
  }
}
