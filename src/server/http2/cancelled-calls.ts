import { constants, type ServerHttp2Session, type ServerHttp2Stream } from "node:http2";
import type { CallerLimits } from "../limits/caller-limits.ts";
import type { CallOwner } from "../limits/callers.ts";
import { isEnding } from "./frames/framed-connection.ts";

/**
 * Bounds the calls that are cancelled on the connections of trusted proxies. On any other Node.js closes the connection
 * beyond its bound. On one of a proxy it allows any number, since one client could end the calls of all others behind the
 * proxy: there each identity has the same bound, and beyond it its calls are refused. Calls that the server resets, since
 * their client is stuck, count as well. How fast calls are opened, and with that cancelled, is bounded by `StreamPacing`.
 */
export class CancelledCalls {
  readonly #callerLimits: CallerLimits;

  constructor(callerLimits: CallerLimits) {
    this.#callerLimits = callerLimits;
  }

  /** Observes a call until it ends. `forwarded` is its owner if a proxy forwards its identity. */
  observe(
    stream: ServerHttp2Stream,
    session: ServerHttp2Session,
    forwarded: CallOwner | undefined,
  ): void {
    const { callers } = this.#callerLimits;
    if (!callers.isForwarder(session)) return;
    const onClose = (): void => {
      // Not if its connection ends: then all of its calls do.
      if (isEnding(session)) return;
      const isReset = stream.aborted || stream.rstCode !== constants.NGHTTP2_NO_ERROR;
      if (!isReset) return;
      this.#callerLimits.cancelled((forwarded ?? callers.expectedOn(session)).caller);
    };
    if (stream.destroyed) onClose();
    else stream.once("close", onClose);
  }
}
