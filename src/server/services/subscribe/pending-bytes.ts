import { WatchFanoutError } from "../../../base/errors.ts";
import type { TimeSlicedWork } from "../../../base/event-loop-turns.ts";
import type { Subscription } from "./subscription.ts";

/** What the watches of a stream hold, in bytes. */
interface Pending {
  /** What can't be sent now: for want of credit, or because the client does not accept what was sent. */
  readonly bytes: number;
  readonly withoutCredit: readonly { readonly watch: Subscription; readonly bytes: number }[];
}

/** Sums up what the watches hold. Ends those without credit that have ended, since these can't notify their stream of it. */
export function* pendingIn(
  watches: Iterable<Subscription>,
  stream: { readonly outstanding: boolean },
): TimeSlicedWork<Pending> {
  const withoutCredit: { readonly watch: Subscription; readonly bytes: number }[] = [];
  let pending = 0;
  for (const watch of watches) {
    const { isParked } = watch;
    if (isParked) watch.endIfWatchHas();
    if (!watch.isOver && (isParked || stream.outstanding)) {
      const bytes = watch.pendingBytes;
      pending += bytes;
      if (isParked) withoutCredit.push({ watch, bytes });
    }
    yield;
  }
  return { bytes: pending, withoutCredit };
}

/** Ends watches without credit, the largest first, until what the others hold is within the bound. */
export function* endLargest({ withoutCredit }: Pending, maxBytes: number): TimeSlicedWork<void> {
  let parked = withoutCredit.reduce((sum, { bytes }) => sum + bytes, 0);
  if (parked <= maxBytes) return;
  for (const { watch, bytes } of withoutCredit.toSorted((a, b) => b.bytes - a.bytes)) {
    if (parked <= maxBytes) return;
    parked -= bytes;
    // It may have got credit meanwhile.
    if (watch.isParked) watch.evict(tooMuchPending(maxBytes));
    yield;
  }
}

/** The watch that holds most; none if none holds anything. */
export function largestOf(watches: Iterable<Subscription>): ReadonlySet<Subscription> {
  let largest: Subscription | undefined;
  for (const watch of watches) {
    if (watch.pendingBytes > (largest?.pendingBytes ?? 0)) largest = watch;
  }
  return new Set(largest === undefined ? [] : [largest]);
}

function tooMuchPending(maxBytes: number): WatchFanoutError {
  return new WatchFanoutError(
    "SLOW_CONSUMER",
    `What waits for credit on this stream exceeds ${maxBytes} bytes, and this watch has most of it. Resume from the last ` +
      "resume point, and grant credit sooner, or watch less.",
  );
}
