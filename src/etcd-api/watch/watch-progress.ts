import type { ClientWatch } from "./client-watch.ts";
import type { RelayedWatches } from "./relayed-watches.ts";
import type { StreamSender } from "./stream-sender.ts";
import { type Answer, noWatchId } from "./watch-response.ts";
import type { WatchService } from "./watch-service.ts";

/** What the progress of a stream needs of it. */
interface WatchProgressDeps {
  readonly shared: WatchService;
  readonly sender: StreamSender;
  readonly watches: ReadonlyMap<bigint, ClientWatch>;
  readonly relayed: RelayedWatches;
  /** Sends a response to the client. */
  readonly answer: (answer: Answer, revision: number) => void;
}

/** Reports to a client up to which revision its watches have received everything: regularly, and when it asks. */
export class WatchProgress {
  readonly #deps: WatchProgressDeps;
  /** The client waits for progress: until the caches and etcd have answered, and until everything is sent. */
  #state: "none" | "asked" | "due" = "none";
  /** The highest revision that clients knew of when it asked. */
  #floor = 0;

  constructor(deps: WatchProgressDeps) {
    this.#deps = deps;
  }

  /**
   * Sends the progress of each watch that asked for it and is synced, unless it has sent events since the last call. Nothing
   * to a client that has not accepted what it was sent before: it would wait here.
   */
  notify(floor: number): void {
    const { sender, watches, answer } = this.#deps;
    if (sender.answers > 0) return;
    for (const watch of watches.values()) {
      if (!watch.request.progressNotify || watch.watcher === undefined) continue;
      const revision = watch.syncedRevision;
      if (!watch.isActive && revision !== undefined && revision >= floor) {
        answer({ watchId: watch.id }, revision);
      }
      watch.isActive = false;
    }
  }

  /**
   * The client asks for the progress of all watches. It gets an answer when the caches and etcd are at etcd's revision, if
   * then all watches are synced; otherwise not at all.
   */
  request(): void {
    const { shared, sender, watches, relayed } = this.#deps;
    // etcd does not answer while a watch is not synced.
    if (this.#state === "asked") relayed.requestProgress();
    if (watches.size === 0 || this.#state !== "none") return;
    this.#state = "asked";
    this.#floor = shared.floor;
    const reached = [shared.reachCurrentRevision(watches.values()), relayed.reachProgress()];
    // Neither rejects.
    void Promise.all(reached).then(() => {
      this.#state = "due";
      sender.pump();
    });
  }

  /** Nothing waits to be sent. */
  onIdle(): void {
    if (this.#state !== "due") return;
    this.#state = "none";
    const revision = this.#reached();
    if (revision !== undefined) this.#deps.answer({ watchId: noWatchId }, revision);
  }

  /**
   * The revision up to which all watches are synced; undefined: some are not. It is at least the one that clients knew of
   * when it was asked for: under a load of writes the newest one is always ahead.
   */
  #reached(): number | undefined {
    const { watches, relayed } = this.#deps;
    let least = Infinity;
    for (const watch of watches.values()) {
      const isRelayed = watch.upstreamId !== undefined && watch.isAnnounced;
      const revision = isRelayed ? relayed.progress : watch.syncedRevision;
      if (revision === undefined || !watch.isSyncedAt(revision)) return undefined;
      least = Math.min(least, revision);
    }
    return least >= this.#floor && least !== Infinity ? least : undefined;
  }
}
