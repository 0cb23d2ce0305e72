import {
  historyChanged,
  revisionTooOld,
  upstreamUnavailable,
  type WatchFanoutError,
} from "../../base/errors.ts";
import type { DecodedWatch } from "../wire/watch-response.ts";
import { compacted, futureRevision, isServiceError, says } from "./errors.ts";
import type { EtcdClient } from "./etcd-client.ts";
import type { CallLimits, Member } from "./member.ts";

/** Maximum time to look up the compacted revision, in milliseconds. It only improves an error message. */
const compactRevisionTimeoutMs = 2_000;

/** Queries etcd's revisions by reading one key, which the service's user may read, whether it exists or not. */
export class RevisionProbe {
  readonly #client: EtcdClient;
  readonly #key: Buffer;
  /** The current lookup of the compacted revision, shared by all concurrent callers. */
  #compactRevision: Promise<number | undefined> | undefined;

  constructor(client: EtcdClient, key: Buffer) {
    this.#client = client;
    this.#key = key;
  }

  /** etcd's own revision, linearizable. */
  async current(signal: AbortSignal | undefined): Promise<number> {
    const { revision } = await this.#client.range({ key: this.#key, count_only: true }, signal);
    return revision;
  }

  /** The same, from this member. */
  async currentOn(member: Member, limits: CallLimits): Promise<number> {
    const request = { key: this.#key, count_only: true };
    const { revision } = await this.#client.rangeOn(member, request, limits);
    return revision;
  }

  /** Whether the state at this revision can still be read. Rejects as `currentWith`. */
  async isAvailable(revision: number, signal: AbortSignal | undefined): Promise<boolean> {
    return (await this.currentWith(revision, signal)) !== undefined;
  }

  /**
   * etcd's own revision, linearizable, when the state at this revision can be read; undefined: it is compacted. Rejects with
   * HISTORY_CHANGED if etcd has not reached the revision.
   */
  async currentWith(
    revision: number,
    signal: AbortSignal | undefined,
  ): Promise<number | undefined> {
    try {
      const request = { key: this.#key, count_only: true, revision };
      return (await this.#client.range(request, signal)).revision;
    } catch (error) {
      if (isServiceError(error) && says(error.details, compacted)) return undefined;
      throw await this.ofAnotherHistory(error, revision, signal);
    }
  }

  /** What an error of a read at this revision is: HISTORY_CHANGED if etcd has not reached it, otherwise the error itself. */
  async ofAnotherHistory(
    error: unknown,
    revision: number,
    signal: AbortSignal | undefined,
  ): Promise<unknown> {
    if (!isServiceError(error) || !says(error.details, futureRevision)) return error;
    return historyChanged(revision, await this.current(signal));
  }

  /** The error for a compacted revision, with the oldest available one if it can be found out. */
  async tooOld(requested: number): Promise<WatchFanoutError> {
    const oldest = await this.compactRevision();
    // A member that is behind the one that refused the read may return the revision of an earlier compaction.
    return revisionTooOld(
      requested,
      oldest !== undefined && oldest > requested ? oldest : undefined,
    );
  }

  /**
   * The revision of etcd's last compaction, which is the oldest that can be read or watched from; undefined if it can't
   * be found out now. No call returns it, but etcd cancels a watch from before it with that revision. There is at most
   * one such stream at a time, which bounds what clients that read old revisions cost etcd.
   */
  compactRevision(): Promise<number | undefined> {
    this.#compactRevision ??= this.#findCompactRevision().finally(() => {
      this.#compactRevision = undefined;
    });
    return this.#compactRevision;
  }

  async #findCompactRevision(): Promise<number | undefined> {
    const { clock } = this.#client;
    const stopping = new AbortController();
    const timer = clock.setTimeout(
      () =>
        stopping.abort(upstreamUnavailable("etcd did not return its compacted revision in time.")),
      compactRevisionTimeoutMs,
    );
    try {
      return await this.#client.onSomeMember(
        (member, limits) => this.#cancelledAt(member, limits),
        stopping.signal,
      );
    } catch {
      return undefined;
    } finally {
      timer.cancel();
    }
  }

  async #cancelledAt(member: Member, limits: CallLimits): Promise<number | undefined> {
    const call = await this.#client.openWatch(member, limits);
    let onAbort = (): void => {};
    try {
      return await new Promise((resolve, reject) => {
        onAbort = () => reject(limits.signal?.reason);
        limits.signal?.addEventListener("abort", onAbort);
        call.on("error", reject);
        call.on("end", () => resolve(undefined));
        call.on("data", (response: DecodedWatch) => {
          if (response.canceled) resolve(response.compactRevision || undefined);
          else if (!response.created) resolve(undefined); // nothing has been compacted
        });
        call.write({ create_request: { key: this.#key, start_revision: 1 } });
      });
    } finally {
      limits.signal?.removeEventListener("abort", onAbort);
      call.cancel();
    }
  }
}
