export interface WatcherBounds {
  /**
   * Batches that a live watcher's input holds at the least and at the most. Between them it is sized by
   * how many came of late: see BufferSizing.
   */
  readonly minBufferBatches: number;
  readonly maxBufferBatches: number;
  /** The same in bytes, by weight; one batch always has room. */
  readonly minBufferBytes: number;
  readonly maxBufferBytes: number;
  /** About how large a batch is at the most, in bytes. Only a single revision makes a larger one. */
  readonly batchBytes: number;
  /** How many events of history to look at in one go. */
  readonly scanEvents: number;
  /** Bytes that are kept beyond the event window for a watcher that takes its initial state. */
  readonly retainedEventBytes: number;
  /** Bytes that are kept for all LATEST_STATE watchers together that are behind, by weight. */
  readonly coalescedBytes: number;
  /** Bytes that old states may keep alive, which initial states are taken from, all together, by weight. */
  readonly retainedSnapshotBytes: number;
  /** How long a watcher may take nothing of what waits for it, in milliseconds. */
  readonly stallTimeoutMs: number;
}

export const defaultWatcherBounds: WatcherBounds = {
  minBufferBatches: 16,
  maxBufferBatches: 256,
  minBufferBytes: 128 * 1024,
  maxBufferBytes: 1024 * 1024,
  batchBytes: 256 * 1024,
  scanEvents: 20_000,
  retainedEventBytes: 64 * 1024 * 1024,
  coalescedBytes: 512 * 1024 * 1024,
  retainedSnapshotBytes: 512 * 1024 * 1024,
  stallTimeoutMs: 60_000,
};
