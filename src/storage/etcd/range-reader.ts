import { historyChanged, revisionTooOld, type WatchFanoutError } from "../../base/errors.ts";
import { waitFor } from "../../base/wait.ts";
import { compacted, futureRevision, isServiceError, says } from "../../etcd/client/errors.ts";
import type { EtcdClient } from "../../etcd/client/etcd-client.ts";
import type { CallLimits, Member } from "../../etcd/client/member.ts";
import type { RangeRequest } from "../../etcd/client/requests.ts";
import type { DecodedRange } from "../../etcd/wire/range-response.ts";
import type { DecodedWatch } from "../../etcd/wire/watch-response.ts";
import type { RevisionRequirement } from "../storage.ts";

/** Maximum time to look up the compacted revision, in milliseconds. It only improves an error message. */
const compactRevisionTimeoutMs = 2_000;

/** A response, and the revision of the state that it is from. */
export interface RangeResult {
  readonly revision: number;
  readonly response: DecodedRange;
}

/**
 * Reads ranges of etcd at a required revision, and asks for etcd's revisions. A read of ANY does not return an older state than
 * one before it.
 */
export class RangeReader {
  readonly #client: EtcdClient;
  readonly #key: Buffer;
  /** The newest revision seen. */
  #newest = 0;
  /** The current lookup of the compacted revision, shared by all concurrent callers. */
  #compactRevision: Promise<number | undefined> | undefined;

  /** `key` is read for etcd's revisions: the service's user may read it, whether it exists or not. */
  constructor(client: EtcdClient, key: Buffer) {
    this.#client = client;
    this.#key = key;
  }

  /** Records a revision of etcd, and returns it. */
  seen(revision: number): number {
    this.#newest = Math.max(this.#newest, revision);
    return revision;
  }

  /** Reads once, as the requirement says. Rejects with HISTORY_CHANGED if etcd has not reached the revision. */
  async read(
    request: RangeRequest,
    at: RevisionRequirement,
    signal: AbortSignal | undefined,
  ): Promise<RangeResult> {
    if (at.match === "EXACT") return this.readAt(request, at.revision, signal);
    if (at.match === "ANY") {
      const response = await this.#client.range({ ...request, serializable: true }, signal);
      // Another member may be behind the one that sent the last response.
      if (response.revision >= this.#newest) {
        return { revision: this.seen(response.revision), response };
      }
    }
    const response = await this.#client.range(request, signal);
    const revision = this.seen(response.revision);
    if (at.match === "NOT_OLDER_THAN" && at.revision > revision) {
      throw historyChanged(at.revision, revision);
    }
    return { revision, response };
  }

  /** Reads once at `revision`. Rejects with REVISION_TOO_OLD if that is compacted. */
  async readAt(
    request: RangeRequest,
    revision: number,
    signal: AbortSignal | undefined,
  ): Promise<RangeResult> {
    const response = await this.#rangeAt(request, revision, signal);
    if (response === undefined) throw await this.tooOld(revision);
    return { revision, response };
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
    const request = { key: this.#key, count_only: true };
    return (await this.#rangeAt(request, revision, signal))?.revision;
  }

  /** The error for a compacted revision, with the oldest available one if it can be found out. */
  async tooOld(requested: number): Promise<WatchFanoutError> {
    this.#compactRevision ??= this.#findCompactRevision().finally(() => {
      this.#compactRevision = undefined;
    });
    const oldest = await this.#compactRevision;
    // A member that is behind the one that refused the read may return the revision of an earlier compaction.
    return revisionTooOld(
      requested,
      oldest !== undefined && oldest > requested ? oldest : undefined,
    );
  }

  /** Undefined: the revision is compacted. Rejects with HISTORY_CHANGED if etcd has not reached it. */
  async #rangeAt(
    request: RangeRequest,
    revision: number,
    signal: AbortSignal | undefined,
  ): Promise<DecodedRange | undefined> {
    try {
      // Linearizable, as a member that is behind does not have the revision yet.
      return await this.#client.range({ ...request, revision }, signal);
    } catch (error) {
      if (!isServiceError(error)) throw error;
      if (says(error.details, compacted)) return undefined;
      if (!says(error.details, futureRevision)) throw error;
      throw historyChanged(revision, await this.current(signal));
    }
  }

  /**
   * The revision of etcd's last compaction, which is the oldest that can be read or watched from; undefined if it can't
   * be found out now. No call returns it, but etcd cancels a watch from before it with that revision. There is at most
   * one such stream at a time, which bounds what clients that read old revisions cost etcd.
   */
  #findCompactRevision(): Promise<number | undefined> {
    const { clock } = this.#client;
    const stopping = new AbortController();
    return waitFor<number | undefined>(
      (resolve) => {
        this.#client
          .onSomeMember((member, limits) => this.#cancelledAt(member, limits), stopping.signal)
          .then(resolve, () => resolve(undefined));
        return () => stopping.abort();
      },
      { deadline: { clock, ms: compactRevisionTimeoutMs, expire: () => undefined } },
    );
  }

  async #cancelledAt(member: Member, limits: CallLimits): Promise<number | undefined> {
    const call = await this.#client.openWatch(member, limits);
    return waitFor<number | undefined>(
      (resolve, reject) => {
        call.on("error", reject);
        call.on("end", () => resolve(undefined));
        call.on("data", (response: DecodedWatch) => {
          if (response.canceled) resolve(response.compactRevision || undefined);
          else if (!response.created) resolve(undefined); // nothing has been compacted
        });
        call.write({ create_request: { key: this.#key, start_revision: 1 } });
        return () => call.cancel();
      },
      { signal: limits.signal },
    );
  }
}
