import { invalidRequest, upstreamUnavailable } from "../../base/errors.ts";
import { randomId } from "../../base/random-id.ts";
import { Condition, within } from "../../base/wait.ts";
import type { StoredObject } from "../../model/object.ts";
import { textBytes, textOf } from "../../protobuf/text.ts";
import type { Compare, ObjectName } from "../../storage/store.ts";
import { shardOf } from "../calls/encode.ts";
import type { HashRange } from "../calls/options.ts";
import { followPrefix, type PrefixState } from "./follow-prefix.ts";
import type { Lease } from "./lease.ts";
import { createLeased, deleteLeased, persist } from "./leased-keys.ts";
import type { Session } from "./session.ts";
import { assignSlots, slotOf } from "./slots.ts";

/** Options of a ShardAssignment. */
export interface ShardAssignmentOptions {
  readonly session: Session;
  /** The resource of the keys. */
  readonly resource: string;
  /** The name of the group: what the keys begin with, followed by a slash. */
  readonly group: string;
  /**
   * The name of this member, which no other has. One that has the same after a restart gets the same slots. Default: a random
   * one.
   */
  readonly member?: string | undefined;
  /** The number of slots, from 1 to 4,096, the same for all members of the group. Default 64. */
  readonly slots?: number | undefined;
  /**
   * Maximum time that listeners take to end the work on a slot that is given up, in milliseconds. After it the signal of the
   * slot is aborted, and the slot given up. Default 30,000.
   */
  readonly drainTimeoutMs?: number | undefined;
}

/** A slot while this member owns it. */
export interface OwnedSlot {
  readonly index: number;
  readonly ranges: readonly HashRange[];
  /** The create revision of its key: higher than that of each owner before. */
  readonly fencingToken: number;
  /** Aborted when it was given up or lost. */
  readonly signal: AbortSignal;
  /** Whether a key is one of the slot. */
  includes(key: string): boolean;
}

/** The slots that `owns` has changed for. */
export interface ShardChange {
  readonly acquired: readonly OwnedSlot[];
  readonly released: readonly OwnedSlot[];
}

/**
 * Called after a change of `owns`. Its promise resolves when nothing is in flight for keys that were released: no other member
 * has them before.
 */
export type ShardListener = (change: ShardChange) => Promise<void> | void;

/** Changes whose listeners are called together. */
interface PendingChange {
  readonly acquired: OwnedSlot[];
  readonly released: OwnedSlot[];
  /** Resolves when the promises of the listeners have. */
  readonly drained: Promise<void>;
}

interface Ownership {
  readonly slot: OwnedSlot;
  readonly lease: Lease;
  readonly ending: AbortController;
  isDraining: boolean;
}

const defaultSlots = 64;
const maxSlots = 4_096;
const defaultDrainTimeoutMs = 30_000;

/** Maximum number of slots that are taken at the same time. */
const maxTaking = 16;

/**
 * Divides the keys of resources among the members of a group, so that each key has one owner.
 *
 *     const shards = new ShardAssignment({ session, resource: "locks", group: "controllers/pods" });
 *     shards.onChange(({ acquired }) => …);
 *     await shards.run(stopping.signal);
 *
 * The keys are divided by hash into slots. A member owns a slot while the slot has a key that is attached to the lease of its
 * session, and a key is created only where none exists. Each member computes from the members that it sees which slots belong to
 * which (see `assignSlots`), takes those of its own that are free, and gives up those that belong to another one. What members
 * see only decides what they try. So there are never two owners, however late each learns of the others: a slot is taken when
 * the store creates its key, and given up when the work on it has ended and its key is deleted.
 *
 * If a member crashes, its lease ends, its key and those of its slots are deleted at one revision, and the others take the
 * slots. A change of one of n members moves about 1/n of the slots, with two writes each.
 */
