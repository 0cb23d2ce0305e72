import type { TimeSlicedWork, TimeSliceScheduler } from "../../base/time-slices.ts";
import type { Authorizer } from "../../policy/authorizer.ts";
import { permissionDenied } from "../../policy/permission-denied.ts";
import type { OpenStreams } from "../limits/open-streams.ts";

/** Number of streams whose right is checked between two yields. To end one takes longer than to check all of these. */
const checksPerStep = 64;

/** A pass ends when its policy has been replaced: a new one has begun. */
const replaced = new Error("The policy has changed again.");

/**
 * Whenever the policy changes, ends the streams that it no longer allows, with PERMISSION_DENIED. It checks all open
 * streams in time slices: a thousand take a few milliseconds, and other calls continue meanwhile. Streams that open
 * during the pass have been allowed by the new policy.
 */
export function revokeOnChange(
  authorizer: Authorizer,
  streams: OpenStreams,
  scheduler: TimeSliceScheduler,
): void {
  let pass = new AbortController();
  authorizer.onChange(() => {
    pass.abort(replaced);
    pass = new AbortController();
    // Rejects only when it is aborted.
    scheduler.run(streams, revoke(authorizer, streams), pass.signal).catch(() => {});
  });
}

function* revoke(authorizer: Authorizer, streams: OpenStreams): TimeSlicedWork<void> {
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
