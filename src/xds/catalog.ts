import type { Clock } from "../base/clock.ts";
import { runInTimeSlices, type TimeSlicedWork } from "../base/event-loop-turns.ts";
import { Fifo } from "../base/fifo.ts";
import { type Sequence, type XdsResource, XdsResponse } from "./response.ts";
import type { XdsType } from "./types.ts";

/** Maximum number of changed names in the commits that are kept for clients that are behind. */
const maxLoggedNames = 20_000;

/** Maximum number of resources that are kept of those that were made for names without one. Others are made again. */
const maxAbsent = 1_000;

/** Number of followers that are notified between two yields. */
const followersPerStep = 16;

/** What follows resources of a type, for one stream. */
export interface Follower {
  /** A resource that it follows by name has changed. */
  changed(name: string): void;
  /** There may be something to send. */
  notify(): void;
}

/**
 * A name that a commit has changed, and the version before; undefined: there was no resource. The resource itself is not kept:
 * assignments may be large, and a client gets the current one.
 */
type Replaced = readonly [name: string, version: string | undefined];

/** What changes since a commit, by name; undefined: it was removed. */
export type Changes = Map<string, XdsResource | undefined>;

/** What a catalog needs. */
export interface CatalogOptions {
  readonly type: XdsType;
  readonly clock: Clock;
  readonly sequence: Sequence;
  /** Makes what clients get for a name that has no resource. Absent: it does not exist for them. */
  readonly makeAbsent?: (name: string, revision: number) => XdsResource;
}

/**
 * The current resources of one type, and what follows them. Commits replace some of them; each has a generation, and a
 * follower of all remembers the last one that it has sent.
 */
export class Catalog {
  readonly type: XdsType;
  readonly #clock: Clock;
  readonly #sequence: Sequence;
  readonly #makeAbsent: CatalogOptions["makeAbsent"];
  readonly #resources = new Map<string, XdsResource>();
  /** What was made for followed names without a resource, the oldest first. */
  readonly #absent = new Map<string, XdsResource>();
  readonly #byName = new Map<string, Set<Follower>>();
  readonly #ofAll = new Set<Follower>();
  /** The last commits, the oldest first, and the number of their names. */
  readonly #log = new Fifo<readonly Replaced[]>();
  #loggedNames = 0;
  #last: { readonly response: XdsResponse; readonly generation: number } | undefined;
  #all: { readonly response: XdsResponse; readonly generation: number } | undefined;
  #generation = 0;
  #lastBytes = 0;
  #revision = 0;
  #isSynced = false;

  constructor({ type, clock, sequence, makeAbsent }: CatalogOptions) {
    this.type = type;
    this.#clock = clock;
    this.#sequence = sequence;
    this.#makeAbsent = makeAbsent;
  }

  /** Whether it has had the whole state once. Before that it says nothing about what exists. */
  get isSynced(): boolean {
    return this.#isSynced;
  }

  /** The number of the last commit. */
  get generation(): number {
    return this.#generation;
  }

  /** Size of the resources of the last commit, in bytes. */
  get lastBytes(): number {
    return this.#lastBytes;
  }

  /** The revision of the store at the last commit. */
  get revision(): number {
    return this.#revision;
  }

  get resources(): ReadonlyMap<string, XdsResource> {
    return this.#resources;
  }

