import type { IncomingHttpHeaders } from "node:http2";
import type { Clock } from "../../base/clock.ts";
import { TimeSliceQueue } from "../../base/time-slice-queue.ts";
import type { CallContext } from "../../server/calls/call-context.ts";
import type { RelayedCall } from "../../server/calls/relayed-methods.ts";
import type { WatchScope } from "../../storage/storage.ts";
import { AccessProbe } from "../cached/access-probe.ts";
import type { CachedResource } from "../cached/cached-resource.ts";
import { cachedScope } from "../cached/cached-scope.ts";
import type { NewestHeader, ResponseSource } from "../contract/response-header.ts";
import type { CallMaintenance } from "../relay/call-maintenance.ts";
import type { EtcdCall } from "../relay/etcd-call.ts";
import { asLinearizable, type RangeRequest } from "./range-request.ts";

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

/** Metadata of a call with the credential of a user of etcd: its rights are etcd's to check, for each read. */
const credentials = ["token", "authorization"];

/** Passes a call to etcd, with what was read of its request. */
export type RelayCall = (
  path: RangePath,
  call: RelayedCall,
  metadata: IncomingHttpHeaders,
  context: CallContext,
  received: Buffer,
) => void;

export interface RangeServiceDeps {
  readonly maintenance: CallMaintenance<EtcdCall>;
  readonly newestHeader: NewestHeader;
  /** Calls are relayed on its connections. */
  readonly upstream: { available(): ResponseSource | undefined };
  readonly clock: Clock;
  readonly relay: RelayCall;
}

/** A request, and the cached resource that has all of its keys. */
export interface CachedRange {
  readonly request: RangeRequest;
  readonly resource: CachedResource;
  readonly scope: WatchScope;
  readonly access: AccessProbe;
}

/** Number of calls by what answered them. */
export interface RangeCounts {
  cached: number;
  relayed: number;
}

/** Serves etcd's Range and RangeStream from caches. What all of its calls share. */
export class RangeService {
  readonly maintenance: CallMaintenance<EtcdCall>;
  readonly newestHeader: NewestHeader;
  /** The turns in which large responses are encoded. */
  readonly turns: TimeSliceQueue;
  readonly counts: RangeCounts = { cached: 0, relayed: 0 };
  readonly #upstream: RangeServiceDeps["upstream"];
  readonly #clock: Clock;
  readonly #relay: RelayCall;
  #resources: readonly (readonly [CachedResource, AccessProbe])[] = [];
  #late = 0;

  constructor({ maintenance, newestHeader, upstream, clock, relay }: RangeServiceDeps) {
    this.maintenance = maintenance;
    this.newestHeader = newestHeader;
    this.turns = new TimeSliceQueue(clock);
    this.#upstream = upstream;
    this.#clock = clock;
    this.#relay = relay;
  }

  /** Serves the keys of these resources from their caches. */
  serve(resources: readonly CachedResource[]): void {
    this.#resources = resources.map((resource) => {
      const read = () => resource.storage.get({ key: "\0", at: { match: "ANY" } });
      return [resource, new AccessProbe(read, this.#clock)] as const;
    });
  }

  /** etcd's authentication may have been changed: asks it again before anything is served. */
  accessChanged(): void {
    for (const [, access] of this.#resources) access.forget();
  }

  /** Whether a call may be served from a cache; otherwise it is relayed unread. */
  mayServe(metadata: IncomingHttpHeaders): boolean {
    if (this.#resources.length === 0 || this.newestHeader.header === undefined) return false;
    if (credentials.some((name) => metadata[name] !== undefined)) return false;
    // Compressed requests are etcd's to read.
    return (metadata["grpc-encoding"] ?? "identity") === "identity";
  }

  /** The request with the resource that has all of its keys; undefined: no cache may serve it. */
  cachedRange(request: RangeRequest, metadata: IncomingHttpHeaders): CachedRange | undefined {
    if (request.hasEmptyEnd) return undefined;
    // Only the member knows whether it has a leader; a linearizable read needs one in any case.
    if (request.serializable && metadata["hasleader"] !== undefined) return undefined;
    for (const [resource, access] of this.#resources) {
      const scope = cachedScope(resource.keys, request.key, request.rangeEnd);
      if (scope !== undefined) return { request, resource, scope, access };
    }
    return undefined;
  }

  /**
   * What is passed to etcd of a request by a call that begins now. A member of etcd may be behind the one that a cache
   * follows: a serializable read is passed on as a linearizable one if its client may have seen a newer state than the
   * connection to the member has shown.
   */
  relayedRequest(received: Buffer, request: RangeRequest | undefined): Buffer {
    if (request?.serializable !== true) return received;
    const isBehind = this.newestHeader.mayBeBehind(this.#upstream.available());
    return isBehind ? asLinearizable(received) : received;
  }

  /** Passes a call to etcd. */
  relay(
    path: RangePath,
    call: RelayedCall,
    metadata: IncomingHttpHeaders,
    context: CallContext,
    received: Buffer,
  ): void {
    this.counts.relayed++;
    this.#relay(path, call, metadata, context, received);
  }

  /** Passes a call to etcd that has waited for a cache, which was not new enough in time. Returns false if there are too many of those. */
  relayLate(
    path: RangePath,
    call: RelayedCall,
    metadata: IncomingHttpHeaders,
    context: CallContext,
    received: Buffer,
  ): boolean {
    if (this.#late >= maxLate) return false;
    this.#late++;
    call.onClosed(() => this.#late--);
    this.relay(path, call, metadata, context, received);
    return true;
  }
}
