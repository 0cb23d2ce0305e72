import type { Clock } from "../../base/clock.ts";
import { runInTimeSlices } from "../../base/time-slice-queue.ts";
import { type Answer, noWatchId } from "../../etcd/wire/watch-response.ts";
import type { ClientWatch } from "./client-watch.ts";
import type { EtcdWatches } from "./etcd-watches.ts";
import type { WatchResponses } from "./watch-responses.ts";
import type { WatchService } from "./watch-service.ts";

/** What the progress of a stream needs of it. */
export interface ProgressOwner extends Pick<WatchResponses, "waitingAnswers" | "pump"> {
  readonly service: WatchService;
  readonly watches: ReadonlyMap<bigint, ClientWatch>;
  readonly etcd: EtcdWatches;
  /** Sends a response to the client. */
  answer(answer: Answer, revision: number): void;
}

/** Reports to a client up to which revision its watches have received everything: regularly, and when it asks. */
export class WatchProgress {
  readonly #stream: ProgressOwner;
  readonly #clock: Clock;
  /** The client waits for progress: until the caches and etcd have answered, until everything is sent, for its answers. */
  #state: "none" | "asked" | "due" | "answering" = "none";
  /** The highest revision that clients knew of when it asked. */
  #floor = 0;
  /** Whether the client asked again since: an answer on its way may be of a revision from before that. */
  #isRepeated = false;

  constructor(stream: ProgressOwner, clock: Clock) {
    this.#stream = stream;
    this.#clock = clock;
  }

  /**
   * Sends the progress of each watch that asked for it and is synced, unless it has sent events since the last call. Nothing
   * to a client that has not accepted what it was sent before: it would wait here.
   */
  notify(floor: number): void {
    const { waitingAnswers, watches } = this.#stream;
    if (waitingAnswers > 0) return;
    for (const watch of watches.values()) {
      if (!watch.request.progressNotify || watch.watcher === undefined) continue;
      const revision = watch.syncedRevision;
      if (!watch.isActive && revision !== undefined && revision >= floor) {
        this.#report(watch, revision);
      }
      watch.isActive = false;
    }
  }

  /**
   * The client asks for the progress of all watches. It gets an answer when the caches and etcd are at etcd's revision, if
   * then all watches are synced that it had; otherwise not at all. Requests that come before that answer have one of their own, together.
   */
  request(): void {
    const { service, watches, etcd } = this.#stream;
    // etcd does not answer while a watch is not synced.
    if (this.#state === "asked") etcd.requestProgress();
    this.#isRepeated = this.#state !== "none";
    if (watches.size === 0 || this.#isRepeated) return;
    this.#state = "asked";
    this.#floor = service.floor;
    for (const watch of watches.values()) watch.isAwaited = true;
    const reached = [
      service.reachCurrentRevision(watches.values()),
      etcd.reachProgress(this.#floor),
    ];
    // Neither rejects.
    void Promise.all(reached).then(() => {
      this.#state = "due";
      this.#stream.pump();
    });
  }

  /**
   * Nothing waits to be sent. As etcd, answers for all watches at once if one revision is right for all. Otherwise each
   * watch gets its own, as with progress at intervals: under a load of writes, watches of several caches and of etcd are at
   * several revisions, and clientv3 resumes each watch from an answer for all, also if it was sent events above that.
   */
  onIdle(): void {
    const { waitingAnswers, watches } = this.#stream;
    // Behind the answer to a create request it would be taken for progress of that watch, too.
    if (this.#state !== "due" || waitingAnswers > 0) return;
    const revision = this.#commonRevision();
    if (revision === "several") {
      this.#state = "answering";
      runInTimeSlices(this.#clock, this.#reportAll());
      return;
    }
    if (revision !== undefined) {
      for (const watch of watches.values()) watch.sent = revision;
      this.#stream.answer({ watchId: BigInt(noWatchId) }, revision);
    }
    this.#answered();
  }

  /** Asks again if the client has. */
  #answered(): void {
    this.#state = "none";
    if (this.#isRepeated) this.request();
  }

  /** Reports the progress of each watch that is synced at its turn. */
  *#reportAll(): Generator<void, void, void> {
    for (const watch of this.#stream.watches.values()) {
      this.#report(watch, watch.syncedRevision);
      yield;
    }
    this.#answered();
  }

  /**
   * The revision up to which all watches are synced, if none was sent more. "several" also if watches that were created since
   * the request are not synced: etcd has answered the request before. Undefined: others are not synced, or are behind what
   * clients knew of when progress was requested: under a load of writes the newest one is always ahead.
   */
  #commonRevision(): number | "several" | undefined {
    let least = Infinity;
    let sent = this.#floor;
    let hasLater = false;
    for (const watch of this.#stream.watches.values()) {
      const { syncedRevision } = watch;
      if (syncedRevision === undefined || syncedRevision < this.#floor) {
        if (watch.isAwaited) return undefined;
        hasLater = true;
        continue;
      }
      least = Math.min(least, syncedRevision);
      sent = Math.max(sent, watch.sent);
    }
    if (least === Infinity) return undefined;
    return least >= sent && !hasLater ? least : "several";
  }

  /** Reports the progress of one watch. */
  #report(watch: ClientWatch, revision: number | undefined): void {
    if (revision === undefined) return;
    watch.sent = Math.max(watch.sent, revision);
    this.#stream.answer({ watchId: watch.id }, revision);
  }
}
