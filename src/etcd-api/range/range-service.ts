import type { IncomingHttpHeaders } from "node:http2";
import type { Clock } from "../../base/clock.ts";
import { Turns } from "../../base/turns.ts";
import { leftOutKey } from "../../etcd/client/endpoint.ts";
import type { Askable } from "../../etcd/client/upstream-call.ts";
import type { RangeRequest } from "../../etcd/wire/range-request.ts";
import type { RawCall } from "../../server/calls/methods.ts";
import type { Rounds } from "../../server/kernel/rounds.ts";
import {
  type CachedRange,
  type CachedResources,
  hasCredential,
} from "../cached/cached-resources.ts";
import type { NewestHeader } from "../cached/newest-header.ts";
import type { EtcdCall } from "../calls/etcd-call.ts";
import { ReadPermissions } from "./read-permissions.ts";

/** The paths of etcd's Range, and of RangeStream of etcd 3.7, which has the same request. */
export const rangePaths = ["/etcdserverpb.KV/Range", "/etcdserverpb.KV/RangeStream"] as const;
export type RangePath = (typeof rangePaths)[number];

/** Whether it is the path of a call that reads a range. */
export function isRangePath(path: string): path is RangePath {
  return (rangePaths as readonly string[]).includes(path);
}

/**
 * Maximum number of requests at etcd at once that the cache could not serve in time. If etcd stalls, all caches are late,
 * and etcd must not get all reads on top.
 */
const maxLate = 32;

export interface RangeServiceDeps {
  readonly calls: Rounds<EtcdCall>;
  readonly cached: CachedResources;
  readonly newestHeader: NewestHeader;
  readonly upstream: Askable;
  readonly clock: Clock;
}

/** Number of calls by what answered them. */
export interface RangeCounts {
  cached: number;
  relayed: number;
}

/** Serves etcd's Range and RangeStream from caches. What all of its calls share. */
export class RangeService {
  readonly calls: Rounds<EtcdCall>;
  readonly cached: CachedResources;
  readonly newestHeader: NewestHeader;
  /** The turns in which large responses are encoded. */
  readonly turns: Turns;
  readonly counts: RangeCounts = { cached: 0, relayed: 0 };
  /** Of clients with a token. */
  readonly permissions: ReadPermissions;
  #late = 0;

  constructor({ calls, cached, newestHeader, upstream, clock }: RangeServiceDeps) {
    this.calls = calls;
    this.cached = cached;
    this.newestHeader = newestHeader;
    this.turns = new Turns(clock, Infinity);
    this.permissions = new ReadPermissions(upstream, clock, () => cached.accessChanges);
  }

  /** Whether a call may be served from a cache; otherwise it is forwarded unread. */
  mayServe(metadata: IncomingHttpHeaders): boolean {
    const { cached, newestHeader } = this;
    if (newestHeader.header === undefined || !cached.mayServe(metadata)) return false;
    return cached.isOpen || hasCredential(metadata);
  }

  /** The resource that has all keys of the request; undefined: no cache may serve it. */
  cachedRange(request: RangeRequest, metadata: IncomingHttpHeaders): CachedRange | undefined {
    if (request.hasEmptyEnd) return undefined;
    // Only the member knows whether it has a leader; a linearizable read needs one in any case.
    if (request.serializable && metadata["hasleader"] !== undefined) return undefined;
    return this.cached.rangeOf(request.key, request.rangeEnd, leftOutKey(metadata));
  }

  /**
   * Whether a call may be passed to etcd, which counts it. `isLate`: it has waited for a cache, which was not new enough in
   * time. Not if there are too many of those.
   */
  mayForward(call: RawCall, isLate: boolean): boolean {
    if (isLate && this.#late >= maxLate) return false;
    this.counts.relayed++;
    if (isLate) {
      this.#late++;
      call.onClosed(() => this.#late--);
    }
    return true;
  }
}
