import type { Cacher } from "../../cacher/cacher.ts";
import type { ReadinessCheck } from "../../server/admin/admin.ts";
import type { PressureLevel } from "../../server/pressure/memory-pressure.ts";

/** What a service does besides serving; undefined: nothing. */
export type Pending = string | undefined;

/**
 * The checks of /readyz. `pending`: why the service as a whole does not serve, a sentence. `hasEtcdApi`: etcd's own API is
 * served, whose calls are passed to etcd while there is no cache.
 */
export function readiness(
  caches: ReadonlyMap<string, Cacher>,
  pending: Pending,
  pressure: PressureLevel,
  hasEtcdApi: boolean = false,
): readonly ReadinessCheck[] {
  const checks = [...caches].map(([name, cacher]) => {
    const at = `resource/${name}`;
    if (cacher.ready) {
      const warning = staleness(cacher);
      return { name: at, failure: undefined, warning, note: backfillProgress(cacher) };
    }
    const why = notReadyReason(cacher);
    // It lasts until an operator changes it, and clients with rights of their own are served nevertheless.
    const isRelayed = hasEtcdApi && cacher.upstreamFailure?.reason === "UPSTREAM_DENIED";
    return isRelayed
      ? { name: at, failure: undefined, warning: `etcd serves these keys: ${why}` }
      : { name: at, failure: why };
  });
  return [{ name: "serving", failure: pending }, ...checks, memoryCheck(pressure)];
}

/** A process that refuses all calls is not ready; one that refuses some still serves its streams. */
function memoryCheck(level: PressureLevel): ReadinessCheck {
  const text = level === "normal" ? undefined : `memory pressure is ${level}, and load is shed`;
  const [failure, warning] = level === "exhausted" ? [text] : [undefined, text];
  return { name: "memory", failure, warning };
}

/** Why a cache has not become ready. A ready cache stays ready when the store is lost. */
function notReadyReason(cacher: Cacher): string {
  const still = "the cache has not synced with the store yet";
  const failure = cacher.upstreamFailure;
  return failure === undefined ? still : `${still}: ${failure.message}`;
}

/** The progress of the event window's backfill; undefined once it is complete. */
function backfillProgress(cacher: Cacher): string | undefined {
  const { backfill, eventWindow } = cacher.stats();
  const from = `begins at revision ${eventWindow.oldestRevision}`;
  if (backfill.state === "running") return `the event window ${from}; backfill is in progress`;
  if (backfill.state === "paused") {
    return `the event window ${from}; older events are read when a stream resumes from them`;
  }
  const isEarly = ["costly", "failed", "conflicting"].includes(backfill.state);
  return isEarly ? `the event window ${from}; backfill ended early: ${backfill.state}` : undefined;
}

/** How old the cache's responses may be while its source is unreachable; undefined while it is reachable. */
function staleness(cacher: Cacher): string | undefined {
  const { staleForMs, upstreamFailure } = cacher;
  if (staleForMs === undefined) return undefined;
  const why =
    upstreamFailure?.message ?? "the server that this relay follows can't reach its own source";
  const seconds = (staleForMs / 1_000).toFixed(1);
  return `stale: at revision ${cacher.revision}, received nothing for ${seconds} s: ${why}`;
}
