import type { IncomingHttpHeaders } from "node:http2";
import type { Clock } from "../../base/clock.ts";
import { type Reason, upstreamUnavailable } from "../../base/errors.ts";
import { SingleFlight } from "../../base/single-flight.ts";
import type { Cacher } from "../../cacher/cacher.ts";
import type { CreateRequest } from "../../etcd/wire/watch-request.ts";
import { type CachedKeys, cachedScope } from "../../storage/etcd/covering-scope.ts";
import type { EtcdStorage } from "../../storage/etcd/etcd-storage.ts";
import type { WatchScope } from "../../storage/storage.ts";
import type { NewestHeader } from "./newest-header.ts";

/** How long a read that etcd allowed stands for others, in milliseconds. */
const accessConfirmedMs = 1_000;

/** A resource whose keys are served from its cache. */
export interface CachedResource {
  readonly name: string;
  readonly keys: CachedKeys;
  /** Has raw keys as well. */
  readonly cacher: Cacher;
  /** etcd, as this process reads it. */
  readonly storage: Pick<EtcdStorage, "get" | "isAvailable" | "currentRevisionWith">;
}

/** What a call is served from: a resource that has all keys of its range. */
export interface CachedRange {
  readonly resource: CachedResource;
  readonly scope: WatchScope;
  /**
   * The revision that etcd has compacted, if a watch begins there: etcd reads previous values from the state before a
   * revision, so those of this one are missing. Undefined: it has those of all events.
   */
  readonly compacted?: number;
}

/** What etcd is asked of a resource before its cache answers in its place. */
interface Probes {
  readonly access: AccessProbe;
  readonly compactions: CompactionProbe;
}

/** The resources that are served from caches, and what etcd has to be asked before. */
export class CachedResources {
  readonly #clock: Clock;
  readonly #newestHeader: NewestHeader;
  /** Whether other processes serve the same address, all of which reach etcd through the same one. */
  readonly hasSiblings: boolean;
  #resources: ReadonlyMap<CachedResource, Probes> = new Map();
  #isOpen = true;
  #accessChanges = 0;

  constructor(clock: Clock, newestHeader: NewestHeader, hasSiblings: boolean = false) {
    this.#clock = clock;
    this.#newestHeader = newestHeader;
    this.hasSiblings = hasSiblings;
  }

