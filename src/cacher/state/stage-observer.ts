/**
 * Observes how long events take to each stage of a Cacher, in milliseconds since they arrived from the storage. Its methods
 * must not throw.
 */
export interface StageObserver {
  /** A batch of events is in the cache. Called for a sample of the batches: all, or about 100 per second. */
  applied?(latencyMs: number): void;
  /** Every live watcher was offered the events of a dispatch round. Called for each round, with its oldest event. */
  dispatched?(latencyMs: number): void;
  /** A live watcher's client reads a batch of events. Called for a sample, as `applied` is. */
  delivered?(latencyMs: number): void;
}
