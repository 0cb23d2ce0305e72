import type { ServerHttp2Session } from "node:http2";
import { credentialRevoked } from "../../identity/authenticators.ts";
import type { ServerPools } from "../limits/server-pools.ts";
import type { Authentication } from "./authentication.ts";
import type { CallContext } from "./call-context.ts";

/**
 * Returns what ends a connection whose client certificate is of no trusted authority any more: its streams with
 * UNAUTHENTICATED and their resume points, and its calls in progress, whatever their identity is, since the connection
 * itself is no longer trusted; then the connection, with GOAWAY. What remains of it is cut off after `endFlushMs`.
 */
export function endingWithdrawn(
  authentication: Authentication | undefined,
  { streams, authenticatedStreams }: Pick<ServerPools, "streams" | "authenticatedStreams">,
  { clock, endFlushMs }: Pick<CallContext, "clock" | "endFlushMs">,
): (session: ServerHttp2Session) => void {
  return (session) => {
    authentication?.withdraw(session);
    // Its calls that have begun are refused before they have an effect.
    authenticatedStreams.withdraw(session);
    const error = credentialRevoked({ source: "certificate" });
    for (const stream of [...streams.of(session)]) {
      streams.delete(stream);
      stream.evict(error);
    }
    session.close();
    const timer = clock.setTimeout(() => session.destroy(), endFlushMs);
    session.once("close", () => timer.cancel());
  };
}
