import { createHash } from "node:crypto";
import type { IncomingHttpHeaders } from "node:http2";
import { status } from "@grpc/grpc-js";
import type { Clock } from "../../base/clock.ts";
import { dropOldest } from "../../base/drop-oldest.ts";
import { Turns } from "../../base/turns.ts";
import { leftOutKey } from "../../etcd/client/call-headers.ts";
import { type Askable, askUpstream } from "../../etcd/client/upstream-call.ts";
import { futureRevision } from "../../etcd/wire/error-texts.ts";
import { permissionRequest, type RangeRequest } from "../../etcd/wire/range-request.ts";
import type { RawCall } from "../../server/calls/methods.ts";
import type { Rounds } from "../../server/kernel/rounds.ts";
import {
  type CachedRange,
  type CachedResources,
  hasCredential,
} from "../cached/cached-resources.ts";
import type { NewestHeader } from "../cached/newest-header.ts";
import type { EtcdCall, EtcdServiceDeps } from "../calls/etcd-call.ts";

/** The paths of etcd's Range, and of RangeStream of etcd 3.7, which has the same request. */
const rangePath = "/etcdserverpb.KV/Range";
export const rangePaths = [rangePath, "/etcdserverpb.KV/RangeStream"] as const;
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

  constructor({ calls, cached, newestHeader, upstream, clock }: EtcdServiceDeps) {
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

/** How long etcd's permission stands, in milliseconds. */
const permittedMs = 1_000;

/** Maximum number of permissions that are remembered; the oldest make room. */
const maxPermissions = 10_000;

/** Metadata that may identify the caller, to etcd or to another watch-fanout before it. */
const credentials = ["token", "authorization", "x-forwarded-client-cert"];

/** Of a caller and a range. */
interface Permission {
  /** When etcd was asked, in the clock's milliseconds. */
  readonly since: number;
  readonly accessChanges: number;
  /** Undefined: etcd permits it. */
  pending: Promise<boolean> | undefined;
}

/**
 * Knows what etcd permits clients with a token to read. It is asked with the client's own metadata, by a Range of the same
 * keys at a revision that does not exist: etcd looks at the permission first, and reads nothing. Only a permission is
 * remembered, for exactly this credential and range: what etcd refuses it refuses itself, with its own text.
 */
export class ReadPermissions {
  readonly #upstream: Askable;
  readonly #clock: Clock;
  /** Number of times that etcd's authentication may have been changed. */
  readonly #accessChanges: () => number;
  /** By a digest of the credential and the range, the oldest first. */
  readonly #known = new Map<string, Permission>();

  constructor(upstream: Askable, clock: Clock, accessChanges: () => number) {
    this.#upstream = upstream;
    this.#clock = clock;
    this.#accessChanges = accessChanges;
  }

  /** Number of permissions that are remembered, or asked for. */
  get size(): number {
    return this.#known.size;
  }

  /** Undefined: etcd has permitted it in the last second. Otherwise resolves to whether etcd permits it. Never rejects. */
  confirm(request: RangeRequest, metadata: IncomingHttpHeaders): Promise<boolean> | undefined {
    const id = digestOf(request, metadata);
    const known = this.#known.get(id);
    if (known !== undefined && this.#isValid(known)) return known.pending;
    return this.#ask(id, request, metadata);
  }

  #isValid({ since, accessChanges }: Permission): boolean {
    const isNew = this.#clock.now() - since < permittedMs;
    return isNew && accessChanges === this.#accessChanges();
  }

  #ask(id: string, request: RangeRequest, metadata: IncomingHttpHeaders): Promise<boolean> {
    const asked = permissionRequest(request);
    const pending = askUpstream(this.#upstream, rangePath, metadata, asked, this.#clock).then(
      ({ code, details }) => {
        const isPermitted = code === status.OUT_OF_RANGE && details === futureRevision;
        if (isPermitted) permission.pending = undefined;
        else if (this.#known.get(id) === permission) this.#known.delete(id);
        return isPermitted && permission.accessChanges === this.#accessChanges();
      },
    );
    const permission: Permission = {
      since: this.#clock.now(),
      accessChanges: this.#accessChanges(),
      pending,
    };
    this.#known.delete(id);
    this.#known.set(id, permission);
    dropOldest(this.#known, maxPermissions);
    return pending;
  }
}

/** No token is kept. Each part has an end that it can't contain, or a known length. */
function digestOf({ key, rangeEnd }: RangeRequest, metadata: IncomingHttpHeaders): string {
  const caller = credentials.map((name) => metadata[name] ?? null);
  return createHash("sha256")
    .update(JSON.stringify([...caller, key.length]))
    .update(key)
    .update(rangeEnd)
    .digest("base64");
}
