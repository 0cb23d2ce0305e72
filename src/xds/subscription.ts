import type { Catalog, Changes, Follower } from "./catalog.ts";
import type { DiscoveryRequest } from "./request.ts";
import type { XdsResource, XdsResponse } from "./response.ts";
import { wildcard } from "./types.ts";

/**
 * What the client has for a name: a resource; the version that it says to have; null: it knows that the resource does not exist; undefined:
 * nothing that is known.
 */
type Sent = XdsResource | string | null | undefined;

/** What a request changes about what a stream asks for. */
export interface Change {
  readonly added: readonly string[];
  readonly removed: readonly string[];
  /** Whether it asks for all from now on; undefined: as before. */
  readonly all: boolean | undefined;
}

/** What a subscription needs of its stream. */
interface SubscriptionOwner {
  readonly isDelta: boolean;
  /** There may be something to send. */
  pump(): void;
}

/** Maximum number of resources in a response to names: further ones follow in the next. */
const maxNamed = 1_000;

/** Estimated memory of a name that a stream asks for, beside its text, in bytes. */
const bytesPerName = 160;

const nothing: readonly never[] = [];
const noVersions: ReadonlyMap<string, string> = new Map();

/** What one stream asks for of one type, and what of that its client has. */
export class XdsSubscription implements Follower {
  readonly catalog: Catalog;
  readonly #stream: SubscriptionOwner;
  /** The names that it asks for, with what the client has. */
  readonly #names = new Map<string, Sent>();
  /** Those of them that may have to be sent. */
  readonly #dirty = new Set<string>();
  #nameCharacters = 0;
  /** Whether it asks for all; and whether that is since it has named nothing. */
  #isOfAll = false;
  #isLegacy = false;
  /** Whether there was a request. */
  #hasBegun = false;
  /** The last commit that the client has, of all. */
  #generation = 0;
  /** Whether a response is due even if it says nothing. */
  #mustRespond = false;
  /** Names that it has asked for beside all, and does not any more: the client has to learn whether they exist. */
  #released: string[] | undefined;
  /** The versions that the client says to have of all; undefined: that was dealt with. */
  #versions: ReadonlyMap<string, string> | undefined;
  /** The response that was sent last, and whether the client has confirmed or refused it. */
  sent: XdsResponse | undefined;
  isConfirmed = true;

  constructor(catalog: Catalog, stream: SubscriptionOwner) {
    this.catalog = catalog;
    this.#stream = stream;
  }

  get names(): Iterable<string> {
    return this.#names.keys();
  }

  /** Number of names. */
  get size(): number {
    return this.#names.size;
  }

  /** Memory that its names, and the versions that it has not dealt with, take, in bytes, estimated. */
  get retainedBytes(): number {
    return this.#nameCharacters + (this.size + (this.#versions?.size ?? 0)) * bytesPerName;
  }

  get isOfAll(): boolean {
    return this.#isOfAll;
  }

  /** What a request asks for beyond what was asked for before. Undefined: it changes nothing. */
  changeBy(request: DiscoveryRequest): Change | undefined {
    return this.#stream.isDelta ? this.#deltaChange(request) : this.#stateChange(request);
  }

