/**
 * The state of a watcher.
 *
 * - `starting`: waits for the cache to reach the revision that it begins after. Next: initial, or catching up.
 * - `initial`: its client reads the initial state. Next: catching up, or starting.
 * - `catching up`: its client reads missed events, or the backlog of them. Next: live, at the dispatcher's position.
 * - `live`: synced. The dispatcher puts batches into its buffer. Next: stalled, when that is full, or at a relist with
 *   known changes.
 * - `stalled`: unsynced. Its client still reads the buffer, without the events after it. Next: catching up.
 * - `ended`: receives no more. Its client can still read the buffer.
 */
export type WatcherState = "starting" | "initial" | "catching up" | "live" | "stalled" | "ended";
