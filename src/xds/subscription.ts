import type { Catalog, Changes, Follower } from "./catalog.ts";
import { type Asking, type Change, deltaChange, stateChange } from "./change.ts";
import type { DiscoveryRequest } from "./request.ts";
import type { XdsResource, XdsResponse } from "./response.ts";

/**
 * What the client has for a name: a version; null: it knows that the resource does not exist; undefined: nothing that is known.
 * No resource: a slow client would keep one in memory that no other has any more.
 */
type Sent = string | null | undefined;

/** What a subscription needs of its stream. */
interface SubscriptionOwner {
  readonly isDelta: boolean;
  /** There may be something to send. */
  pump(): void;
}

/**
 * Maximum number of resources in a response to names, and their size in bytes from which on it takes no more: further ones follow in
 * the next. Clients of gRPC accept 4 MiB by default, and would open the stream again without an end.
 */
const maxNamed = 1_000;
const fullBytes = 1024 ** 2;

/**
 * Memory of a name that a stream asks for, and how many times its text is held, in bytes: here, and in what is sent for a name
 * without a resource. Measured with names that no other stream asks for.
 */
const bytesPerName = 500;
const textsPerName = 4;

const nothing: readonly never[] = [];
const noVersions: ReadonlyMap<string, string> = new Map();

/** What one stream asks for of one type, and what of that its client has. */
export class XdsSubscription implements Asking, Follower {
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
  /** Whether it has asked for all again: it gets all, beside what has changed. */
  #mustRepeat = false;
  /** Names that it has asked for beside all, and does not any more: the client has to learn whether they exist. */
  readonly #released = new Set<string>();
  /** Names of all that have changed and are not sent yet: there was no room for them, or their removal comes later. */
  readonly #rest = new Set<string>();
  /** The versions that the client says to have of all; undefined: that was dealt with. */
  #versions: ReadonlyMap<string, string> | undefined;
  /** The response that was sent last, and the nonce of the last one that the client has confirmed or refused; 0: none. */
  sent: XdsResponse | undefined;
  confirmed = 0;

  constructor(catalog: Catalog, stream: SubscriptionOwner) {
    this.catalog = catalog;
    this.#stream = stream;
  }

  get names(): ReadonlyMap<string, unknown> {
    return this.#names;
  }

  /** Number of names, with those that the client still has to learn about. */
  get size(): number {
    return this.#names.size + this.#released.size;
  }

