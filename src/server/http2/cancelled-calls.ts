import { constants, type ServerHttp2Session, type ServerHttp2Stream } from "node:http2";
import type { Clock } from "../../base/clock.ts";
import type { CallerLimits } from "../limits/caller-limits.ts";
import type { CallOwner } from "../limits/callers.ts";
import type { Http2Defences } from "../limits/http2-defences.ts";
import { Rate } from "../limits/rate.ts";
import type { ServerLimits } from "../limits/server-limits.ts";
import { isEnding } from "./frames/framed-connections.ts";

export interface CancelledCallsOptions {
  readonly clock: Clock;
  readonly limits: Pick<ServerLimits, "maxCancelsPerSecond" | "maxStreamsPerConnection">;
  readonly callerLimits: CallerLimits;
  readonly defences: Pick<Http2Defences, "close">;
}

/**
 * Bounds the calls that clients cancel, for a server that trusts proxies. Node.js would close the connection, of proxies
 * as well: then one client could end the calls of all others behind its proxy. So it bounds none here (`boundHttp2`). On a
 * connection of a proxy each identity has the same bound, and beyond it its calls are refused; any other connection is
 * closed beyond it. Calls that the server resets, since their client is stuck, count as well. How fast calls are opened,
 * and with that cancelled, is bounded for all by `StreamPacing`.
 */
export class CancelledCalls {
  readonly #options: CancelledCallsOptions;
  readonly #rates = new WeakMap<ServerHttp2Session, Rate>();

  constructor(options: CancelledCallsOptions) {
    this.#options = options;
  }

  /** Observes a call until it ends. `forwarded` is its owner if a proxy forwards its identity. */
  observe(
    stream: ServerHttp2Stream,
    session: ServerHttp2Session,
    forwarded: CallOwner | undefined,
  ): void {
    const onClose = (): void => {
      // Not if its connection ends: then all of its calls do.
      if (isEnding(session)) return;
      const isReset = stream.aborted || stream.rstCode !== constants.NGHTTP2_NO_ERROR;
      if (isReset) this.#cancelled(session, forwarded);
    };
    if (stream.destroyed) onClose();
    else stream.once("close", onClose);
  }

  #cancelled(session: ServerHttp2Session, forwarded: CallOwner | undefined): void {
    const { callerLimits, defences } = this.#options;
    const { callers } = callerLimits;
    if (callers.isForwarder(session)) {
      callerLimits.cancelled((forwarded ?? callers.expectedOn(session)).caller);
    } else if (!this.#rateOf(session).take()) {
      defences.close(session, "rapid_reset");
    }
  }

  #rateOf(session: ServerHttp2Session): Rate {
    let rate = this.#rates.get(session);
    if (rate === undefined) {
      const { clock, limits } = this.#options;
      rate = new Rate(clock, limits.maxCancelsPerSecond, limits.maxStreamsPerConnection);
      this.#rates.set(session, rate);
    }
    return rate;
  }
}
