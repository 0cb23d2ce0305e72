import { xdsTypes } from "../../../src/xds/types.ts";
import {
  type FollowedType,
  idOf,
  partsOf,
  type ResourceId,
  type State,
  type StoredHistory,
} from "./stored-history.ts";

/** What a client asks for of a type. */
export interface Asked {
  readonly all: boolean;
  readonly names: ReadonlySet<string>;
}

/** A resource that a client has received. `version`: empty in the state-of-the-world protocol. */
export interface ViewedResource {
  readonly name: string;
  readonly content: string;
  readonly version: string;
  /** The clusters that it refers to. */
  readonly clusters: readonly string[];
}

/** A response that a client has received. */
export interface ViewedResponse {
  readonly type: FollowedType;
  readonly resources: readonly ViewedResource[];
  readonly removed: readonly string[];
}

/** An assignment without endpoints. */
const noEndpoints = "";

/**
 * What one client has received, over all of its streams, held to the guarantees of xDS. `broken` has what breaks one, and
 * `missing` what it does not have.
 */
export class ClientView {
  readonly broken: string[] = [];
  readonly #history: StoredHistory;
  readonly #isDelta: boolean;
  readonly #asked = new Map<FollowedType, Asked>();
  /** What the client has, also of streams before this one. */
  readonly #has = new Map<ResourceId, ViewedResource>();
  /** That which this stream has sent it, or which it has said to have. */
  readonly #known = new Map<ResourceId, ViewedResource>();
  /** What it has asked for since: an answer is due, whatever it has. */
  readonly #due = new Set<ResourceId>();
  /** Types of which this stream has sent something. */
  readonly #begun = new Set<FollowedType>();
  /** Whether the last response of the state of the world has repeated a resource, as it may. */
  #hasRepeated = false;
  /** The earliest state that is possible by what was received: of a resource, and of all of a type. */
  readonly #places = new Map<ResourceId | FollowedType, number>();

  constructor(history: StoredHistory, isDelta: boolean) {
    this.#history = history;
    this.#isDelta = isDelta;
  }

  /**
   * A stream has begun, in whose first requests the client says to have these resources. By delta it has no others: what it has
   * refused and does not claim is removed without a word.
   */
  opened(claimed: ReadonlyMap<ResourceId, string>): void {
    this.#known.clear();
    this.#due.clear();
    this.#begun.clear();
    for (const id of this.#isDelta ? this.#has.keys() : []) {
      if (!claimed.has(id)) this.#has.delete(id);
    }
    for (const [id, version] of claimed) {
      const resource = this.#has.get(id);
      // It may have refused this one, and claim an older one.
      if (resource !== undefined) this.#known.set(id, { ...resource, version });
    }
  }

