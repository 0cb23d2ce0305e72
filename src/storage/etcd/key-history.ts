import { hasReason, WatchFanoutError } from "../../base/errors.ts";
import type { EtcdClient } from "../../etcd/client/etcd-client.ts";
import type { StoredObject } from "../../model/object.ts";
import { Slabs } from "../../model/slabs.ts";
import { HistoryPage, isCreation } from "../history-page.ts";
import type { HistoryRequest, HistoryResult } from "../storage.ts";
import { DeletionSearch, type DeletionSearchDeps } from "./deletion-search.ts";
import { storedObject } from "./objects/decode.ts";
import type { ResourceKeys } from "./objects/resource-keys.ts";
import type { RangeReader } from "./range-reader.ts";

/** Time after which a page is not continued, in milliseconds: a slow etcd makes pages short. */
const pageMs = 2_000;

interface KeyHistoryDeps {
  readonly client: EtcdClient;
  readonly keys: ResourceKeys;
  readonly reader: RangeReader;
  /** Opens a watch of a key's deletions after one revision, up to another. */
  readonly openDeletions: (
    key: string,
    after: number,
    upTo: number,
  ) => ReturnType<DeletionSearchDeps["open"]>;
}

/** The state of a key at one revision. */
interface KeyState {
  /** etcd's revision when it was read, which is at least the state's. */
  readonly current: number;
  readonly object: StoredObject | undefined;
}

/**
 * Reads the history of a key in etcd, from the newest change to the oldest: the object as it is says which revision has
 * written it, and a read just before that returns the object before. Each costs etcd the same, whatever else it stores.
 * Reads do not show deletions: where an object was created, they are searched (DeletionSearch).
 */
export class KeyHistory {
  readonly #deps: KeyHistoryDeps;

  constructor(deps: KeyHistoryDeps) {
    this.#deps = deps;
  }

  /** See Storage. Rejects with UPSTREAM_UNAVAILABLE only if it has found nothing; otherwise the page is short. */
  async read(request: HistoryRequest): Promise<HistoryResult> {
    const { client, keys } = this.#deps;
    const { key, upTo, owner = request, signal } = request;
    const endsAt = client.clock.now() + pageMs;
    const first = await this.#stateAt(request, upTo);
    const revision = upTo ?? first.current;
    const page = new HistoryPage(request);
    if (keys.isMarker(keys.absolute(key))) return page.finished(revision, revision);
    const open: DeletionSearchDeps["open"] = (after, end) =>
      this.#deps.openDeletions(key, after, end);
    const deletions = new DeletionSearch({ client, open, owner, signal });
    let { object, current } = first;
    /** The page has all changes after this revision. */
    let at = revision;
    try {
      for (;;) {
        if (object === undefined) {
          const deleted = await deletions.latest(at, current);
          if (deleted === undefined) {
            return page.finished(revision, deletions.after, deletions.isLimited);
          }
          ({ object, current } = await this.#stateAt(request, deleted - 1));
          if (object === undefined) throw inconsistent();
          if (!page.addDeletion(object, deleted)) return page.continued(revision, deleted);
          at = deleted - 1;
        }
        if (object.modRevision > at) throw inconsistent();
        if (!page.addPut(object)) return page.continued(revision, at);
        at = object.modRevision - 1;
        if (at < 1) return page.finished(revision, 1);
        if (page.isFull || client.clock.now() > endsAt) return page.continued(revision, at);
        if (isCreation(object)) object = undefined;
        else {
          ({ object } = await this.#stateAt(request, at));
          if (object === undefined) throw inconsistent();
        }
      }
    } catch (error) {
      if (hasReason(error, "REVISION_TOO_OLD")) {
        return page.finished(revision, Number(error.metadata["oldest_revision"] ?? at + 1));
      }
      if (hasReason(error, "UPSTREAM_UNAVAILABLE") && !page.isEmpty) {
        return page.continued(revision, at);
      }
      throw error;
    }
  }

  /** Reads the key at a revision; undefined: at the current one, linearizable. */
  async #stateAt(
    { key, keysOnly = false, signal }: HistoryRequest,
    revision: number | undefined,
  ): Promise<KeyState> {
    const { keys, reader } = this.#deps;
    const range = { key: keys.absolute(key), keys_only: keysOnly };
    const { response } = await (revision === undefined
      ? reader.read(range, { match: "LINEARIZABLE" }, signal)
      : reader.readAt(range, revision, signal));
    const kv = response.kvs.at(0);
    const object = kv && storedObject(key, kv, keys.prefixBytes, new Slabs(0));
    return { current: response.revision, object };
  }
}

/** Two reads that no etcd can answer so while it has one history. */
function inconsistent(): WatchFanoutError {
  return new WatchFanoutError(
    "HISTORY_CHANGED",
    "The revisions of the object contradict each other: etcd was restored during the read. Read its history again.",
    { metadata: { history_id: "" } },
  );
}