  /**
   * Serves the keys of these resources, in the calls that begin from now on. `isOpen`: clients without a credential may have
   * what the caches have, as they were filled without a user.
   */
  serve(resources: readonly CachedResource[], isOpen: boolean = true): void {
    this.#isOpen = isOpen;
    this.#resources = new Map(
      resources.map((resource) => {
        const { storage } = resource;
        const read = async (): Promise<void> => {
          const { revision } = await storage.get({ key: "\0", at: { match: "ANY" } });
          // What all of them have said came through there.
          if (this.hasSiblings) this.#newestHeader.raise(revision);
        };
        const access = new AccessProbe(read, this.#clock, this.hasSiblings);
        const isAvailable = (revision: number) => storage.isAvailable(revision);
        return [resource, { access, compactions: new CompactionProbe(isAvailable, this.#clock) }];
      }),
    );
  }

  [Symbol.iterator](): IterableIterator<CachedResource> {
    return this.#resources.keys();
  }

  /** Whether clients without a credential may have what the caches have. */
  get isOpen(): boolean {
    return this.#isOpen;
  }

  /** Number of times that etcd's authentication may have been changed: what was confirmed before may not hold any more. */
  get accessChanges(): number {
    return this.#accessChanges;
  }

  /** Whether a call with this metadata may be served from a cache, as far as that shows. */
  mayServe(metadata: IncomingHttpHeaders): boolean {
    if (this.#resources.size === 0) return false;
    // Compressed requests are etcd's to read.
    return (metadata["grpc-encoding"] ?? "identity") === "identity";
  }

  /** The resource that has all keys of a range, except one that the client leaves out; undefined: none has. */
  rangeOf(key: Buffer, rangeEnd: Buffer, leftOut?: Buffer): CachedRange | undefined {
    for (const resource of this.#resources.keys()) {
      const scope = cachedScope(resource.keys, key, rangeEnd, leftOut);
      if (scope !== undefined) return { resource, scope };
    }
    return undefined;
  }

  /** etcd's authentication may have been changed: asks it again before anything is served. */
  accessChanged(): void {
    this.#accessChanges++;
    for (const { access } of this.#resources.values()) access.forget();
  }

  /** etcd may have compacted more. */
  compacted(): void {
    for (const { compactions } of this.#resources.values()) compactions.forget();
  }

  /**
   * Undefined: etcd has lately allowed clients without a credential to read this resource. Otherwise rejects if it does not now.
   * With siblings `NewestHeader` then has what any of them had said when the request arrived.
   */
  confirmAccess(
    resource: CachedResource,
    arrivedAt: number = this.#clock.now(),
  ): Promise<void> | undefined {
    const probes = this.#resources.get(resource);
    if (probes !== undefined) return probes.access.confirm(arrivedAt);
    return Promise.reject(upstreamUnavailable("The resource is no longer served from a cache."));
  }

  /**
   * What etcd has to be asked before a cache may serve a watch of this range. Undefined: nothing. Otherwise resolves to the
   * range; to undefined if etcd has to serve it. `isPermitted`: the client's right to the range is checked otherwise.
   * `arrivedAt`: the request arrived no later than then. Default: now.
   */
  confirmWatch(
    range: CachedRange,
    request: CreateRequest,
    isPermitted: boolean,
    arrivedAt?: number,
  ): Promise<CachedRange | undefined> | undefined {
    const access = isPermitted ? undefined : this.confirmAccess(range.resource, arrivedAt);
    const events = this.#confirmEvents(range, request);
    if (access === undefined) return events;
    const isAllowed = access.then(
      () => true,
      () => false,
    );
    return Promise.all([isAllowed, events ?? range]).then(([isOpen, confirmed]) =>
      isOpen ? confirmed : undefined,
    );
  }

  /**
   * Resolves to the range if etcd has the events from the start revision on, and says whether it has what was before that.
   * If etcd can't be asked, the cache stands in for it.
   */
  #confirmEvents(
    range: CachedRange,
    { startRevision, withPrevious }: CreateRequest,
  ): Promise<CachedRange | undefined> | undefined {
    const { ready, revision, upstreamFailure } = range.resource.cacher;
    // Clients may know of more than the cache has.
    const isPast =
      startRevision > 0 && startRevision <= Math.max(revision, this.#newestHeader.floor);
    const compactions = this.#resources.get(range.resource)?.compactions;
    if (!isPast || !ready || upstreamFailure !== undefined) return undefined;
    const first = withPrevious ? Math.max(1, startRevision - 1) : startRevision;
    return compactions
      ?.confirm(first)
      ?.then(async (isAvailable) => {
        if (isAvailable) return range;
        const hasEvents = first < startRevision && (await compactions.confirm(startRevision));
        return hasEvents === false ? undefined : { ...range, compacted: startRevision };
      })
      .catch(() => range);
  }
}

/** Whether a call has the credential of a user of etcd, whose rights are etcd's to check. */
export function hasCredential(metadata: IncomingHttpHeaders): boolean {
  return metadata["token"] !== undefined || metadata["authorization"] !== undefined;
}

/** Failures to follow etcd that are etcd's answers. After others etcd may be away, or its state is listed next. */
const refusalReasons: readonly Reason[] = ["UPSTREAM_DENIED", "INVALID_REQUEST", "INTERNAL"];

/**
 * Whether the cache gets from etcd, which answers, nothing of what it needs, such as since etcd's authentication was
 * switched on: its watches would be silent.
 */
export function isRefused({ cacher: { upstreamFailure } }: CachedResource): boolean {
  return upstreamFailure !== undefined && refusalReasons.includes(upstreamFailure.reason);
}

/**
 * Knows whether this process may read etcd without a user, as clients without a token may then read the cache: etcd would
 * give both the same. With authentication it refuses both.
 */
class AccessProbe {
  readonly #read: () => Promise<void>;
  readonly #clock: Clock;
  /** Present if each caller needs a read that begins after its request has arrived. */
  readonly #each: SingleFlight<void> | undefined;
  #confirmedAt = -Infinity;
  /** The read in progress, which callers share. */
  #pending: Promise<void> | undefined;

  /** `read` reads a key of etcd, and rejects if etcd refuses that. */
  constructor(read: () => Promise<void>, clock: Clock, readsForEach: boolean) {
    this.#read = read;
    this.#clock = clock;
    this.#each = readsForEach ? new SingleFlight(() => this.#ask(), clock) : undefined;
  }

  /**
   * Undefined: etcd has allowed a read in the last second. Otherwise rejects if etcd does not allow one now. `arrivedAt`: when
   * the caller's request had arrived.
   */
  confirm(arrivedAt: number): Promise<void> | undefined {
    const isRecent = this.#clock.now() - this.#confirmedAt < accessConfirmedMs;
    // A client creates many watches at once, and what it has sent before a read needs no other.
    const suffices = this.#each === undefined || arrivedAt < this.#confirmedAt;
    if (isRecent && suffices) return undefined;
    return this.#each?.run() ?? this.#pending ?? this.#ask();
  }

  /** etcd's authentication may have been changed. */
  forget(): void {
    this.#confirmedAt = -Infinity;
    this.#pending = undefined;
  }

  #ask(): Promise<void> {
    const since = this.#clock.now();
    const pending = this.#read()
      .then(() => {
        if (this.#pending === pending) this.#confirmedAt = since;
      })
      .finally(() => {
        if (this.#pending === pending) this.#pending = undefined;
      });
    this.#pending = pending;
    return pending;
  }
}

/** How long an answer of etcd stands for others, in milliseconds. */
const eventsConfirmedMs = 100;

interface Question {
  readonly revision: number;
  /** When it was asked, in the clock's milliseconds. */
  readonly since: number;
  readonly answer: Promise<boolean>;
}

/**
 * Knows whether etcd still has the events from a revision on: what it has compacted must not be served from a cache that
 * still has them, as a client that knows of the compaction would see that it does not speak to etcd.
 */
export class CompactionProbe {
  readonly #isAvailable: (revision: number) => Promise<boolean>;
  readonly #clock: Clock;
  /** The lowest revision that etcd is known to have had at `#confirmedAt`. */
  #available = Infinity;
  #confirmedAt = -Infinity;
  /** The last question to etcd, for callers with a revision that is no lower. */
  #pending: Question | undefined;

  /** `isAvailable` asks etcd whether it has a revision, and rejects if etcd does not answer. */
  constructor(isAvailable: (revision: number) => Promise<boolean>, clock: Clock) {
    this.#isAvailable = isAvailable;
    this.#clock = clock;
  }

  /**
   * Undefined: etcd has a past revision, or had it a moment ago. Otherwise resolves to whether it has. Rejects if etcd does
   * not answer.
   */
  confirm(revision: number): Promise<boolean> | undefined {
    const now = this.#clock.now();
    if (now - this.#confirmedAt < eventsConfirmedMs && revision >= this.#available)
      return undefined;
    const pending = this.#pending;
    if (
      pending === undefined ||
      revision < pending.revision ||
      now - pending.since > eventsConfirmedMs
    ) {
      return this.#ask(revision);
    }
    return pending.answer.then((isAvailable) => isAvailable || (this.confirm(revision) ?? true));
  }

  /** etcd may have compacted more. */
  forget(): void {
    this.#pending = undefined;
    this.#confirmedAt = -Infinity;
  }

  #ask(revision: number): Promise<boolean> {
    const since = this.#clock.now();
    const answer = this.#isAvailable(revision).then((isAvailable) => {
      if (this.#pending !== question) return isAvailable;
      this.#pending = undefined;
      if (isAvailable) {
        this.#available = revision;
        this.#confirmedAt = since;
      }
      return isAvailable;
    });
    const question: Question = { revision, since, answer };
    this.#pending = question;
    return answer;
  }
}
