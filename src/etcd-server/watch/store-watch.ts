import { hasReason } from "../../base/errors.ts";
import { etcdFramesOf, previousUnknown } from "../../etcd/wire/watch-events.ts";
import type { CreateRequest } from "../../etcd/wire/watch-request.ts";
import { watchIdField, withFieldsInEach } from "../../etcd/wire/watch-response.ts";
import type { WatchBatch } from "../../model/event.ts";
import { none } from "../../protobuf/fields.ts";
import type { MemoryWatch } from "../../storage/memory/memory-watch.ts";
import type { FrameParts } from "../../wire/encode.ts";
import type { Keys } from "../kv/key-interval.ts";
import type { ServedStore } from "../protocol/served-store.ts";

/** One watch of a client's stream. Nothing is queued for it: it is a position in the store's history. */
export class StoreWatch {
  readonly id: bigint;
  readonly request: CreateRequest;
  /** Events of lower revisions are not sent. */
  readonly from: number;
  readonly #idField: Buffer;
  readonly #served: ServedStore;
  readonly #stream: MemoryWatch | undefined;
  /** Whether it is among those that may have something to send. */
  isQueued = false;
  /** Whether a progress request waits for it. */
  isAwaited = false;
  /** Whether it is to report its progress, unless it has events. */
  owesProgress = false;
  /** Whether it has sent anything since the last round of progress notifications. */
  isActive = true;
  /** Whether it has read everything up to the newest revision, of when it has read last. */
  isSynced: boolean;

  /** `onReadable` is called, not from within, when there is something to read or it has ended. */
  constructor(
    id: bigint,
    request: CreateRequest,
    keys: Keys,
    served: ServedStore,
    onReadable: (watch: StoreWatch) => void,
  ) {
    const { store, revision, compacted } = served;
    this.id = id;
    this.request = request;
    this.from = request.startRevision === 0 ? revision + 1 : request.startRevision;
    this.#idField = watchIdField(id);
    this.#served = served;
    this.isSynced = this.from > revision;
    if (this.from < compacted) return;
    // Nothing was written at the first revision.
    const afterRevision = Math.min(Math.max(1, this.from - 1), revision);
    const { withPrevious } = request;
    this.#stream = store.watch({ scope: keys, afterRevision, withPrevious });
    this.#stream.onReadable(() => onReadable(this));
  }

  /** A batch has to come soon, with or without events. */
  requestProgress(): void {
    this.#stream?.requestProgress();
  }

  /** Its next batch; undefined: nothing is there to be read now. */
  read(): WatchBatch | undefined {
    const batch = this.#stream?.read();
    this.isSynced =
      batch === undefined ? !this.holdsPast : (batch.revision ?? 0) >= this.#served.revision;
    return batch;
  }

  /** Whether its next changes have to be read from the journal: then `read` begins that. */
  get isBehind(): boolean {
    return this.#stream?.isBehind === true;
  }

  /** Whether it has read more from the journal than it has returned, or is reading. */
  get holdsPast(): boolean {
    return this.#stream?.holdsPast === true;
  }

  /** The responses of a batch, with gRPC's prefix. */
  *framesOf(batch: WatchBatch): Generator<FrameParts, void, void> {
    const served = this.#served;
    const header = (revision: number): Buffer => served.header(revision);
    const { from, request } = this;
    let frames = etcdFramesOf(batch, request, none, header, from, served.compacted);
    // What the store does not have any more is left out, as etcd does after a compaction.
    if (frames === previousUnknown) {
      frames = etcdFramesOf(batch, request, none, header, from, batch.revision);
    }
    const hasId = this.#idField.length > 0;
    for (const frame of frames) {
      yield hasId ? withFieldsInEach(frame, this.#idField) : [frame];
    }
  }

  /** The compacted revision that has ended it; undefined: it has not ended, or for another reason. */
  get compactedAt(): number | undefined {
    const isTooOld =
      this.#stream === undefined || hasReason(this.#stream.ended, "REVISION_TOO_OLD");
    return isTooOld ? Math.max(this.#served.compacted, this.#served.store.oldest + 1) : undefined;
  }

  /** Why it has ended, if not by a compaction. Undefined: it has not. */
  get failure(): Error | undefined {
    const ended = this.#stream?.ended;
    return ended instanceof Error && this.compactedAt === undefined ? ended : undefined;
  }

  /** Idempotent. */
  close(): void {
    this.#stream?.close();
  }
}
