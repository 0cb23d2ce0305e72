import { Delayed } from "./delaying-queue.ts";

/** The state of one key in a work queue. */
export class Entry<K> extends Delayed {
  readonly item: unknown;
  /** Of equal keys, the one that was added last. */
  key: K;
  /** Must be processed, or processed again after the run in progress. */
  dirty = false;
  processing = false;
  /** When it became dirty and when it was handed out, by the clock in milliseconds. */
  addedAt = 0;
  takenAt = 0;

  constructor(item: unknown, key: K) {
    super();
    this.item = item;
    this.key = key;
  }
}
