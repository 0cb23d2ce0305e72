import type { Clock } from "../../base/clock.ts";
import { credentialRevoked } from "../../identity/authenticators.ts";
import { permissionDenied } from "../../policy/access.ts";
import type { Authorizer } from "../../policy/authorizer.ts";
import type { ClientConnection } from "../kernel/client-connection.ts";
import type { OpenStreams } from "../kernel/open-streams.ts";
import type { Authentication } from "./authentication.ts";
import type { ServiceContext } from "./service-context.ts";

/**
 * Whenever the policy changes, ends the streams that it no longer allows, with PERMISSION_DENIED. Streams that open meanwhile
 * have been allowed by the new policy.
 */
export function revokeOnChange(authorizer: Authorizer, streams: OpenStreams, clock: Clock): void {
  authorizer.onChange(() => {
    const { generation } = authorizer;
    // A pass ends when its policy has been replaced: a new one has begun.
    const isCurrent = (): boolean => authorizer.generation === generation;
    streams.endEach(
      clock,
      ({ identity, access }) => {
        const denied = access && authorizer.firstDenied(identity, access);
        if (denied === undefined) return undefined;
        authorizer.countRevoked();
        return permissionDenied(identity, denied);
      },
      isCurrent,
    );
  });
}

/**
 * Returns what ends a connection whose client certificate is of no trusted authority any more: its streams with
 * UNAUTHENTICATED and their resume points, and its calls in progress, whatever their identity is, since the connection
 * itself is no longer trusted; then the connection, with GOAWAY. What remains of it is cut off after `endFlushMs`.
 */
export function endingWithdrawn(
  authentication: Authentication | undefined,
  { clock, limits, streams, credentials }: ServiceContext,
): (session: ClientConnection) => void {
  return (session) => {
    authentication?.withdraw(session);
    // Its calls that have begun are refused before they have an effect.
    credentials.withdraw(session);
    const error = credentialRevoked({ source: "certificate" });
    for (const stream of [...streams.of(session)]) streams.end(stream, error);
    session.close();
    const timer = clock.setTimeout(() => session.destroy(), limits.endFlushMs);
    session.once("close", () => timer.cancel());
  };
}
