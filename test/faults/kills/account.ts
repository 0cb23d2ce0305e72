import type { Change } from "../../guarantees/recording.ts";
import type { Operation } from "./operation.ts";

/** A change that the store has after a restart. */
export interface KeptChange extends Change {
  /** Of the object after it; 0: none. */
  readonly lease: bigint;
}

interface Held {
  readonly modRevision: number;
  readonly lease: bigint;
}

/** A lease that ends by itself. */
interface ShortLease {
  readonly begunAt: number;
  readonly ttlSeconds: number;
}

/**
 * Compares what clients know of their writes with what the store has after it was killed: every acknowledged write is there,
 * whole, at its revision; a refused one is not; one of unknown outcome is there whole, once, or not at all; and nothing is
 * there that no client wrote.
 */
export class Account {
  readonly #state = new Map<string, Held>();
  readonly #short = new Map<bigint, ShortLease>();
  /** Leases that a client may have ended. */
  readonly #revoked = new Set<bigint>();
  #revision = 1;

  /** Objects with leases that end by themselves. */
  get expiring(): string[] {
    return [...this.#state].flatMap(([key, { lease }]) => (this.#short.has(lease) ? [key] : []));
  }

  get size(): number {
    return this.#state.size;
  }

  /**
   * `changes`: all after those of the last call, up to `revision`. `operations`: all that have begun since, none of which is under
   * way. `shown`: the newest revision that any client has seen. `readAt`: when `changes` were read.
   */
  check(
    changes: readonly KeptChange[],
    operations: readonly Operation[],
    { revision, shown, readAt }: Checked,
  ): string[] {
    const wrong: string[] = [];
    if (revision < shown) wrong.push(`Kept: ${shown} was shown, and the store is at ${revision}`);
    const byId = new Map(operations.map((operation) => [operation.id, operation]));
    const done = new Map<Operation, number[]>();
    const deleting = operations.filter(({ puts }) => puts.length === 0);
    for (const { revokes } of operations) if (revokes !== undefined) this.#revoked.add(revokes);
    let at = this.#revision;
    for (const [of, parts] of Map.groupBy(changes, (change) => change.revision)) {
      if (of !== at + 1) wrong.push(`Whole: after revision ${at} comes ${of}`);
      at = of;
      const writers = new Set(parts.flatMap(({ after }) => (after ? [writeOf(after.value)] : [])));
      const [id, another] = writers;
      if (another !== undefined)
        wrong.push(`Atomic: ${[...writers].join(" and ")} are both at ${of}`);
      const operation = id === undefined ? this.#deleterOf(of, parts, deleting) : byId.get(id);
      if (operation !== undefined) {
        done.set(operation, [...(done.get(operation) ?? []), of]);
        wrong.push(...this.#incomplete(operation, of, parts));
      } else if (id !== undefined) {
        wrong.push(`Invented: ${of} has the write ${id}, which no client made`);
      } else {
        wrong.push(...this.#unexplained(of, parts, operations, readAt));
      }
      for (const part of parts) this.#apply(part, operation);
    }
    if (at !== revision) wrong.push(`Whole: the store is at ${revision}, its changes end at ${at}`);
    for (const operation of operations) {
      wrong.push(...unfaithful(operation, done.get(operation) ?? []));
      wrong.push(...this.#wrongConflict(operation, changes));
    }
    this.#revision = revision;
    return wrong;
  }

  /** The operation that may have made only deletions; undefined: none. */
  #deleterOf(
    revision: number,
    parts: readonly KeptChange[],
    deleting: readonly Operation[],
  ): Operation | undefined {
    const acknowledged = deleting.find((each) => each.revision === revision && each.deleted !== 0);
    if (acknowledged !== undefined) return acknowledged;
    const keys = parts.map(({ key }) => key);
    return deleting.find(({ outcome, after, deletes, deletePrefix }) => {
      if (outcome !== "unknown" || revision <= after) return false;
      if (deletePrefix !== undefined) return keys.every((key) => key.startsWith(deletePrefix));
      return deletes.length > 0 && keys.every((key) => deletes.includes(key));
    });
  }

  /** What an operation should have changed at its revision, and has not; or the other way round. */
  #incomplete(operation: Operation, revision: number, parts: readonly KeptChange[]): string[] {
    const { id, puts, deletes, deletePrefix, deleted, lease } = operation;
    const existing = [...this.#state.keys()];
    const expected = new Set([
      ...puts,
      ...deletes.filter((key) => this.#state.has(key)),
      ...existing.filter((key) => deletePrefix !== undefined && key.startsWith(deletePrefix)),
    ]);
    const changed = new Set(parts.map(({ key }) => key));
    const wrong: string[] = [];
    const isSame = expected.size === changed.size && [...expected].every((key) => changed.has(key));
    if (!isSame) {
      const [is, was] = [changed, expected].map((keys) => [...keys].sort().join(", ") || "nothing");
      wrong.push(`Atomic: ${id} has changed ${is} at ${revision}, and not ${was}`);
    }
    for (const { key, after, lease: has } of parts) {
      if (puts.includes(key) !== (after !== undefined))
        wrong.push(`Atomic: ${id} has ${after === undefined ? "deleted" : "put"} ${key}`);
      if (after === undefined) continue;
      const isRight = operation.ttlSeconds === undefined ? has === (lease ?? 0n) : has !== 0n;
      if (!isRight)
        wrong.push(`Lease: ${key} of ${id} has the lease ${has}, not ${lease ?? "its own"}`);
    }
    if (deleted !== undefined && deleted !== changed.size)
      wrong.push(`Faithful: ${id} has deleted ${changed.size}, and the answer says ${deleted}`);
    return wrong;
  }

  /** Deletions that no client made: they are those of a lease, all of it, not before its end. */
  #unexplained(
    revision: number,
    parts: readonly KeptChange[],
    operations: readonly Operation[],
    readAt: number,
  ): string[] {
    const leases = new Set(parts.map(({ key }) => this.#state.get(key)?.lease ?? 0n));
    const [lease = 0n] = leases;
    const short = this.#short.get(lease);
    if (leases.size > 1 || (short === undefined && !this.#revoked.has(lease))) {
      return [
        `Invented: no client deleted ${parts.map(({ key }) => key).join(", ")} at ${revision}`,
      ];
    }
    const attached = [...this.#state].filter(([, held]) => held.lease === lease);
    const wrong =
      attached.length === parts.length
        ? []
        : [`Atomic: ${parts.length} of ${attached.length} objects of a lease end at ${revision}`];
    if (short === undefined) return wrong;
    // What was acknowledged with a later revision was so after the lease had ended.
    const later = operations.flatMap((each) =>
      each.revision !== undefined && each.revision > revision ? [each.endedAt ?? readAt] : [],
    );
    const lastedMs = later.reduce((one, other) => Math.min(one, other), readAt) - short.begunAt;
    if (lastedMs >= short.ttlSeconds * 1_000) return wrong;
    return [
      ...wrong,
      `Lease: one of ${short.ttlSeconds} s has ended within ${Math.round(lastedMs)} ms, at ${revision}`,
    ];
  }

  #apply({ key, after, lease }: KeptChange, operation: Operation | undefined): void {
    if (after === undefined) this.#state.delete(key);
    else this.#state.set(key, { modRevision: after.modRevision, lease });
    const { ttlSeconds, begunAt = 0 } = operation ?? {};
    if (ttlSeconds !== undefined && lease !== 0n) this.#short.set(lease, { begunAt, ttlSeconds });
  }

  /** A refusal has shown an object: it is there, or was. */
  #wrongConflict({ id, conflict }: Operation, changes: readonly KeptChange[]): string[] {
    if (conflict === undefined || conflict.modRevision <= this.#revision) return [];
    const { key, modRevision } = conflict;
    const isThere = changes.some((each) => each.key === key && each.revision === modRevision);
    return isThere
      ? []
      : [`Kept: ${id} was refused for ${key} at ${modRevision}, which is not kept`];
  }
}

export interface Checked {
  readonly revision: number;
  readonly shown: number;
  readonly readAt: number;
}

function unfaithful({ id, outcome, revision, puts, ...rest }: Operation, done: number[]): string[] {
  const at = done.join(" and ") || "nowhere";
  if (done.length > 1) return [`Faithful: ${id} was done twice, at ${at}`];
  if (outcome === "refused" && done.length > 0)
    return [`Faithful: ${id} was refused, and done at ${at}`];
  if (outcome !== "acknowledged" || revision === undefined) return [];
  // These may have had nothing to delete.
  const mayBeEmpty = puts.length === 0 && (rest.deletes.length !== 1 || rest.deleted === 0);
  if (done[0] === revision || (mayBeEmpty && done.length === 0)) return [];
  return [`Kept: ${id} was acknowledged at ${revision}, and is at ${at}`];
}

/** The id of the write that a value comes from. */
function writeOf(value: string): string {
  const [, id = ""] = /"write":"([^"]+)"/.exec(value) ?? [];
  return id;
}
