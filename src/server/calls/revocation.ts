import type { Clock } from "../../base/clock.ts";
import { runPaced } from "../../base/paced-work.ts";
import { permissionDenied } from "../../policy/access.ts";
import type { Authorizer } from "../../policy/authorizer.ts";
import type { OpenStreams } from "../limits/open-streams.ts";

/** Number of streams whose right is checked between two yields. To end one takes longer than to check all of these. */
const checksPerStep = 64;

/** Time in which the streams are checked, and ended if they have lost their right, in milliseconds. */
const revokeWithinMs = 500;

/**
 * Whenever the policy changes, ends the streams that it no longer allows, with PERMISSION_DENIED. It checks all open
 * streams in time slices, and beyond them if that would take too long: a thousand take a few milliseconds, and other
 * calls continue meanwhile. Streams that open during the pass have been allowed by the new policy.
 */
export function revokeOnChange(authorizer: Authorizer, streams: OpenStreams, clock: Clock): void {
  let current: Generator<void, void, void> | undefined;
  authorizer.onChange(() => {
    const pass = revoke(authorizer, streams);
    current = pass;
    runPaced(clock, {
      // A pass ends when its policy has been replaced: a new one has begun. Each step may end a stream.
      step: () => current === pass && pass.next().done !== true,
      steps: streams.size,
      withinMs: revokeWithinMs,
    });
  });
}

function* revoke(authorizer: Authorizer, streams: OpenStreams): Generator<void, void, void> {
  let checks = 0;
  for (const stream of streams) {
    const { identity, access } = stream;
    if (access === undefined) continue;
    const denied = authorizer.firstDenied(identity, access);
    if (denied === undefined) {
      if (++checks % checksPerStep === 0) yield;
      continue;
    }
    streams.delete(stream);
    stream.evict(permissionDenied(identity, denied));
    authorizer.countRevoked();
    yield;
  }
}