  /** The client asks for this from now on. `again`: names that it asks for, or asks for again, or no longer beside all. */
  asks(type: FollowedType, asked: Asked, again: readonly string[]): void {
    this.#asked.set(type, asked);
    for (const name of again) this.#due.add(idOf(type, name));
    // That it asks for less is not answered.
    if (!this.#isDelta && again.length > 0) this.#begun.delete(type);
    for (const id of this.#has.keys()) if (!this.#isAskedFor(id)) this.#forget(id);
  }

  received(response: ViewedResponse): void {
    const { type, removed } = response;
    const before = this.#all(type);
    if (this.#isDelta) this.#receiveDelta(response);
    else this.#receiveState(response);
    const isEmpty = response.resources.length + removed.length === 0;
    const isSame = areSame(before, this.#all(type)) && this.#begun.has(type);
    const mayRepeat = this.#isDelta ? !isEmpty : this.#hasRepeated;
    if (isSame && !mayRepeat) this.#break(`a response of ${type} that says nothing new`);
    this.#begun.add(type);
    this.#checkMixture(type);
    this.#checkReferences();
  }

  /** What is stored now and the client does not have, or the reverse; and what this stream has not answered yet. */
  get missing(): readonly string[] {
    const { last } = this.#history;
    const missing: string[] = this.#unanswered();
    for (const id of new Set([...last.keys(), ...this.#has.keys(), ...this.#named()])) {
      if (!this.#isAskedFor(id)) continue;
      const has = this.#has.get(id)?.content;
      const stored = last.get(id) ?? this.#absent(id);
      // It can't learn that it does not exist.
      const isUnknowable = stored === undefined && !this.#isDelta && !isWhole(partsOf(id)[0]);
      if (has !== stored && !isUnknowable)
        missing.push(`${id}: ${short(has)}, not ${short(stored)}`);
    }
    return missing;
  }

  /** What it has in another version than was written. */
  get wrongVersions(): readonly string[] {
    const wrong: string[] = [];
    for (const [id, { content, version }] of this.#isDelta ? this.#has : []) {
      const isStored = partsOf(id)[0] !== "eds";
      if (isStored && version !== this.#history.versionOf(content)) wrong.push(`${id}@${version}`);
    }
    return wrong;
  }

  /** The versions of what it has of a type. */
  versions(type: FollowedType): ReadonlyMap<string, string> {
    return new Map([...this.#all(type).values()].map(({ name, version }) => [name, version]));
  }

  /**
   * The types that a state-of-the-world stream has to say something of, and has not: of clusters and listeners in any case, of others
   * if what was asked for since exists.
   */
  #unanswered(): string[] {
    if (this.#isDelta) return [];
    const { last } = this.#history;
    const isStored = (id: ResourceId): boolean => (last.get(id) ?? this.#absent(id)) !== undefined;
    const isDue = (type: FollowedType): boolean =>
      isWhole(type)
        ? !this.#begun.has(type)
        : this.#named().some((id) => partsOf(id)[0] === type && this.#due.has(id) && isStored(id));
    return [...this.#asked.keys()].filter(isDue);
  }

  #receiveDelta({ type, resources, removed }: ViewedResponse): void {
    for (const resource of resources) {
      const id = idOf(type, resource.name);
      const isDue = this.#due.delete(id);
      if (!this.#isAskedFor(id)) continue;
      if (this.#known.get(id)?.version === resource.version && !isDue) {
        this.#break(`${id} in version ${resource.version} again`);
      }
      this.#put(id, resource);
    }
    for (const name of removed) {
      const id = idOf(type, name);
      const isDue = this.#due.delete(id);
      if (!this.#isAskedFor(id)) continue;
      if (!this.#known.has(id) && !isDue) this.#break(`${id} is removed, and was not there`);
      this.#remove(id);
    }
  }

  #receiveState({ type, resources }: ViewedResponse): void {
    this.#hasRepeated = false;
    const received = new Set<ResourceId>();
    for (const resource of resources) {
      const id = idOf(type, resource.name);
      received.add(id);
      if (!this.#isAskedFor(id)) continue;
      const isDue = this.#due.delete(id);
      const isSame = this.#known.get(id)?.content === resource.content;
      if (isSame && !isWhole(type)) {
        if (isDue || this.#isAgain(id, resource.content)) this.#hasRepeated = true;
        else this.#break(`${id} again`);
      }
      this.#put(id, resource);
    }
    if (!isWhole(type)) return;
    for (const name of this.#all(type).keys()) {
      const id = idOf(type, name);
      if (!received.has(id)) this.#remove(id);
    }
  }

  #put(id: ResourceId, resource: ViewedResource): void {
    const { content } = resource;
    this.#forward(id, content, `${short(content)} of ${id} comes after what is newer`);
    this.#has.set(id, resource);
    this.#known.set(id, resource);
  }

  #remove(id: ResourceId): void {
    this.#forward(id, undefined, `${id} is removed, but exists`);
    this.#forget(id);
  }

  #forget(id: ResourceId): void {
    this.#has.delete(id);
    this.#known.delete(id);
  }

  /**
   * Whether a resource was another, or none, and then this one again, behind what was received before: a state-of-the-world client
   * of all does not learn that a service has no instances left, and then gets the same ones again.
   */
  #isAgain(id: ResourceId, content: string): boolean {
    const contentIn = (state: State): string | undefined => state.get(id) ?? this.#absent(id);
    const place = this.#places.get(id) ?? 0;
    const other = this.#history.find(place, (state) => contentIn(state) !== content);
    if (other === undefined) return false;
    const again = this.#history.find(other, (state) => contentIn(state) === content);
    if (again === undefined) return false;
    this.#places.set(id, again);
    return true;
  }

  /** There has to be a state with this content behind those of what was received before. */
  #forward(id: ResourceId, content: string | undefined, text: string): void {
    const place = this.#history.find(this.#places.get(id) ?? 0, (state) => {
      return (state.get(id) ?? this.#absent(id)) === content;
    });
    if (place === undefined) this.#break(text);
    else this.#places.set(id, place);
  }

  /**
   * What a client of all has of a type was stored so at one time, and later than what it had before. Clusters that are
   * removed may still be there.
   */
  #checkMixture(type: FollowedType): void {
    const asked = this.#asked.get(type);
    if (asked?.all !== true || asked.names.size > 0 || !this.#begun.has(type)) return;
    if (!this.#isDelta && !isWhole(type)) return;
    const all = [...this.#all(type)];
    const place = this.#history.find(this.#places.get(type) ?? 0, (state) => {
      const stored = namesOf(state, type);
      const has = type === "cds" ? all.filter(([name]) => stored.has(name)) : all;
      return (
        has.length === stored.size &&
        has.every(([name, { content }]) => stored.get(name) === content)
      );
    });
    const had = all.map(([name, { content }]) => `${name}=${short(content)}`).join();
    if (place === undefined) this.#break(`all of ${type} were never ${had}`);
    else this.#places.set(type, place);
  }

  /**
   * The clusters of each route are there, as they were in each state of the store. In the state-of-the-world protocol a client
   * does not learn that a route is removed.
   */
  #checkReferences(): void {
    if (this.#asked.get("cds")?.all !== true) return;
    if (!this.#begun.has("cds") || !this.#begun.has("rds")) return;
    const clusters = this.#all("cds");
    for (const { name, clusters: referred } of this.#all("rds").values()) {
      const id = idOf("rds", name);
      const isGone = (state: State): boolean => !state.has(id);
      const place = this.#places.get(id) ?? 0;
      if (!this.#isDelta && this.#history.find(place, isGone) !== undefined) continue;
      for (const cluster of referred) {
        if (!clusters.has(cluster))
          this.#break(`route ${name} is to ${cluster}, which is not there`);
      }
    }
  }

  #all(type: FollowedType): Map<string, ViewedResource> {
    const all = new Map<string, ViewedResource>();
    for (const [id, resource] of this.#has) {
      if (partsOf(id)[0] === type) all.set(resource.name, resource);
    }
    return all;
  }

  #isAskedFor(id: ResourceId): boolean {
    const [type, name] = partsOf(id);
    const asked = this.#asked.get(type);
    return asked !== undefined && (asked.all || asked.names.has(name));
  }

  /** What a client has of a resource that does not exist. */
  #absent(id: ResourceId): string | undefined {
    const [type, name] = partsOf(id);
    return type === "eds" && this.#asked.get(type)?.names.has(name) ? noEndpoints : undefined;
  }

  #named(): ResourceId[] {
    return [...this.#asked].flatMap(([type, { names }]) =>
      [...names].map((name) => idOf(type, name)),
    );
  }

  #break(text: string): void {
    this.broken.push(text);
  }
}

function isWhole(type: FollowedType): boolean {
  return xdsTypes.find(({ name }) => name === type)?.isWhole === true;
}

function namesOf(state: State, type: FollowedType): Map<string, string> {
  const names = new Map<string, string>();
  for (const [id, content] of state) {
    const [of, name] = partsOf(id);
    if (of === type) names.set(name, content);
  }
  return names;
}

function areSame(
  one: ReadonlyMap<string, ViewedResource>,
  other: ReadonlyMap<string, ViewedResource>,
): boolean {
  const contents = (all: typeof one) =>
    JSON.stringify([...all].map(([n, r]) => [n, r.content]).sort());
  return contents(one) === contents(other);
}

/** For messages: what is stored has its number at its end. */
function short(content: string | undefined): string {
  return content === undefined ? "nothing" : JSON.stringify(content.slice(-40));
}
