import {
  revisionTooOld,
  upstreamUnavailable,
  type WatchFanoutError,
} from "../../../base/errors.ts";
import { compacted, isServiceError, says } from "./errors.ts";
import type { EtcdClient } from "./etcd-client.ts";
import type { CallLimits, Member } from "./member.ts";
import type { DecodedWatch } from "./responses.ts";

/** How long to look for the compacted revision, in milliseconds: it is only good to know. */
const compactRevisionTimeoutMs = 2_000;

/**
 * Questions about etcd's revisions, answered by reading one key: one that the service's user may read,
 * whether it exists or not.
 */
export class RevisionProbe {
  readonly #client: EtcdClient;
  readonly #key: Buffer;
  /** The question for the compacted revision that is under way, which all who ask meanwhile share. */
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

  /** The same, asked of this member. */
  async currentOn(member: Member, limits: CallLimits): Promise<number> {
    const request = { key: this.#key, count_only: true };
    const { revision } = await this.#client.rangeOn(member, request, limits);
    return revision;
  }

  /** Whether the state at this revision can still be read. */
  async isAvailable(revision: number, signal: AbortSignal): Promise<boolean> {
    try {
      await this.#client.range({ key: this.#key, count_only: true, revision }, signal);
      return true;
    } catch (error) {
      if (isServiceError(error) && says(error.details, compacted)) return false;
      throw error;
    }
  }

  /** That this revision is compacted, with the oldest that is not, where that can be found out. */
  async tooOld(requested: number): Promise<WatchFanoutError> {
    const oldest = await this.compactRevision();
    // A member that is behind the one that refused tells of an earlier compaction still.
    return revisionTooOld(
      requested,
      oldest !== undefined && oldest > requested ? oldest : undefined,
    );
  }

  /**
   * The revision that etcd was last compacted at, so the oldest that can be read at or watched from;
   * undefined if it can't be found out now. No call tells it, but etcd cancels a watch from before it
   * with that revision. One stream at a time, however many ask: a client that reads at old revisions costs etcd
   * no more than that.
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
        stopping.abort(upstreamUnavailable("etcd did not tell its compacted revision in time.")),
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
