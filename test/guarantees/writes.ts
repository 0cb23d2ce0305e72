import type { Change } from "./recording.ts";

/** A writer's record of one write. */
export interface Write {
  /** Stands in the values that it writes, as `"write":"ID"`, and in no other. */
  readonly id: string;
  /** The value that it puts under every key. */
  readonly keys: readonly string[];
  /** Whether it went through the service, or to the store itself. */
  readonly way: "service" | "direct";
  /** The histories of the store when it began and when it ended. */
  readonly fromEra: number;
  toEra: number;
  /** The outcome that the writer received: done, not done, or unknown. */
  outcome: "acknowledged" | "refused" | "unknown";
  /** Of an acknowledged write. */
  revision?: number | undefined;
  /** Of one that was acknowledged by the service: the history that it said its revision is of. */
  historyId?: string | undefined;
  /** Why it was refused, or why the outcome is unknown. */
  reason?: string | undefined;
}

/**
 * The outcome of a write is the one that its writer received, and it happened at most once: an acknowledged one
 * at its revision, a refused one never. `changes` are those of the history that it was written in.
 */
export function faithful(write: Write, changes: WritesDone): string[] {
  const done = changes.revisionsOf(write.id);
  const twice = done.length > 1 ? [`${write.id} was done ${done.length} times, at ${done}`] : [];
  if (write.outcome === "refused" && done.length > 0) {
    return [...twice, `${write.id} was refused (${write.reason}) and was done at ${done}`];
  }
  // A write that puts nothing leaves no trace.
  const isGone = write.outcome === "acknowledged" && write.keys.length > 0;
  if (!isGone || done.includes(write.revision ?? 0)) return twice;
  return [...twice, `${write.id} was acknowledged at ${write.revision} and was done at [${done}]`];
}

/** Where each write was done. */
export class WritesDone {
  readonly #revisions = new Map<string, number[]>();

  constructor(changes: readonly Change[]) {
    for (const { after, revision } of changes) {
      if (after?.modRevision !== revision) continue;
      const [, id] = /"write":"([^"]+)"/.exec(after.value) ?? [];
      if (id === undefined) continue;
      const revisions = this.#revisions.get(id) ?? [];
      if (revisions.at(-1) !== revision) revisions.push(revision);
      this.#revisions.set(id, revisions);
    }
  }

  revisionsOf(id: string): readonly number[] {
    return this.#revisions.get(id) ?? [];
  }
}
