import { historyChanged } from "../../base/errors.ts";
import { compacted, isServiceError, says } from "../../etcd/client/errors.ts";
import type { EtcdClient } from "../../etcd/client/etcd-client.ts";
import type { RangeRequest } from "../../etcd/client/requests.ts";
import type { RevisionProbe } from "../../etcd/client/revision-probe.ts";
import type { DecodedRange } from "../../etcd/wire/range-response.ts";
import type { RevisionRequirement } from "../storage.ts";

/** A response, and the revision of the state that it is from. */
export interface RangeResult {
  readonly revision: number;
  readonly response: DecodedRange;
}

/** Reads ranges of etcd at a required revision. A read of ANY does not return an older state than one before it. */
export class RangeReader {
  readonly #client: EtcdClient;
  readonly #probe: RevisionProbe;
  /** The newest revision seen. */
  #newest = 0;

  constructor(client: EtcdClient, probe: RevisionProbe) {
    this.#client = client;
    this.#probe = probe;
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
    try {
      // Linearizable, as a member that is behind does not have the revision yet.
      const response = await this.#client.range({ ...request, revision }, signal);
      return { revision, response };
    } catch (error) {
      if (isServiceError(error) && says(error.details, compacted)) {
        throw await this.#probe.tooOld(revision);
      }
      throw await this.#probe.ofAnotherHistory(error, revision, signal);
    }
  }
}
