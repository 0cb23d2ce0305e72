import { Delayed } from "./delay-heap.ts";

/** All that a work queue knows of one key. */
export class Entry<K> extends Delayed {
  readonly item: unknown;
  /** Of keys that are the same, the one that was added last. */
  key: K;
  /** To be worked on, or once more after what is going on now. */
  dirty = false;
  processing = false;
  /** When it became dirty and when it was handed out, on the clock. */
  addedAt = 0;
  takenAt = 0;

  constructor(item: unknown, key: K) {
    super();
    this.item = item;
    this.key = key;
  }
}
