/**
 * Where a watcher is.
 *
 * - `starting`: waits for the cache to reach the revision that it begins after. Then: catching up.
 * - `initial`: its reader takes the initial state. Then: catching up, or starting.
 * - `catching up`: its reader takes from history what came since. Once level with the dispatcher: live.
 * - `live`: the dispatcher puts batches into its input. When that is full: stalled.
 * - `stalled`: has missed what came after what is in its input. Its reader takes what is there and is then
 *   catching up.
 * - `ended`: gets no more. What is in its input can still be read.
 */
export type WatcherState = "starting" | "initial" | "catching up" | "live" | "stalled" | "ended";