  /** Number of followed names, and of followers of all. */
  get followed(): { readonly names: number; readonly ofAll: number } {
    return { names: this.#byName.size, ofAll: this.#ofAll.size };
  }

  /** The resource that clients get for a followed name; undefined: it does not exist. */
  get(name: string): XdsResource | undefined {
    const resource = this.#resources.get(name) ?? this.#absent.get(name);
    if (resource !== undefined || this.#makeAbsent === undefined || !this.#byName.has(name)) {
      return resource;
    }
    const made = this.#makeAbsent(name, this.#revision);
    this.#absent.set(name, made);
    const [oldest] = this.#absent.keys();
    if (this.#absent.size > maxAbsent && oldest !== undefined) this.#absent.delete(oldest);
    return made;
  }

  follow(name: string, follower: Follower): void {
    const followers = this.#byName.get(name);
    if (followers === undefined) this.#byName.set(name, new Set([follower]));
    else followers.add(follower);
  }

  /** Idempotent. */
  unfollow(name: string, follower: Follower): void {
    const followers = this.#byName.get(name);
    if (followers?.delete(follower) !== true || followers.size > 0) return;
    this.#byName.delete(name);
    this.#absent.delete(name);
  }

  followAll(follower: Follower): void {
    this.#ofAll.add(follower);
  }

  /** Idempotent. */
  unfollowAll(follower: Follower): void {
    this.#ofAll.delete(follower);
  }

  /**
   * Replaces resources, and removes others. The first commit of all has the whole state, which may be empty. Returns what
   * resolves once each follower knows; undefined: nothing has changed.
   */
  commit(
    resources: readonly XdsResource[],
    removed: readonly string[],
    revision: number,
  ): Promise<void> | undefined {
    this.#revision = Math.max(this.#revision, revision);
    const isFirst = !this.#isSynced;
    this.#isSynced = true;
    const changed = [...resources.map(({ name }) => name), ...removed];
    if (changed.length === 0 && !isFirst) return undefined;
    this.#log.push(changed.map((name) => [name, this.#resources.get(name)?.version]));
    for (const resource of resources) {
      this.#resources.set(resource.name, resource);
      this.#absent.delete(resource.name);
    }
    for (const name of removed) this.#resources.delete(name);
    this.#lastBytes = resources.reduce((bytes, { any }) => bytes + any.byteLength, 0);
    this.#generation++;
    this.#loggedNames += changed.length;
    while (this.#loggedNames > maxLoggedNames && this.#log.length > 1) {
      this.#loggedNames -= this.#log.shift()?.length ?? 0;
    }
    // All followers have waited for the first state.
    const names = isFirst ? [...this.#byName.keys()] : changed;
    return new Promise((resolve) => {
      runInTimeSlices(this.#clock, this.#notify(names, resolve));
    });
  }

  /**
   * What differs from the state after the commit with this generation, whatever was between; undefined: that is not known any
   * more, and neither is what was removed.
   */
  changesSince(generation: number): Changes | undefined {
    // The generations of the log follow one another.
    const missing = this.#generation - generation;
    if (missing > this.#log.length) return undefined;
    const before = new Map<string, string | undefined>();
    for (let at = this.#log.length - missing; at < this.#log.length; at++) {
      for (const [name, version] of this.#log.at(at) ?? []) {
        if (!before.has(name)) before.set(name, version);
      }
    }
    const changes: Changes = new Map();
    for (const [name, version] of before) {
      const resource = this.#resources.get(name);
      if (resource?.version !== version) changes.set(name, resource);
    }
    return changes;
  }

  /** Whether nothing that has changed after the commit with this generation exists. False if that is not known any more. */
  hasOnlyRemovedSince(generation: number): boolean {
    const missing = this.#generation - generation;
    if (missing > this.#log.length) return false;
    for (let at = this.#log.length - missing; at < this.#log.length; at++) {
      for (const [name] of this.#log.at(at) ?? []) if (this.#resources.has(name)) return false;
    }
    return true;
  }

  /** The response with the last commit, which most followers of all get. */
  lastCommit(): XdsResponse | undefined {
    if (this.#last?.generation !== this.#generation) {
      const changes = this.changesSince(this.#generation - 1);
      if (changes === undefined) return undefined;
      this.#last = { response: this.responseOf(changes), generation: this.#generation };
    }
    return this.#last.response;
  }

  /** The response with all resources. */
  whole(): XdsResponse {
    if (this.#all?.generation !== this.#generation) {
      const response = this.respond([...this.#resources.values()], []);
      this.#all = { response, generation: this.#generation };
    }
    return this.#all.response;
  }

  responseOf(changes: Changes): XdsResponse {
    const resources: XdsResource[] = [];
    const removed: string[] = [];
    for (const [name, resource] of changes) {
      if (resource === undefined) removed.push(name);
      else resources.push(resource);
    }
    return this.respond(resources, removed);
  }

  /** A response of its own. */
  respond(resources: readonly XdsResource[], removed: readonly string[]): XdsResponse {
    const facts = [this.type, this.#revision, this.#sequence.next()] as const;
    return new XdsResponse(facts, resources, removed);
  }

  /** Marks what has changed for each follower, then notifies it, so that it sends all of that together. */
  *#notify(names: readonly string[], onDone: () => void): TimeSlicedWork<void> {
    const affected = new Set<Follower>();
    let steps = 0;
    for (const name of names) {
      for (const follower of this.#byName.get(name) ?? []) {
        follower.changed(name);
        if (names.length === 1) follower.notify();
        else affected.add(follower);
        if (++steps % followersPerStep === 0) yield;
      }
    }
    for (const followers of [affected, this.#ofAll]) {
      for (const follower of followers) {
        follower.notify();
        if (++steps % followersPerStep === 0) yield;
      }
    }
    onDone();
  }
}
