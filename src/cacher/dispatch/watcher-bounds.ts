/** Bounds on what the watchers of a Cacher may take. */
export interface WatcherBounds {
  /** Range of the buffer capacity of a live watcher, in batches. The recent event rate decides: see BufferSizing. */
  readonly minBufferBatches: number;
  readonly maxBufferBatches: number;
  /** The same in estimated bytes. An empty buffer has room for a batch of any size. */
  readonly minBufferBytes: number;
  readonly maxBufferBytes: number;
  /** Approximate maximum size of a batch, in bytes. Only a batch of a single revision is larger. */
  readonly batchBytes: number;
  /** Number of events that a watcher scans for one batch when it catches up. */
  readonly scanEvents: number;
  /**
   * Maximum bytes of the events that a watcher has yet to read, once the event window has dropped some of them. Applies
   * until it is first synced after its initial state; later it may be behind by the event window only.
   */
  readonly retainedEventBytes: number;
  /** Maximum estimated bytes of the coalesced backlogs of all LATEST_STATE watchers together. */
  readonly coalescedBytes: number;
  /** Maximum estimated bytes that the old states of initial states in delivery keep alive together. */
  readonly retainedSnapshotBytes: number;
  /** Time after which a watcher ends if its client takes nothing of what is pending, in milliseconds. */
  readonly stallTimeoutMs: number;
  /**
   * Minimum time between the beginnings of two dispatch rounds, in milliseconds. 0: a round begins as soon as there are
   * events.
   */
  readonly dispatchIntervalMs: number;
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
  dispatchIntervalMs: 0,
};