  /** Memory that its names, and the versions that it has not dealt with, take, in bytes, estimated. */
  get retainedBytes(): number {
    let bytes = this.#nameCharacters * textsPerName + this.size * bytesPerName;
    for (const name of this.#versions?.keys() ?? nothing) bytes += name.length + bytesPerName;
    return bytes;
  }

  get isOfAll(): boolean {
    return this.#isOfAll;
  }

  get isLegacy(): boolean {
    return this.#isLegacy;
  }

  get hasBegun(): boolean {
    return this.#hasBegun;
  }

  /** What a request asks for beyond what was asked for before. Undefined: it changes nothing. */
  changeBy(request: DiscoveryRequest): Change | undefined {
    const { isWhole } = this.catalog.type;
    return this.#stream.isDelta
      ? deltaChange(request, this, isWhole)
      : stateChange(request, this, isWhole);
  }

  /** By how many names a change makes it larger, at most. */
  growthBy({ added, removed }: Change): number {
    let names = 0;
    for (const name of added) if (!this.#names.has(name)) names++;
    // Others are released.
    if (this.#isOfAll && this.#stream.isDelta) return names;
    for (const name of removed) if (this.#names.has(name)) names--;
    return names;
  }

  /** Applies a change. `versions`: those that the client has, which counts in the first request. */
  apply(
    { added, removed, all, isLegacy = false }: Change,
    versions: ReadonlyMap<string, string>,
  ): void {
    const { catalog } = this;
    const known = this.#hasBegun ? noVersions : versions;
    this.#hasBegun = true;
    this.#isLegacy = isLegacy;
    if (all === true) {
      if (this.#isOfAll) this.#mustRepeat = true;
      else this.#versions = known;
      this.#isOfAll = true;
      catalog.followAll(this);
      this.#mustRespond = known.size === 0;
    } else if (all === false) {
      this.#isOfAll = false;
      catalog.unfollowAll(this);
      this.#clearReleased();
      this.#rest.clear();
    }
    for (const name of removed) this.#remove(name);
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
    const [number, last] = [Number(nonce), this.sent?.number ?? 0];
    if (number > this.confirmed && number <= last) this.confirmed = number;
    return number === last;
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
    if (this.#mustRespond || this.#dirty.size > 0 || this.#released.size > 0) return true;
    if (!this.#isOfAll) return false;
    const isBehind = this.#generation < this.catalog.generation;
    return isBehind || this.#versions !== undefined || this.#rest.size > 0;
  }

  /** Whether all that it has to send is that resources which the client has were removed. */
  get hasOnlyRemovals(): boolean {
    if (this.#mustRespond || this.#versions !== undefined || this.#released.size > 0) return false;
    for (const name of this.#dirty) if (!this.#isRemoval(name)) return false;
    if (!this.#isOfAll) return this.#dirty.size > 0;
    const { catalog } = this;
    for (const name of this.#rest) if (catalog.resources.has(name)) return false;
    return catalog.hasOnlyRemovedSince(this.#generation);
  }

  /**
   * Takes the next response; undefined: nothing is due. "lost": what the client has is no longer known, so that it has to
   * begin again. Clusters that were removed are in none with others: their removal comes behind the change of what refers to
   * them.
   */
  take(): XdsResponse | "lost" | undefined {
    const keepsRemoved = this.catalog.type.name === "cds" && !this.hasOnlyRemovals;
    const response = this.#stream.isDelta
      ? this.#takeDelta(keepsRemoved)
      : this.#takeState(keepsRemoved);
    this.#mustRespond = false;
    if (response === undefined || response === "lost") return response;
    // A nonce is used once.
    const isUsed = this.sent !== undefined && response.number <= this.sent.number;
    const fresh = isUsed ? this.catalog.respond(response.resources, response.removed) : response;
    this.sent = fresh;
    return fresh;
  }

  close(): void {
    for (const name of this.#names.keys()) this.catalog.unfollow(name, this);
    this.catalog.unfollowAll(this);
    this.#names.clear();
    this.#dirty.clear();
    this.#released.clear();
    this.#rest.clear();
  }

  #remove(name: string): void {
    if (!this.#names.delete(name)) return;
    this.#dirty.delete(name);
    this.catalog.unfollow(name, this);
    // The client can't know whether it still gets the resource, so that is sent again, or said not to exist.
    if (this.#isOfAll && this.#stream.isDelta && !this.#released.has(name))
      this.#released.add(name);
    else this.#nameCharacters -= name.length;
  }

  #clearReleased(): void {
    for (const name of this.#released) this.#nameCharacters -= name.length;
    this.#released.clear();
  }

  /** Whether the client has this resource, or knows that it does not exist. */
  #isKnown(name: string, resource: XdsResource | undefined): boolean {
    return this.#names.get(name) === (resource?.version ?? null);
  }

  /** Whether a name is of a resource that the client has, and that was removed. */
  #isRemoval(name: string): boolean {
    const sent = this.#names.get(name);
    return sent !== undefined && sent !== null && this.catalog.get(name) === undefined;
  }

  /** State of the world: all that the client asks for, or of a type that is not whole, what is new. */
  #takeState(keepsRemoved: boolean): XdsResponse | undefined {
    const { catalog } = this;
    const isLevel = this.#generation + 1 === catalog.generation && this.#rest.size === 0;
    this.#versions = undefined;
    this.#generation = catalog.generation;
    if (!this.#isOfAll) {
      return catalog.type.isWhole ? this.#takeNamed(keepsRemoved) : this.#takeChanged();
    }
    this.#dirty.clear();
    this.#rest.clear();
    const whole = catalog.whole();
    const had = this.sent?.resources ?? nothing;
    const kept = keepsRemoved ? had.filter(({ name }) => !catalog.resources.has(name)) : nothing;
    for (const { name } of kept) this.#rest.add(name);
    if (kept.length === 0 && (isLevel || this.#mustRespond)) return whole;
    const resources = kept.length === 0 ? whole.resources : [...whole.resources, ...kept];
    if (!this.#mustRespond && areSame(had, resources)) return undefined;
    return kept.length === 0 ? whole : catalog.respond(resources, nothing);
  }

  /** State of the world, of a type whose responses are whole: all that the client names. */
  #takeNamed(keepsRemoved: boolean): XdsResponse | undefined {
    const { catalog } = this;
    const resources: XdsResource[] = [];
    for (const name of this.#names.keys()) {
      const resource = catalog.get(name);
      if (resource !== undefined) resources.push(resource);
    }
    const had = this.sent?.resources ?? nothing;
    this.#dirty.clear();
    for (const each of keepsRemoved ? had : nothing) {
      if (!this.#isRemoval(each.name)) continue;
      resources.push(each);
      this.#dirty.add(each.name);
    }
    for (const name of this.#names.keys()) {
      if (!this.#dirty.has(name)) this.#names.set(name, catalog.get(name)?.version ?? null);
    }
    if (!this.#mustRespond && areSame(had, resources)) return undefined;
    return resources.length === 1 ? resources[0]?.alone : catalog.respond(resources, nothing);
  }

  /** State of the world, of other types: what has changed of what the client names. */
  #takeChanged(): XdsResponse | undefined {
    const { catalog } = this;
    const resources: XdsResource[] = [];
    let bytes = 0;
    for (const name of this.#dirty) {
      if (resources.length === maxNamed || bytes >= fullBytes) break;
      this.#dirty.delete(name);
      const resource = catalog.get(name);
      if (resource !== undefined && !this.#isKnown(name, resource)) {
        resources.push(resource);
        bytes += resource.any.byteLength;
      }
      this.#names.set(name, resource?.version ?? null);
    }
    if (resources.length === 0) return undefined;
    return resources.length === 1 ? resources[0]?.alone : catalog.respond(resources, nothing);
  }

  #takeDelta(keepsRemoved: boolean): XdsResponse | "lost" | undefined {
    const { catalog } = this;
    const isLevel = this.#generation + 1 === catalog.generation && this.#versions === undefined;
    const hasOthers = this.size > 0 || this.#rest.size > 0 || this.#mustRepeat;
    if (this.#isOfAll && isLevel && !hasOthers && catalog.lastBytes < fullBytes) {
      const last = catalog.lastCommit();
      if (last === undefined || last.removed.length === 0 || !keepsRemoved) {
        this.#generation = catalog.generation;
        return last ?? "lost";
      }
    }
    const isOne = this.#dirty.size === 1 && this.#released.size === 0 && !this.#mustRespond;
    if (isOne && !this.#isOfAll && !keepsRemoved) return this.#takeOne();
    const changes = this.#changesOfAll();
    this.#generation = catalog.generation;
    if (changes === undefined) return "lost";
    for (const name of this.#rest) changes.set(name, catalog.resources.get(name));
    this.#rest.clear();
    const sent: Changes = new Map();
    for (const name of this.#released) {
      const resource = catalog.resources.get(name);
      (resource === undefined ? sent : changes).set(name, resource);
    }
    this.#clearReleased();
    let bytes = 0;
    for (const [name, resource] of changes) {
      if (this.#names.has(name)) this.#dirty.add(name);
      else if (resource === undefined ? keepsRemoved : bytes >= fullBytes) this.#rest.add(name);
      else {
        sent.set(name, resource);
        bytes += resource?.any.byteLength ?? 0;
      }
    }
    const kept: string[] = [];
    let named = 0;
    for (const name of this.#dirty) {
      if (named++ === maxNamed || bytes >= fullBytes) break;
      this.#dirty.delete(name);
      if (keepsRemoved && this.#isRemoval(name)) kept.push(name);
      else bytes += this.#addNamed(name, sent);
    }
    for (const name of kept) this.#dirty.add(name);
    if (sent.size === 0 && !this.#mustRespond) return undefined;
    const [only] = sent.size === 1 ? sent.values() : [];
    return only?.alone ?? catalog.responseOf(sent);
  }

  /** Of the names that it asks for, one has changed, as most changes are. */
  #takeOne(): XdsResponse | undefined {
    const { catalog } = this;
    const [name = ""] = this.#dirty;
    this.#dirty.clear();
    this.#generation = catalog.generation;
    const resource = catalog.get(name);
    const isKnown = this.#isKnown(name, resource);
    this.#names.set(name, resource?.version ?? null);
    if (isKnown) return undefined;
    return resource?.alone ?? catalog.respond(nothing, [name]);
  }

  /** What has changed for a client that asks for all; undefined: that is not known. */
  #changesOfAll(): Changes | undefined {
    const { catalog } = this;
    if (!this.#isOfAll) return new Map();
    const [versions, mustRepeat] = [this.#versions, this.#mustRepeat];
    [this.#versions, this.#mustRepeat] = [undefined, false];
    if (versions === undefined) {
      const changes = catalog.changesSince(this.#generation);
      if (mustRepeat) {
        for (const resource of catalog.resources.values()) changes?.set(resource.name, resource);
      }
      return changes;
    }
    const changes: Changes = new Map();
    for (const resource of catalog.resources.values()) {
      if (versions.get(resource.name) !== resource.version) changes.set(resource.name, resource);
    }
    for (const name of versions.keys()) {
      if (!catalog.resources.has(name) && !this.#names.has(name)) changes.set(name, undefined);
    }
    return changes;
  }

  /** Adds what the client does not have of a name. Returns its size, in bytes. */
  #addNamed(name: string, changes: Changes): number {
    const resource = this.catalog.get(name);
    const isKnown = this.#isKnown(name, resource);
    this.#names.set(name, resource?.version ?? null);
    if (isKnown) return 0;
    changes.set(name, resource);
    return resource?.any.byteLength ?? 0;
  }
}

/** Whether a client that has the ones gets nothing new with the others. */
function areSame(ones: readonly XdsResource[], others: readonly XdsResource[]): boolean {
  if (ones.length !== others.length) return false;
  const versions = new Map(ones.map(({ name, version }) => [name, version]));
  return others.every(({ name, version }) => versions.get(name) === version);
}
