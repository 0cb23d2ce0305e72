import { type Belief, OwnershipChecker } from "../guarantees/ownership.ts";
import type { Example } from "./example.ts";

/** One reconcile of a key, in milliseconds of the machine's clock. */
interface Reconcile {
  readonly key: string;
  readonly owner: string;
  readonly from: number;
  readonly to: number;
}

/** What a member says to own or not to own any more. */
interface Change {
  readonly at: number;
  readonly owner: string;
  readonly slot: number;
  /** Undefined: it has given the slot up. */
  readonly fencingToken: number | undefined;
}

const line =
  /^(\S+Z) (\w+) (has slot|gives up slot|begins|ends|was too late for) (\S+?)(?: by (\d+))?\.$/gm;

/** The logs of the processes of examples/sharded-controller, which share one machine and so one clock. */
export class MemberLogs {
  readonly #slots: number;
  readonly #members = new Map<string, Pick<Example, "output">>();
  /** When members were killed. */
  readonly #killedAt = new Map<string, number>();

  constructor(slots: number) {
    this.#slots = slots;
  }

  add(name: string, example: Pick<Example, "output">): void {
    this.#members.set(name, example);
  }

  /** A member is killed after this time, which ends all that it does. */
  ends(name: string, at: number): void {
    this.#killedAt.set(name, at);
  }

  /** Whether these members have all slots, and each has one. */
  areDivided(names: readonly string[]): boolean {
    const owners = new Map<number, string>();
    for (const { slot, owner, fencingToken } of this.#changes()) {
      if (fencingToken !== undefined) owners.set(slot, owner);
      else if (owners.get(slot) === owner) owners.delete(slot);
    }
    const having = new Set(owners.values());
    return (
      owners.size === this.#slots && names.every((name) => having.delete(name)) && having.size === 0
    );
  }

  /** In the order of their begin. */
  reconciles(): readonly Reconcile[] {
    const found: Reconcile[] = [];
    for (const owner of this.#members.keys()) {
      const begun = new Map<string, number>();
      for (const { at, what, name } of this.#linesOf(owner)) {
        if (what === "begins") begun.set(name, at);
        const from = begun.get(name);
        if (from === undefined || what === "begins" || what.includes("slot")) continue;
        found.push({ key: name, owner, from, to: at });
        begun.delete(name);
      }
      const to = this.#killedAt.get(owner) ?? Number.POSITIVE_INFINITY;
      for (const [key, from] of begun) found.push({ key, owner, from, to: Math.max(from, to) });
    }
    return found.sort((one, other) => one.from - other.from);
  }

  /** The pairs of reconciles of one key at the same time by two members. */
  overlaps(): readonly (readonly [Reconcile, Reconcile])[] {
    const found: [Reconcile, Reconcile][] = [];
    const last = new Map<string, Reconcile>();
    for (const each of this.reconciles()) {
      const before = last.get(each.key);
      if (before !== undefined && before.owner !== each.owner && each.from < before.to) {
        found.push([before, each]);
      }
      if (before === undefined || each.to > before.to) last.set(each.key, each);
    }
    return found;
  }

  /** The checker, after it has seen all from the time on when every slot had an owner. */
  ownership(maxGapMs: number): OwnershipChecker {
    const checker = new OwnershipChecker(maxGapMs);
    const all = Array.from({ length: this.#slots }, (_, slot) => `slot ${slot}`);
    const beliefs = new Map<string, Belief>();
    let hasBegun = false;
    for (const { at, owner, slot, fencingToken } of this.#changes()) {
      const sample = (): void => {
        hasBegun ||= new Set(Array.from(beliefs.values(), ({ what }) => what)).size === all.length;
        checker.sample(at, beliefs.values(), hasBegun && beliefs.size > 0 ? all : []);
      };
      sample();
      const what = `slot ${slot}`;
      if (fencingToken === undefined) beliefs.delete(`${owner} ${slot}`);
      else beliefs.set(`${owner} ${slot}`, { what, owner, fencingToken });
      sample();
    }
    return checker;
  }

  /** In the order of time. A member that is killed gives up all of its slots. */
  #changes(): readonly Change[] {
    const changes: Change[] = [];
    for (const owner of this.#members.keys()) {
      const owned = new Set<number>();
      for (const { at, what, name, token } of this.#linesOf(owner)) {
        if (!what.includes("slot")) continue;
        const slot = Number(name);
        if (token === undefined) owned.delete(slot);
        else owned.add(slot);
        changes.push({ at, owner, slot, fencingToken: token });
      }
      const killedAt = this.#killedAt.get(owner);
      if (killedAt === undefined) continue;
      for (const slot of owned)
        changes.push({ at: killedAt, owner, slot, fencingToken: undefined });
    }
    return changes.sort((one, other) => one.at - other.at);
  }

  *#linesOf(owner: string) {
    for (const [, time = "", , what = "", name = "", token] of this.#members
      .get(owner)
      ?.output.matchAll(line) ?? []) {
      yield {
        at: Date.parse(time),
        what,
        name,
        token: token === undefined ? undefined : Number(token),
      };
    }
  }
}
