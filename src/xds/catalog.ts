import type { Clock } from "../base/clock.ts";
import { dropOldest } from "../base/drop-oldest.ts";
import { runInTimeSlices, type TimeSlicedWork } from "../base/event-loop-turns.ts";
import { Fifo } from "../base/fifo.ts";
import { type ResourceContent, XdsResource, XdsResponse } from "./response.ts";
import { wildcard, type XdsType } from "./types.ts";

/** Maximum number of changed names that are kept for clients that are behind. Those of the last commit are, in any case. */
const maxLogged = 20_000;

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
 * A name that a commit has changed, and its version before; undefined: there was no resource. The resource itself is not kept:
 * assignments may be large, and a client gets the current one.
 */
interface Replaced {
  readonly generation: number;
  readonly name: string;
  readonly version: string | undefined;
}

/** What differs from the state after a commit. */
export interface Changes {
  readonly response: XdsResponse;
  /** The version before of each name in it; undefined: there was no resource. */
  readonly before: ReadonlyMap<string, string | undefined>;
}

/**
 * The current resources of one type, and what follows them. Commits replace some of them; each has a generation, and a
 * follower of all remembers the last one that it has sent.
 */
export class Catalog {
  readonly type: XdsType;
  readonly #clock: Clock;
  readonly #contentOfAbsent: ((name: string) => ResourceContent) | undefined;
  readonly #resources = new Map<string, XdsResource>();
  /** What was made for followed names without a resource, the oldest first. */
  readonly #absent = new Map<string, XdsResource>();
  /** What follows each name, and, by the wildcard, all. */
  readonly #followers = new Map<string, Set<Follower>>();
  /** What the last commits have changed, the oldest first, and the last generation of which that is not known any more. */
  readonly #log = new Fifo<Replaced>();
  #forgotten = 0;
  /** What most followers of all get: what the last commit has changed, and all resources. */
  #last: Changes | undefined;
  #whole: XdsResponse | undefined;
  #generation = 0;
  #revision = 0;
  /** The number of the last resource or response, which is its nonce. */
  #number = 0;

  /** `contentOfAbsent`: what clients get for a name that has no resource; absent: it does not exist for them. */
  constructor(type: XdsType, clock: Clock, contentOfAbsent?: (name: string) => ResourceContent) {
    this.type = type;
    this.#clock = clock;
    this.#contentOfAbsent = contentOfAbsent;
  }

  /** Whether it has had the whole state once. Before that it says nothing about what exists. */
  get isSynced(): boolean {
    return this.#generation > 0;
  }

  /** The number of the last commit. */
  get generation(): number {
    return this.#generation;
  }

  get resources(): ReadonlyMap<string, XdsResource> {
    return this.#resources;
  }

  /** The resource that clients get for a followed name; undefined: it does not exist. */
  get(name: string): XdsResource | undefined {
    const resource = this.#resources.get(name) ?? this.#absent.get(name);
    if (resource !== undefined || !this.#followers.has(name)) return resource;
    const content = this.#contentOfAbsent?.(name);
    if (content === undefined) return undefined;
    const made = this.make(name, content, this.#revision);
    this.#absent.set(name, made);
    dropOldest(this.#absent, maxAbsent);
    return made;
  }

  /** Makes a resource, which is current once it is committed. */
  make(name: string, content: ResourceContent, revision: number): XdsResource {
    return new XdsResource(this.type, name, content, { revision, number: ++this.#number });
  }

  /** `name`: the wildcard for all. */
  follow(name: string, follower: Follower): void {
    const followers = this.#followers.get(name);
    if (followers === undefined) this.#followers.set(name, new Set([follower]));
    else followers.add(follower);
  }

  /** Idempotent. */
  unfollow(name: string, follower: Follower): void {
    const followers = this.#followers.get(name);
    if (followers?.delete(follower) !== true || followers.size > 0) return;
    this.#followers.delete(name);
    this.#absent.delete(name);
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
    const isFirst = !this.isSynced;
    const changed = [...resources.map(({ name }) => name), ...removed];
    if (changed.length === 0 && !isFirst) return undefined;
    const generation = ++this.#generation;
    for (const name of changed) {
      this.#log.push({ generation, name, version: this.#resources.get(name)?.version });
    }
    while (this.#log.length > Math.max(maxLogged, changed.length)) {
      this.#forgotten = this.#log.shift()?.generation ?? 0;
    }
    for (const resource of resources) {
      this.#resources.set(resource.name, resource);
      this.#absent.delete(resource.name);
    }
    for (const name of removed) this.#resources.delete(name);
    this.#last = undefined;
    this.#whole = undefined;
    // All followers have waited for the first state.
    const names = isFirst ? [...this.#followers.keys()] : changed;
    return new Promise((resolve) => {
      runInTimeSlices(this.#clock, this.#notify(names, resolve));
    });
  }

  /**
   * What differs from the state after the commit with this generation, whatever was between; undefined: that is not known any
   * more, and neither is what was removed.
   */
  changesSince(generation: number): Changes | undefined {
    if (generation < this.#forgotten) return undefined;
    const isLast = generation === this.#generation - 1;
    if (isLast && this.#last !== undefined) return this.#last;
    const before = new Map<string, string | undefined>();
    for (let at = this.#placeBehind(generation); at < this.#log.length; at++) {
      const { name = "", version } = this.#log.at(at) ?? {};
      if (!before.has(name)) before.set(name, version);
    }
    const resources: XdsResource[] = [];
    const removed: string[] = [];
    for (const [name, version] of before) {
      const resource = this.#resources.get(name);
      if (resource?.version === version) before.delete(name);
      else if (resource === undefined) removed.push(name);
      else resources.push(resource);
    }
    const changes = { response: this.respond(resources, removed), before };
    if (isLast) this.#last = changes;
    return changes;
  }

  /** Whether nothing that has changed after the commit with this generation exists. False if that is not known any more. */
  hasOnlyRemovedSince(generation: number): boolean {
    if (generation < this.#forgotten) return false;
    for (let at = this.#placeBehind(generation); at < this.#log.length; at++) {
      if (this.#resources.has(this.#log.at(at)?.name ?? "")) return false;
    }
    return true;
  }

  /** The response with all resources. */
  whole(): XdsResponse {
    this.#whole ??= this.respond([...this.#resources.values()], []);
    return this.#whole;
  }

  /** A response of its own. */
  respond(resources: readonly XdsResource[], removed: readonly string[]): XdsResponse {
    const facts = { revision: this.#revision, number: ++this.#number };
    return new XdsResponse(this.type, facts, resources, removed);
  }

  /** The place in the log of the first change behind a commit. */
  #placeBehind(generation: number): number {
    let place = this.#log.length;
    while (place > 0 && (this.#log.at(place - 1)?.generation ?? 0) > generation) place--;
    return place;
  }

  /** Marks what has changed for each follower, then notifies it, so that it sends all of that together. */
  *#notify(names: readonly string[], onDone: () => void): TimeSlicedWork<void> {
    const affected = new Set<Follower>();
    let steps = 0;
    for (const name of names) {
      for (const follower of this.#followers.get(name) ?? []) {
        follower.changed(name);
        if (names.length === 1) follower.notify();
        else affected.add(follower);
        if (++steps % followersPerStep === 0) yield;
      }
    }
    for (const followers of [affected, this.#followers.get(wildcard) ?? []]) {
      for (const follower of followers) {
        follower.notify();
        if (++steps % followersPerStep === 0) yield;
      }
    }
    onDone();
  }
}
