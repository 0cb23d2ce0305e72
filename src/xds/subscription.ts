import type { Catalog, Follower } from "./catalog.ts";
import { type Asking, type Change, deltaChange, stateChange } from "./change.ts";
import type { DiscoveryRequest } from "./request.ts";
import type { XdsResource, XdsResponse } from "./response.ts";
import { wildcard } from "./types.ts";

/**
 * A name that the client has asked for beside all, and does not ask for any more, as `a` after `*` and `a`: it can't know whether
 * it still gets the resource, so that is sent again, or said not to exist. Until then it counts as a name.
 */
const released = Symbol("released");

/**
 * What the client has for a name: a version; null: it knows that the resource does not exist; undefined: nothing that is known.
 * No resource: a slow client would keep one in memory that no other has any more.
 */
type Sent = string | null | undefined | typeof released;

/** What a subscription needs of its stream. */
interface SubscriptionOwner {
  readonly isDelta: boolean;
  /** There may be something to send. */
  pump(): void;
}

/**
 * Maximum number of named resources in a response, and the size of all in bytes from which on it takes no more: further ones follow
 * in the next. Clients of gRPC accept 4 MiB by default, and would open the stream again without an end.
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
  isOfAll = false;
  phase: Asking["phase"] = "new";
  /** The response that was sent last, and the nonce of the last one that the client has confirmed or refused; 0: none. */
  sent: XdsResponse | undefined;
  confirmed = 0;
  readonly #stream: SubscriptionOwner;
  /** The names that it asks for, with what the client has. */
  readonly #names = new Map<string, Sent>();
  #nameCharacters = 0;
  /**
   * What may have to be sent, by name, of those and of all; and whether the client may have an earlier version of it: only then
   * it learns of a removal. This stays as it is while the name is pending.
   */
  readonly #pending = new Map<string, boolean>();
  /** Of all: the last commit that the client has, or whose changes are pending. Infinity: it was sent nothing of all. */
  #generation = Infinity;
  /** The versions that the client has of all; undefined: what differs is pending. None: it has asked for all again. */
  #versions: ReadonlyMap<string, string> | undefined;
  /** Whether a response is due even if it says nothing. */
  #mustRespond = false;

  constructor(catalog: Catalog, stream: SubscriptionOwner) {
    this.catalog = catalog;
    this.#stream = stream;
  }

  get names(): ReadonlyMap<string, unknown> {
    return this.#names;
  }

  /** Memory that its names, and the versions that it has not dealt with, take, in bytes, estimated. */
  get retainedBytes(): number {
    let bytes = this.#nameCharacters * textsPerName + this.#names.size * bytesPerName;
    for (const name of this.#versions?.keys() ?? nothing) bytes += name.length + bytesPerName;
    return bytes;
  }

  /** What a request asks for beyond what was asked for before. Undefined: it changes nothing. */
  changeBy(request: DiscoveryRequest): Change | undefined {
    const changeOf = this.#stream.isDelta ? deltaChange : stateChange;
    return changeOf(request, this, this.catalog.type.isWhole);
  }

  /** By how many names a change makes it larger, at most. */
  growthBy({ added, removed }: Change): number {
    let names = 0;
    for (const name of added) if (!this.#names.has(name)) names++;
    if (this.#releasesNames) return names;
    for (const name of removed) if (this.#names.has(name)) names--;
    return names;
  }

  /** Applies a change. `versions`: those that the client has, which counts in the first request. */
  apply(
    { added, removed, all, isUnnamed = false }: Change,
    versions: ReadonlyMap<string, string>,
  ): void {
    const { catalog } = this;
    const known = this.phase === "new" ? versions : noVersions;
    this.phase = isUnnamed ? "unnamed" : "named";
    if (all === true) {
      if (!this.isOfAll) this.#generation = Infinity;
      this.isOfAll = true;
      this.#versions ??= known;
      catalog.follow(wildcard, this);
      this.#mustRespond = known.size === 0;
    } else if (all === false) {
      this.isOfAll = false;
      this.#versions = undefined;
      catalog.unfollow(wildcard, this);
      for (const [name, sent] of this.#names) if (sent === released) this.#forget(name);
      for (const name of this.#pending.keys())
        if (!this.#names.has(name)) this.#pending.delete(name);
    }
    for (const name of removed) this.#remove(name);
    for (const name of added) {
      if (!this.#names.has(name)) this.#nameCharacters += name.length;
      this.#names.set(name, known.get(name));
      this.#pending.set(name, true);
      catalog.follow(name, this);
    }
    // A client of such a type learns by the response which of the names do not exist.
    if (this.#repeatsAll && added.length > 0) this.#mustRespond = true;
  }

  /** The client answers the response with this nonce. Returns whether that is the last one. */
  answered(nonce: string): boolean {
    const [number, last] = [Number(nonce), this.sent?.number ?? 0];
    if (number > this.confirmed && number <= last) this.confirmed = number;
    return number === last;
  }

  changed(name: string): void {
    if (this.#names.has(name)) this.#pending.set(name, true);
  }

  notify(): void {
    this.#stream.pump();
  }

  /** Whether there may be something to send. */
  get hasPending(): boolean {
    if (!this.catalog.isSynced) return false;
    if (this.#mustRespond || this.#versions !== undefined || this.#pending.size > 0) return true;
    return this.isOfAll && this.#generation < this.catalog.generation;
  }

  /** Whether all that it has to send is that resources which the client has were removed. */
  get hasOnlyRemovals(): boolean {
    if (this.#mustRespond || this.#versions !== undefined) return false;
    for (const name of this.#pending.keys()) if (!this.#isRemoval(name)) return false;
    return !this.isOfAll || this.catalog.hasOnlyRemovedSince(this.#generation);
  }

  /**
   * Takes the next response; undefined: nothing is due. "lost": what the client has is no longer known, so that it has to
   * begin again. Clusters that were removed are in none with others: their removal comes behind the change of what refers to
   * them.
   */
  take(): XdsResponse | "lost" | undefined {
    const { catalog } = this;
    const keepsRemoved = catalog.type.name === "cds" && !this.hasOnlyRemovals;
    const response = this.#next(keepsRemoved);
    this.#mustRespond = false;
    if (response === undefined || response === "lost") return response;
    // A nonce is used once.
    const isUsed = this.sent !== undefined && response.number <= this.sent.number;
    this.sent = isUsed ? catalog.respond(response.resources, response.removed) : response;
    return this.sent;
  }

  close(): void {
    for (const name of this.#names.keys()) this.catalog.unfollow(name, this);
    this.catalog.unfollow(wildcard, this);
    this.#names.clear();
    this.#pending.clear();
  }

  /** Whether each response has all that the client asks for. */
  get #repeatsAll(): boolean {
    return this.catalog.type.isWhole && !this.#stream.isDelta;
  }

  /** Whether names that it no longer asks for are released. */
  get #releasesNames(): boolean {
    return this.isOfAll && this.#stream.isDelta;
  }

  #remove(name: string): void {
    if (!this.#names.has(name)) return;
    this.catalog.unfollow(name, this);
    if (this.#releasesNames) {
      this.#names.set(name, released);
      this.#pending.set(name, true);
    } else {
      this.#forget(name);
      // Of all it may still be due.
      if (!this.isOfAll) this.#pending.delete(name);
    }
  }

  #forget(name: string): void {
    if (this.#names.delete(name)) this.#nameCharacters -= name.length;
  }

  /** What the client gets for a name; undefined: it does not exist. */
  #resourceOf(name: string): XdsResource | undefined {
    const { catalog } = this;
    const isNamed = this.#names.has(name) && this.#names.get(name) !== released;
    return isNamed ? catalog.get(name) : catalog.resources.get(name);
  }

  /** Whether a name is of a resource that the client has, and that was removed. */
  #isRemoval(name: string): boolean {
    const isNamed = this.#names.has(name);
    const has = isNamed ? typeof this.#names.get(name) === "string" : this.#pending.get(name);
    return has === true && this.#resourceOf(name) === undefined;
  }

  #next(keepsRemoved: boolean): XdsResponse | "lost" | undefined {
    const { catalog } = this;
    const { isDelta } = this.#stream;
    const shared = this.isOfAll ? this.#addChanges(keepsRemoved) : undefined;
    if (shared !== undefined) return shared;
    const { resources, removed } = this.#takePending(keepsRemoved);
    const isNew = resources.length > 0 || (removed.length > 0 && (isDelta || this.#repeatsAll));
    if (!isNew && !this.#mustRespond) return undefined;
    if (this.#repeatsAll) return this.#all(keepsRemoved);
    const [first] = resources;
    const isOne = resources.length === 1 && (removed.length === 0 || !isDelta);
    return (isOne ? first?.alone : undefined) ?? catalog.respond(resources, removed);
  }

  /**
   * Makes pending what has changed for a client that asks for all. Returns a response instead if that is all that it gets:
   * most clients get the same.
   */
  #addChanges(keepsRemoved: boolean): XdsResponse | "lost" | undefined {
    const { catalog } = this;
    const isBehind = this.#generation < catalog.generation;
    const changes = isBehind ? catalog.changesSince(this.#generation) : undefined;
    const isLost = isBehind && changes === undefined;
    if (isLost && this.#stream.isDelta) return "lost";
    const isFirst = this.#generation === Infinity;
    this.#generation = catalog.generation;
    const { response, before = noVersions } = changes ?? {};
    const isAlone = this.#versions === undefined && this.#names.size + this.#pending.size === 0;
    if (response !== undefined && this.#stream.isDelta && isAlone && before.size > 0) {
      const isWhole = response.removed.length === 0 || !keepsRemoved;
      if (isWhole && isSmall(response.resources)) return response;
    }
    for (const [name, version] of before) {
      this.#pending.set(name, this.#pending.get(name) ?? version !== undefined);
    }
    const versions = isLost ? noVersions : this.#versions;
    this.#versions = undefined;
    if (versions === undefined) return undefined;
    if (this.#repeatsAll) this.#mustRespond = true;
    else this.#addOthers(versions, isFirst);
    return undefined;
  }

  /** Makes pending what differs from these versions. `isFirst`: the client has no others of all. */
  #addOthers(versions: ReadonlyMap<string, string>, isFirst: boolean): void {
    const { resources } = this.catalog;
    for (const { name, version } of resources.values()) {
      if (versions.get(name) === version) continue;
      this.#pending.set(name, this.#pending.get(name) ?? (!isFirst || versions.has(name)));
    }
    for (const name of versions.keys()) {
      if (!resources.has(name) && !this.#names.has(name)) this.#pending.set(name, true);
    }
  }

  /** Takes what is new for the client of what is pending, as much as one response may have. */
  #takePending(keepsRemoved: boolean): Pick<XdsResponse, "resources" | "removed"> {
    const resources: XdsResource[] = [];
    const removed: string[] = [];
    let [named, bytes] = [0, 0];
    for (const [name, isKnown] of this.#pending) {
      if (!this.#repeatsAll && (named === maxNamed || bytes >= fullBytes)) break;
      if (keepsRemoved && this.#isRemoval(name)) continue;
      this.#pending.delete(name);
      const resource = this.#resourceOf(name);
      if (this.#names.has(name)) {
        const has = this.#names.get(name);
        const version = resource?.version ?? null;
        if (has === released) this.#forget(name);
        else this.#names.set(name, version);
        if (has === version) continue;
        named++;
      } else if (!isKnown && resource === undefined) continue;
      if (resource === undefined) removed.push(name);
      else resources.push(resource);
      bytes += resource?.any.byteLength ?? 0;
    }
    return { resources, removed };
  }

  /**
   * The response with all that the client asks for, and with what was removed, but stays for now: the last response has it. Of all
   * it is pending, too, unless the log of changes does not reach back so far: then a response is due.
   */
  #all(keepsRemoved: boolean): XdsResponse {
    const { catalog } = this;
    const mayKeep = !this.isOfAll || this.#mustRespond || this.#pending.size > 0;
    const had = keepsRemoved && mayKeep ? (this.sent?.resources ?? nothing) : nothing;
    const kept = had.filter(({ name }) => {
      return (this.isOfAll || this.#names.has(name)) && this.#resourceOf(name) === undefined;
    });
    // Of some of this it may not have been notified yet.
    for (const name of this.#names.keys()) {
      this.#names.set(name, catalog.get(name)?.version ?? null);
    }
    for (const { name, version } of kept) {
      this.#pending.set(name, true);
      if (this.#names.has(name)) this.#names.set(name, version);
    }
    if (this.isOfAll && kept.length === 0) return catalog.whole();
    const current = this.isOfAll
      ? [...catalog.resources.values()]
      : [...this.#names.keys()].flatMap((name) => catalog.get(name) ?? []);
    const resources = [...current, ...kept];
    const [first] = resources;
    return resources.length === 1 && first !== undefined
      ? first.alone
      : catalog.respond(resources, nothing);
  }
}

/** Whether one response may have all of them. */
function isSmall(resources: readonly XdsResource[]): boolean {
  let bytes = 0;
  for (const { any } of resources) bytes += any.byteLength;
  return bytes < fullBytes;
}
