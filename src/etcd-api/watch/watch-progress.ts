import type { Clock } from "../../base/clock.ts";
import { runInTimeSlices, type TimeSlicedWork } from "../../base/event-loop-turns.ts";
import type { ClientWatch } from "./client-watch.ts";
import type { UpstreamWatches } from "./upstream-watches.ts";
import type { WatchService } from "./watch-service.ts";

/** What a progress needs of its stream. */
interface ProgressOwner {
  readonly service: WatchService;
  /** Those that are created. */
  readonly watches: ReadonlyMap<bigint, ClientWatch>;
  readonly upstream: Pick<UpstreamWatches, "reachProgress" | "requestProgress">;
  /** Whether the client is another watch-fanout. */
  readonly isFollower: boolean;
  /** There may be something to send. */
  pump(): void;
  /** Reports the progress of one watch, behind the answers before. */
  report(watch: ClientWatch): void;
  /** Sends the progress of all watches, behind the answers before. */
  reportAll(revision: number): void;
}

/**
 * Answers a client's requests for the progress of all watches of a call of etcd's Watch. It gets an answer when the caches and
 * etcd are at etcd's revision, if then all watches are synced that it had; otherwise not at all. Requests that come before that
 * answer have one of their own, together.
 */
export class WatchProgress {
  readonly #stream: ProgressOwner;
  readonly #clock: Clock;
  /** The client waits for progress: until the caches and etcd have answered, until everything is sent, for its answers. */
  #state: "none" | "asked" | "due" | "answering" = "none";
  /** The highest revision that clients knew of when it asked. */
  #floor = 0;
  /** The highest revision up to which another watch-fanout was answered without a question to etcd. */
  #followedUpTo = 0;
  /** Whether the client asked again since: an answer on its way may be of a revision from before that. */
  #isRepeated = false;

  constructor(stream: ProgressOwner, clock: Clock) {
    this.#stream = stream;
    this.#clock = clock;
  }

  /** The client asks for progress. */
  request(): void {
    const { service, watches, upstream } = this.#stream;
    // etcd does not answer while a watch is not synced.
    if (this.#state === "asked") upstream.requestProgress();
    this.#isRepeated = this.#state !== "none";
    if (watches.size === 0 || this.#isRepeated) return;
    this.#state = "asked";
    this.#floor = service.floor;
    for (const watch of watches.values()) watch.isAwaited = true;
    const reached = [this.#reach(this.#floor), upstream.reachProgress(this.#floor)];
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
  answer(): void {
    if (this.#state !== "due") return;
    const revision = this.#syncedRevision();
    if (revision === "several") {
      this.#state = "answering";
      runInTimeSlices(this.#clock, this.#reportEach());
      return;
    }
    if (revision !== undefined) {
      for (const watch of this.#stream.watches.values()) watch.sent = revision;
      this.#stream.reportAll(revision);
    }
    this.#answered();
  }

  /**
   * Another watch-fanout has asked for the current revision before, mostly here, and wants the events up to it: so only one
   * question reaches etcd, however many tiers there are. If the answer does not suffice, it asks again.
   */
  #reach(floor: number): Promise<void> {
    const { service, watches, isFollower } = this.#stream;
    if (!isFollower || floor <= this.#followedUpTo)
      return service.reachCurrentRevision(watches.values());
    this.#followedUpTo = floor;
    return service.reachKnownRevision(watches.values(), floor);
  }

  /** Asks again if the client has. */
  #answered(): void {
    this.#state = "none";
    if (this.#isRepeated) this.request();
  }

  /** Reports the progress of each watch that is synced at its turn. */
  *#reportEach(): TimeSlicedWork<void> {
    for (const watch of this.#stream.watches.values()) {
      if (watch.syncedRevision !== undefined) this.#stream.report(watch);
      yield;
    }
    this.#answered();
  }

  /**
   * The revision up to which all watches are synced, if none was sent more. "several" also if watches that were created since
   * the request are not synced: etcd has answered the request before. Undefined: others are not synced, or are behind what
   * clients knew of when progress was requested: under a load of writes the newest one is always ahead.
   */
  #syncedRevision(): number | "several" | undefined {
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
}
