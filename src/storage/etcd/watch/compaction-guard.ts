import type { WatchBatch } from "../../../model/event.ts";
import { BatchQueue } from "../../batch-queue.ts";

export interface CompactionGuardDeps {
  /** Whether the state at this revision can still be read. */
  readonly isAvailable: (revision: number) => Promise<boolean>;
  /** There is something new to read. */
  readonly onReadable: () => void;
  /** What came after this revision may be incomplete: it can't be read at any more. */
  readonly onLost: (after: number) => void;
  readonly onError: (error: unknown) => void;
}

/**
 * What came of a watch and has not been read yet. What is history may be read once it is certain that nothing
 * is missing from it.
 *
 * A watch from C+1 on, C being the compacted revision, has everything. etcd goes on with one that has got to
 * C-1 too, but several versions may have dropped the deletions made at C (etcd issues 18089, 19179). So where
 * the revision that a batch follows can't be read any more after the batch has come, it was too old.
 */
export class CompactionGuard {
  readonly #deps: CompactionGuardDeps;
  readonly #queue = new BatchQueue();
  /** How many batches, from the front, may be read. */
  #readable = 0;
  /** How many there are behind those. */
  #unconfirmed = 0;
  /** What the first of these follows. */
  #after = 0;
  #isChecking = false;
  #isClosed = false;

  constructor(deps: CompactionGuardDeps) {
    this.#deps = deps;
  }

  /** Whether nothing can be read. */
  get isEmpty(): boolean {
    return this.#readable === 0;
  }

  /** Whether so much waits that no more is to come. */
  get isFull(): boolean {
    return this.#queue.isFull;
  }

  get isHalfEmpty(): boolean {
    return this.#queue.isHalfEmpty;
  }

  /** `after` is the resume point that the batch follows, 0 if that is where history begins. */
  push(batch: WatchBatch, after: number, isHistory: boolean): void {
    this.#queue.push(batch);
    if (this.#unconfirmed === 0 && (after === 0 || !isHistory)) {
      this.#readable++;
      this.#deps.onReadable();
      return;
    }
    if (this.#unconfirmed === 0) this.#after = after;
    this.#unconfirmed++;
    if (!this.#isChecking) void this.#check();
  }

  shift(): WatchBatch | undefined {
    if (this.#readable === 0) return undefined;
    this.#readable--;
    return this.#queue.shift();
  }

  /** Takes no more, and drops what nobody can vouch for. What may be read still can be. */
  close(): void {
    this.#isClosed = true;
    this.#unconfirmed = 0;
  }

  /** Drops all. */
  clear(): void {
    this.close();
    this.#readable = 0;
    this.#queue.clear();
  }

  /** One question is enough for all that came before it: they follow that revision, or later ones. */
  async #check(): Promise<void> {
    this.#isChecking = true;
    try {
      while (this.#unconfirmed > 0) {
        const asked = this.#unconfirmed;
        const isAvailable = await this.#deps.isAvailable(this.#after);
        if (this.#isClosed) return;
        if (!isAvailable) return this.#deps.onLost(this.#after);
        this.#unconfirmed -= asked;
        this.#readable += asked;
        this.#after = this.#queue.at(this.#readable - 1)?.revision ?? this.#after;
        this.#deps.onReadable();
      }
    } catch (error) {
      if (!this.#isClosed) this.#deps.onError(error);
    } finally {
      this.#isChecking = false;
    }
  }
}
