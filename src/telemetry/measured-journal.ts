import type { Meter } from "@opentelemetry/api";
import type { Clock } from "../base/clock.ts";
import { messageOf } from "../base/errors.ts";
import { counter, gauge, registerMetrics } from "../base/metric-table.ts";
import type { DataFileReport } from "../server/admin/status/status.ts";
import type { Journal, JournalEntry } from "../storage/journal/journal.ts";
import { LatencyBuckets, quantilesOf } from "./stage-latency.ts";

/** In seconds: from a commit that is not synced to a disk that is held up. */
const boundaries = [
  0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10,
];

/** A journal whose commits are measured. */
export class MeasuredJournal implements Journal {
  readonly #journal: Journal;
  readonly #maxBytes: number;
  readonly #clock: Clock;
  readonly #buckets = new LatencyBuckets(boundaries);
  readonly #record: (seconds: number) => void;
  /** Number of commits that were kept, and of those that were not. */
  #commits = 0;
  #failures = 0;
  #lastFailure: DataFileReport["lastFailure"];

  /** `maxBytes`: size of the file above which commits fail. `isDetached`: whether the file is not the one at its path any more. */
  constructor(
    journal: Journal,
    maxBytes: number,
    clock: Clock,
    meter: Meter,
    isDetached: () => boolean,
  ) {
    this.#journal = journal;
    this.#maxBytes = maxBytes;
    this.#clock = clock;
    const duration = meter.createHistogram("watch_fanout_data_commit_duration_seconds", {
      unit: "s",
      description:
        "Time until a commit of the embedded store is kept, with --data-sync full on the disk.",
      advice: { explicitBucketBoundaries: boundaries },
    });
    this.#record = (seconds) => duration.record(seconds);
    registerMetrics(meter, () => [[this]], {
      watch_fanout_data_file_bytes: gauge(
        "By",
        "Size of the embedded store's file.",
        ({ bytes }) => bytes,
      ),
      watch_fanout_data_limit_bytes: gauge(
        "By",
        "Size of that file above which writes are refused.",
        () => maxBytes,
      ),
      watch_fanout_data_file_detached: gauge(
        "1",
        "1 while writes are refused because the file of the embedded store was moved, deleted or replaced while it is in use.",
        () => (isDetached() ? 1 : 0),
      ),
      watch_fanout_data_revision: gauge(
        "{revision}",
        "Newest revision that the embedded store has kept.",
        ({ revision }) => revision,
      ),
      watch_fanout_data_oldest_revision: gauge(
        "{revision}",
        "Oldest revision of the embedded store that can be read and watched from.",
        ({ oldest }) => oldest,
      ),
      watch_fanout_data_commits_failed: counter(
        "{commit}",
        "Commits of the embedded store that were not kept.",
        (journal) => journal.#failures,
      ),
    });
  }

  /** What the status shows. */
  report(): Omit<DataFileReport, "path"> {
    const { revision, oldest: oldestRevision, bytes } = this;
    return {
      ...{ bytes, maxBytes: this.#maxBytes, revision, oldestRevision, commits: this.#commits },
      commitLatency: quantilesOf(boundaries, this.#buckets.counts()),
      lastFailure: this.#lastFailure,
    };
  }

  async commit(entries: readonly JournalEntry[]): Promise<void> {
    const began = this.#clock.now();
    try {
      await this.#journal.commit(entries);
    } catch (error) {
      this.#failures++;
      this.#lastFailure = { at: new Date().toISOString(), text: messageOf(error) };
      throw error;
    }
    this.#commits++;
    const seconds = (this.#clock.now() - began) / 1_000;
    this.#record(seconds);
    this.#buckets.record(seconds);
  }

  get historyId(): string {
    return this.#journal.historyId;
  }

  get revision(): number {
    return this.#journal.revision;
  }

  get oldest(): number {
    return this.#journal.oldest;
  }

  get bytes(): number {
    return this.#journal.bytes;
  }

  objects(signal?: AbortSignal): ReturnType<Journal["objects"]> {
    return this.#journal.objects(signal);
  }

  leases(): ReturnType<Journal["leases"]> {
    return this.#journal.leases();
  }

  requests(): ReturnType<Journal["requests"]> {
    return this.#journal.requests();
  }

  changesAfter(
    request: Parameters<Journal["changesAfter"]>[0],
  ): ReturnType<Journal["changesAfter"]> {
    return this.#journal.changesAfter(request);
  }

  page(request: Parameters<Journal["page"]>[0]): ReturnType<Journal["page"]> {
    return this.#journal.page(request);
  }

  history(request: Parameters<Journal["history"]>[0]): ReturnType<Journal["history"]> {
    return this.#journal.history(request);
  }

  backup(path: string, signal?: AbortSignal): Promise<void> {
    return this.#journal.backup(path, signal);
  }

  close(): Promise<void> {
    return this.#journal.close();
  }
}