  /** Applies a change. `versions`: those that the client has, which counts in the first request. */
  apply({ added, removed, all }: Change, versions: ReadonlyMap<string, string>): void {
    const { catalog } = this;
    const isFirst = !this.#hasBegun;
    const known = isFirst ? versions : noVersions;
    this.#hasBegun = true;
    this.#isLegacy = isFirst && all === true && added.length === 0;
    for (const name of removed) this.#remove(name);
    if (all === true) {
      this.#isOfAll = true;
      catalog.followAll(this);
      this.#versions = known;
      this.#mustRespond = known.size === 0;
    } else if (all === false) {
      this.#isOfAll = false;
      catalog.unfollowAll(this);
    }
    for (const name of added) {
      if (!this.#names.has(name)) this.#nameCharacters += name.length;
      this.#names.set(name, known.get(name));
      this.#dirty.add(name);
      catalog.follow(name, this);
    }
    // A client of such a type learns by the response which of the names do not exist.
    const learns = catalog.type.isWhole && !this.#stream.isDelta;
    if (learns && added.length > 0) this.#mustRespond = true;
  }

  /** The client answers the response with this nonce. Returns whether that is the last one. */
  answered(nonce: string): boolean {
    const isLast = this.sent !== undefined && Number(nonce) === this.sent.number;
    if (isLast) this.isConfirmed = true;
    return isLast;
  }

  changed(name: string): void {
    if (this.#names.has(name)) this.#dirty.add(name);
  }

  notify(): void {
    this.#stream.pump();
  }

  /** Whether there may be something to send. */
  get hasPending(): boolean {
    if (!this.catalog.isSynced) return false;
    if (this.#mustRespond || this.#dirty.size > 0 || this.#released !== undefined) return true;
    return (
      this.#isOfAll && (this.#versions !== undefined || this.#generation < this.catalog.generation)
    );
  }

  /** Whether all that it has to send is that resources of all were removed. */
  get hasOnlyRemovals(): boolean {
    if (this.#mustRespond || this.#dirty.size > 0 || this.#versions !== undefined) return false;
    const changes = this.catalog.changesSince(this.#generation) ?? new Map<string, undefined>();
    for (const resource of changes.values()) if (resource !== undefined) return false;
    return changes.size > 0;
  }

  /**
   * Takes the next response; undefined: nothing is due. "lost": what the client has is no longer known, so that it has to
   * begin again.
   */
  take(): XdsResponse | "lost" | undefined {
    const response = this.#stream.isDelta ? this.#takeDelta() : this.#takeState();
    this.#mustRespond = false;
    if (response === undefined || response === "lost") return response;
    // A nonce is used once.
    const isUsed = this.sent !== undefined && response.number <= this.sent.number;
    const fresh = isUsed ? this.catalog.respond(response.resources, response.removed) : response;
    this.sent = fresh;
    this.isConfirmed = false;
    return fresh;
  }

  close(): void {
    for (const name of this.#names.keys()) this.catalog.unfollow(name, this);
    this.catalog.unfollowAll(this);
    this.#names.clear();
    this.#dirty.clear();
  }

  #stateChange({ names }: DiscoveryRequest): Change | undefined {
    if (names.length === 0) {
      if (!this.#hasBegun) {
        const all = this.catalog.type.isWhole;
        return { added: nothing, removed: nothing, all: all || undefined };
      }
      // It has never named any, so this is no unsubscription.
      if (this.#isLegacy || (this.#names.size === 0 && !this.#isOfAll)) return undefined;
    }
    let known = 0;
    let isOfAll = false;
    let added: string[] | undefined;
    for (const name of names) {
      if (name === wildcard) isOfAll = true;
      else if (this.#names.has(name)) known++;
      else if (added === undefined) added = [name];
      else added.push(name);
    }
    const all = isOfAll === this.#isOfAll ? undefined : isOfAll;
    // Names that are given twice are rare, and change nothing.
    const isSame = added === undefined && all === undefined && known === this.#names.size;
    if (isSame && this.#hasBegun) return undefined;
    const wanted = new Set(names);
    const removed = [...this.#names.keys()].filter((name) => !wanted.has(name));
    return { added: added ?? nothing, removed, all };
  }

  #deltaChange({ names, removed }: DiscoveryRequest): Change | undefined {
    if (!this.#hasBegun && names.length === 0) {
      const all = this.catalog.type.isWhole;
      return { added: nothing, removed: nothing, all: all || undefined };
    }
    if (names.length === 0 && removed.length === 0) return undefined;
    let all: boolean | undefined;
    if (names.includes(wildcard)) all = true;
    else if (removed.includes(wildcard)) all = false;
    return {
      added: names.filter((name) => name !== wildcard),
      removed: removed.filter((name) => name !== wildcard),
      all,
    };
  }

  #remove(name: string): void {
    if (!this.#names.delete(name)) return;
    this.#dirty.delete(name);
    this.#nameCharacters -= name.length;
    this.catalog.unfollow(name, this);
    // The client can't know whether it still gets the resource, so that is sent again, or said not to exist.
    if (!this.#isOfAll || !this.#stream.isDelta) return;
    this.#released ??= [];
    this.#released.push(name);
  }

  /** State of the world: all that the client asks for, or of a type that is not whole, what is new. */
  #takeState(): XdsResponse | undefined {
    const { catalog } = this;
    const isNew = this.#mustRespond || this.#generation < catalog.generation;
    this.#generation = catalog.generation;
    this.#versions = undefined;
    if (this.#isOfAll) {
      this.#dirty.clear();
      return isNew ? catalog.whole() : undefined;
    }
    const isWhole = catalog.type.isWhole && (this.#mustRespond || this.#hasNews());
    const resources: XdsResource[] = [];
    for (const name of isWhole ? this.#names.keys() : this.#dirty) {
      if (!isWhole && resources.length === maxNamed) break;
      this.#dirty.delete(name);
      const resource = catalog.get(name);
      const isKnown = this.#names.get(name) === resource;
      if (resource !== undefined && (isWhole || !isKnown)) resources.push(resource);
      this.#names.set(name, resource ?? null);
    }
    if (resources.length === 1) return resources[0]?.alone;
    return isWhole || resources.length > 0 ? catalog.respond(resources, nothing) : undefined;
  }

  /** Whether a resource that it names is not what the client has. */
  #hasNews(): boolean {
    for (const name of this.#dirty) {
      if (this.#names.get(name) !== (this.catalog.get(name) ?? null)) return true;
    }
    return false;
  }

  #takeDelta(): XdsResponse | "lost" | undefined {
    const { catalog } = this;
    const isLevel = this.#generation + 1 === catalog.generation && this.#versions === undefined;
    if (this.#isOfAll && isLevel && this.#names.size === 0 && this.#released === undefined) {
      this.#generation = catalog.generation;
      return catalog.lastCommit() ?? "lost";
    }
    const isOne = this.#dirty.size === 1 && this.#released === undefined && !this.#mustRespond;
    if (isOne && !this.#isOfAll) return this.#takeOne();
    const changes = this.#changesOfAll();
    this.#generation = catalog.generation;
    if (changes === undefined) return "lost";
    for (const name of this.#released ?? []) changes.set(name, catalog.resources.get(name));
    this.#released = undefined;
    for (const name of changes.keys()) if (this.#names.has(name)) this.#dirty.add(name);
    let named = 0;
    for (const name of this.#dirty) {
      if (named++ === maxNamed) break;
      this.#dirty.delete(name);
      this.#addNamed(name, changes);
    }
    if (changes.size === 0 && !this.#mustRespond) return undefined;
    const [only] = changes.size === 1 ? changes.values() : [];
    return only?.alone ?? catalog.responseOf(changes);
  }

  /** Of one that asks for names, one has changed: what most changes are. */
  #takeOne(): XdsResponse | undefined {
    const { catalog } = this;
    const [name = ""] = this.#dirty;
    this.#dirty.clear();
    this.#generation = catalog.generation;
    const resource = catalog.get(name);
    if (this.#isKnown(name, resource)) return undefined;
    return resource?.alone ?? catalog.respond(nothing, [name]);
  }

  /** What has changed for a client that asks for all; undefined: that is not known. */
  #changesOfAll(): Changes | undefined {
    const { catalog } = this;
    const versions = this.#versions;
    if (!this.#isOfAll) return new Map();
    this.#versions = undefined;
    if (versions === undefined) return catalog.changesSince(this.#generation);
    const changes: Changes = new Map();
    for (const resource of catalog.resources.values()) {
      if (versions.get(resource.name) !== resource.version) changes.set(resource.name, resource);
    }
    for (const name of versions.keys()) {
      if (!catalog.resources.has(name) && !this.#names.has(name)) changes.set(name, undefined);
    }
    return changes;
  }

  #addNamed(name: string, changes: Changes): void {
    const resource = this.catalog.get(name);
    if (this.#isKnown(name, resource)) changes.delete(name);
    else changes.set(name, resource);
  }

  /** Whether the client has what there is for a name. It counts as sent from now on. */
  #isKnown(name: string, resource: XdsResource | undefined): boolean {
    const sent = this.#names.get(name);
    const has = typeof sent === "string" ? resource?.version : (resource ?? null);
    this.#names.set(name, resource ?? null);
    return sent === has;
  }
}
