import type { WatchBatch } from "../../model/event.ts";
import { BatchQueue } from "../batch-queue.ts";

interface CompactionGuardDeps {
  /** Whether the state at this revision can still be read. */
  readonly isAvailable: (revision: number) => Promise<boolean>;
  /** Called when there is something new to read. */
  readonly onReadable: () => void;
  /** Called when events after this revision may be missing, as it is compacted. */
  readonly onLost: (after: number) => void;
  readonly onError: (error: unknown) => void;
}

/**
 * The unread batches of a watch. Historical batches may be read once it is certain that no event is missing from them.
 *
 * A watch from C+1 on, C being the compacted revision, has everything. etcd continues a watch that has got to C-1, too,
 * but several versions may have dropped the deletions at C (etcd issues 18089, 19179). So if the revision before a
 * batch is compacted when the batch has come, the watch was too old.
 */
export class CompactionGuard {
  readonly #deps: CompactionGuardDeps;
  readonly #queue: BatchQueue;
  /** Number of batches, from the front, that may be read. */
  #readable = 0;
  /** Number of batches after those. */
  #unconfirmed = 0;
  /** The resume point before the first unconfirmed batch. */
  #after = 0;
  #isChecking = false;
  #isClosed = false;

  /** `maxBytes`: see `WatchRequest.maxHeldBytes`. */
  constructor(deps: CompactionGuardDeps, maxBytes?: number) {
    this.#deps = deps;
    this.#queue = new BatchQueue(maxBytes);
  }

  /** Whether there is nothing to read. */
  get isEmpty(): boolean {
    return this.#readable === 0;
  }

  /** Whether the source should be paused. */
  get isFull(): boolean {
    return this.#queue.isFull;
  }

  get isHalfEmpty(): boolean {
    return this.#queue.isHalfEmpty;
  }

  /** `after` is the resume point before the batch; 0 at the beginning of history. */
  push(batch: WatchBatch, after: number, isHistorical: boolean): void {
    this.#queue.push(batch);
    if (this.#unconfirmed === 0 && (after === 0 || !isHistorical)) {
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

  /** Takes no more batches and drops the unconfirmed ones. Confirmed ones can still be read. */
  close(): void {
    this.#isClosed = true;
    this.#unconfirmed = 0;
  }

  /** Drops everything. */
  clear(): void {
    this.close();
    this.#readable = 0;
    this.#queue.clear();
  }

  /** One check confirms all batches that came before it: they follow that revision, or later ones. */
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