export class ShardAssignment {
  readonly member: string;
  readonly #options: ShardAssignmentOptions;
  readonly #count: number;
  readonly #owned = new Map<number, Ownership>();
  /** The slots whose keys are being created or deleted. */
  readonly #busy = new Set<number>();
  /** By slot: the create revision of its key that was last known to be this member's. */
  readonly #lastToken = new Map<number, number>();
  /** By slot: the revision from which on the state is newer than what was learned otherwise. */
  readonly #knownAt = new Map<number, number>();
  readonly #listeners = new Set<ShardListener>();
  readonly #idle = new Condition();
  #change: PendingChange | undefined;
  #state: PrefixState | undefined;
  #lease: Lease | undefined;
  /** The assignment to the members whose names are joined in `members`. */
  #assigned: { readonly members: string; readonly owners: readonly string[] } | undefined;
  #isStopping = false;
  #hasWarned = false;

  /** Sends nothing before `run`. Throws INVALID_REQUEST for an invalid number of slots or name. */
  constructor(options: ShardAssignmentOptions) {
    const { slots = defaultSlots, member = randomId() } = options;
    if (!(Number.isInteger(slots) && slots >= 1 && slots <= maxSlots)) {
      throw invalidRequest("slots", `slots is ${slots}: it must be from 1 to ${maxSlots}.`);
    }
    if (member === "" || member.includes("/")) {
      throw invalidRequest("member", `${JSON.stringify(member)} is not a name without a slash.`);
    }
    this.#options = options;
    this.#count = slots;
    this.member = member;
  }

  /** Whether this member owns the slot of a key, and does not give it up. Right also directly after the process was stopped. */
  owns(key: string): boolean {
    return this.#ownershipOf(key) !== undefined;
  }

  /**
   * The compare for `Client.transaction` that holds only while this member owns the slot of a key: with it, an owner that was
   * replaced without noticing writes nothing. Undefined: it does not own the slot.
   */
  guard(key: string): Compare | undefined {
    const ownership = this.#ownershipOf(key);
    if (ownership === undefined) return undefined;
    const { index, fencingToken } = ownership.slot;
    return { ...this.#nameOf(index), createRevision: fencingToken };
  }

  /**
   * The revision of the store at which this member got the slot of a key, whose owners before have written at lower ones.
   * Undefined: it does not own the slot.
   */
  ownedSince(key: string): { readonly revision: number; readonly historyId: string } | undefined {
    const ownership = this.#ownershipOf(key);
    if (ownership === undefined) return undefined;
    const { historyId = "" } = this.#state ?? {};
    return { revision: ownership.slot.fencingToken, historyId };
  }

  /** The owned slots, those that are given up excepted. */
  get slots(): readonly OwnedSlot[] {
    const current = [...this.#owned.values()].filter(isCurrent);
    return current.map(({ slot }) => slot).sort((one, other) => one.index - other.index);
  }

  /** Calls the listener after each change of `owns`, changes of one moment together. Returns a function that ends this. */
  onChange(listener: ShardListener): () => void {
    this.#listeners.add(listener);
    return () => this.#listeners.delete(listener);
  }

  /**
   * Takes part until the signal is aborted, or the session ends. Then it leaves the group and gives up its slots, once
   * the listeners of `onChange` have ended the work on them. Rejects if the resource can't be watched.
   */
  async run(signal: AbortSignal): Promise<void> {
    const { session, resource, group } = this.#options;
    const { client } = session;
    const stopping = AbortSignal.any([signal, session.ended]);
    try {
      const register = () => session.put(resource, this.#memberKey, this.#value);
      await persist(register, client.leases.site, stopping);
      for await (const state of followPrefix(client, resource, `${group}/`, stopping)) {
        if (state.historyId !== this.#state?.historyId) this.#forgetRevisions();
        this.#state = state;
        this.#reconcile();
      }
    } catch (error) {
      if (!stopping.aborted) throw error;
    } finally {
      this.#isStopping = true;
      // The others learn first that its slots are theirs.
      if (!session.hasEnded) await session.delete(resource, this.#memberKey).catch(this.#report);
      this.#reconcile();
      await this.#idle.until(() => this.#owned.size === 0 && this.#busy.size === 0, {});
    }
  }

  #ownershipOf(key: string): Ownership | undefined {
    const ownership = this.#owned.get(slotOf(key, this.#count));
    return ownership !== undefined && isCurrent(ownership) ? ownership : undefined;
  }

  get #memberKey(): string {
    return `${this.#options.group}/members/${this.member}`;
  }

  /** Of its own keys. The number of slots must be that of all. */
  get #value(): Uint8Array {
    return textBytes(JSON.stringify({ member: this.member, slots: this.#count }));
  }

  #nameOf(slot: number): ObjectName {
    const { resource, group } = this.#options;
    return { resource, key: `${group}/slots/${slot}` };
  }

  readonly #report = (error: unknown): void => this.#options.session.report(error);

  /** The store was restored: tokens are not comparable any more, and the keys may be gone. */
  #forgetRevisions(): void {
    this.#lastToken.clear();
    this.#knownAt.clear();
    for (const ownership of this.#owned.values()) this.#end(ownership);
  }

  /** Compares the slots that it owns with those that it should own, and begins to take and release. */
  #reconcile(): void {
    const { lease } = this.#options.session;
    if (this.#state === undefined) return;
    if (lease !== this.#lease) {
      this.#lease = lease;
      lease.signal.addEventListener("abort", () => this.#loseAll(lease));
    }
    if (!lease.isHeld) return;
    const { revision, objects } = this.#state;
    const owners = this.#isStopping ? [] : this.#ownersOf(this.#state, lease);
    for (let slot = 0; slot < this.#count; slot++) {
      const found = objects.get(this.#nameOf(slot).key);
      const ownership = this.#owned.get(slot);
      const isWanted = owners[slot] === this.member;
      if (ownership !== undefined) {
        const { fencingToken } = ownership.slot;
        if (revision >= fencingToken && found?.createRevision !== fencingToken) {
          this.#end(ownership);
        } else if (!isWanted && !ownership.isDraining) void this.#release(ownership);
      } else if (!this.#busy.has(slot) && this.#busy.size < maxTaking) {
        const isFree = found === undefined && revision >= (this.#knownAt.get(slot) ?? 0);
        // Its creation was given up, or is reported late.
        const isOwn =
          found !== undefined &&
          this.#isOwn(found, lease) &&
          found.createRevision > (this.#lastToken.get(slot) ?? 0);
        if (isOwn || (isFree && isWanted)) void this.#take(slot, lease);
      }
    }
  }

  /** The owners of the slots, by the members that are seen. Empty: this one is not among them, or they do not agree. */
  #ownersOf({ objects }: PrefixState, lease: Lease): readonly string[] {
    const members: string[] = [];
    const { group } = this.#options;
    for (const [key, object] of objects) {
      if (!this.#agrees(object)) return [];
      const prefix = `${group}/members/`;
      if (key.startsWith(prefix)) members.push(key.slice(prefix.length));
    }
    // Another one with its name has replaced it, or its own key is that of the lease before.
    if (objects.get(this.#memberKey)?.lease !== lease.id) return [];
    const joined = members.sort().join("/");
    if (this.#assigned?.members !== joined) {
      this.#assigned = { members: joined, owners: assignSlots(members, this.#count) };
    }
    return this.#assigned.owners;
  }

  #isOwn({ lease, value }: StoredObject, own: Lease): boolean {
    return lease === own.id && parsed(value).member === this.member;
  }

  /** Slots of other sizes would overlap. */
  #agrees(object: StoredObject): boolean {
    const { slots } = parsed(object.value);
    if (slots === this.#count) return true;
    if (!this.#hasWarned) {
      this.#hasWarned = true;
      this.#report(
        invalidRequest(
          "slots",
          `${object.key} is of a member with ${slots} slots, and this one has ${this.#count}. It takes none before that member has left. Give all members of a group the same number.`,
        ),
      );
    }
    return false;
  }

  async #take(index: number, lease: Lease): Promise<void> {
    const { session } = this.#options;
    const name = this.#nameOf(index);
    this.#busy.add(index);
    try {
      const object = await createLeased(session.client, lease, name, this.#value, lease.signal);
      if (!this.#isOwn(object, lease)) this.#knownAt.set(index, object.modRevision);
      else if (lease.isHeld) this.#own(index, object.createRevision, lease);
    } catch (error) {
      if (!lease.signal.aborted) {
        this.#report(error);
        // Refused: not again before something changes.
        this.#knownAt.set(index, (this.#state?.revision ?? 0) + 1);
      }
    }
    this.#busy.delete(index);
    this.#reconcile();
    this.#idle.notify();
  }

  #own(index: number, fencingToken: number, lease: Lease): void {
    const ending = new AbortController();
    const slot: OwnedSlot = {
      ...{ index, fencingToken, ranges: shardOf(index, this.#count) },
      signal: AbortSignal.any([lease.signal, ending.signal]),
      includes: (key) => slotOf(key, this.#count) === index,
    };
    this.#lastToken.set(index, fencingToken);
    this.#owned.set(index, { slot, lease, ending, isDraining: false });
    void this.#changed("acquired", slot);
  }

  /** Gives up a slot once the work on it has ended. */
  async #release(ownership: Ownership): Promise<void> {
    const { drainTimeoutMs: ms = defaultDrainTimeoutMs, session } = this.#options;
    const { slot, lease, ending } = ownership;
    const { clock } = session.client.leases.site;
    ownership.isDraining = true;
    const expire = (): void =>
      this.#report(
        upstreamUnavailable(
          `The work on slot ${slot.index} has not ended within ${ms} ms. The slot is given up: raise drainTimeoutMs, or have the work end with the signal of the slot.`,
        ),
      );
    const drained = this.#changed("released", slot);
    await within(drained, { signal: lease.signal, deadline: { clock, ms, expire } }).catch(
      () => {},
    );
    if (this.#owned.get(slot.index) !== ownership) return;
    ending.abort();
    this.#busy.add(slot.index);
    this.#owned.delete(slot.index);
    const name = this.#nameOf(slot.index);
    await deleteLeased(session.client, lease, name, slot.fencingToken).catch(this.#report);
    this.#busy.delete(slot.index);
    this.#reconcile();
    this.#idle.notify();
  }

  /** The slot is this member's no longer, without its doing. */
  #end(ownership: Ownership): void {
    const { slot, ending, isDraining } = ownership;
    if (this.#owned.get(slot.index) !== ownership) return;
    this.#owned.delete(slot.index);
    ending.abort();
    if (!isDraining) void this.#changed("released", slot);
    this.#idle.notify();
  }

  #loseAll(lease: Lease): void {
    for (const ownership of this.#owned.values())
      if (ownership.lease === lease) this.#end(ownership);
  }

  /** Resolves when the listeners have done what they have to do about it. */
  #changed(kind: keyof ShardChange, slot: OwnedSlot): Promise<void> {
    this.#change ??= this.#newChange();
    this.#change[kind].push(slot);
    return this.#change.drained;
  }

  #newChange(): PendingChange {
    const { promise: drained, resolve } = Promise.withResolvers<void>();
    const change: PendingChange = { acquired: [], released: [], drained };
    this.#options.session.client.leases.site.clock.setImmediate(() => {
      this.#change = undefined;
      const calls = Array.from(this.#listeners, async (listener) => listener(change));
      void Promise.all(calls.map((call) => call.catch(this.#report))).then(() => resolve());
    });
    return change;
  }
}

function isCurrent({ lease, isDraining }: Ownership): boolean {
  return lease.isHeld && !isDraining;
}

function parsed(value: Uint8Array): { readonly member?: unknown; readonly slots?: unknown } {
  try {
    return JSON.parse(textOf(value) ?? "") ?? {};
  } catch {
    return {};
  }
}
