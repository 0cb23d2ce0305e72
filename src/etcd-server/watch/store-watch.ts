import { hasReason } from "../../base/errors.ts";
import { etcdFramesOf, previousUnknown } from "../../etcd/wire/watch-events.ts";
import type { CreateRequest } from "../../etcd/wire/watch-request.ts";
import { watchIdField } from "../../etcd/wire/watch-response.ts";
import { WatchBatch, WatchEvent } from "../../model/event.ts";
import type { MemoryWatch } from "../../storage/memory/memory-watch.ts";
import { prefixSize } from "../../wire/encode.ts";
import type { Keys } from "../kv/key-interval.ts";
import { none } from "../protocol/fields.ts";
import type { ServedStore } from "../protocol/served-store.ts";

/** Number of objects that are read in one step. */
const pageSize = 10_000;

/** One watch of a client's stream. Nothing is queued for it: it is a position in the store's history. */
export class StoreWatch {
  readonly id: bigint;
  readonly idField: Buffer;
  readonly request: CreateRequest;
  /** Events of lower revisions are not sent. */
  readonly from: number;
  readonly #served: ServedStore;
  readonly #keys: Keys;
  readonly #onReadable: () => void;
  #stream: MemoryWatch | undefined;
  /** Whether progress was requested before it had begun. */
  #isProgressWanted = false;
  /** What the oldest revision has of its own, which the history has no more. */
  #first: WatchBatch | undefined;
  #isClosed = false;
  /** Whether it is among those that may have something to send. */
  isQueued = false;
  /** Whether a progress request waits for it. */
  isAwaited = false;
  /** Whether it is to report its progress, unless it has events. */
  owesProgress = false;
  /** Whether it has sent anything since the last round of progress notifications. */
  isActive = true;

  constructor(
    id: bigint,
    request: CreateRequest,
    keys: Keys,
    served: ServedStore,
    onReadable: (watch: StoreWatch) => void,
  ) {
    this.id = id;
    this.idField = watchIdField(id);
    this.request = request;
    this.from = request.startRevision === 0 ? served.revision + 1 : request.startRevision;
    this.#served = served;
    this.#keys = keys;
    this.#onReadable = () => onReadable(this);
  }

  /** Begins. Call it once, when the client knows of the watch. */
  start(): void {
    const { oldest } = this.#served;
    if (this.from === oldest) this.#startAtOldest(oldest);
    else this.#follow(this.from - 1);
  }

  /** A batch has to come soon, with or without events. */
  requestProgress(): void {
    this.#isProgressWanted = this.#stream === undefined;
    this.#stream?.requestProgress();
  }

  /** Its next batch; undefined: there is none now. */
  read(): WatchBatch | undefined {
    const first = this.#first;
    this.#first = undefined;
    return first ?? this.#stream?.read();
  }

  /** The messages of a batch, without gRPC's prefix. */
  *messagesOf(batch: WatchBatch): Generator<Buffer, void, void> {
    const header = (revision: number): Buffer => this.#served.header(revision);
    const { revision = 0 } = batch;
    let frames = etcdFramesOf(batch, this.request, none, header, this.from);
    // What a compaction has removed is left out.
    if (frames === previousUnknown)
      frames = etcdFramesOf(batch, this.request, none, header, this.from, revision);
    for (const frame of frames)
      yield* messagesIn(
        Buffer.from(frame.buffer, frame.byteOffset, frame.byteLength),
        this.idField,
      );
  }

  /** The compacted revision that has ended it; undefined: it has not ended, or for another reason. */
  get compactedAt(): number | undefined {
    const ended = this.#stream?.ended;
    return hasReason(ended, "REVISION_TOO_OLD") ? Math.max(1, this.#served.oldest) : undefined;
  }

  /** Why it has ended, if not by a compaction. Undefined: it has not. */
  get failure(): Error | undefined {
    const ended = this.#stream?.ended;
    return ended instanceof Error && this.compactedAt === undefined ? ended : undefined;
  }

  /** Idempotent. */
  close(): void {
    this.#isClosed = true;
    this.#stream?.close();
  }

  #follow(afterRevision: number): void {
    const { store, revision } = this.#served;
    const { withPrevious } = this.request;
    const stream = store.watch({
      scope: this.#keys,
      // Nothing was written at the first revision.
      afterRevision: Math.min(Math.max(1, afterRevision), revision),
      withPrevious,
    });
    stream.onReadable(this.#onReadable);
    if (this.#isProgressWanted) stream.requestProgress();
    this.#stream = stream;
    this.#onReadable();
  }

  /**
   * Begins at the revision of the last compaction: of its events etcd has those whose objects still exist, without what was
   * before them.
   */
  #startAtOldest(oldest: number): void {
    this.#eventsAt(oldest).then(
      (events) => {
        if (this.#isClosed) return;
        if (events.length > 0) this.#first = new WatchBatch(oldest, events);
        this.#follow(oldest);
      },
      // It was compacted further meanwhile.
      () => {
        if (!this.#isClosed) this.#follow(oldest - 1);
      },
    );
  }

  async #eventsAt(revision: number): Promise<readonly WatchEvent[]> {
    const { store, clock } = this.#served;
    const at = { match: "EXACT", revision } as const;
    const keys = this.#keys;
    const events: WatchEvent[] = [];
    if ("key" in keys) {
      const { object } = await store.get(keys.key, at);
      if (object?.modRevision === revision) events.push(asEvent(object));
      return events;
    }
    for (let startAfter: string | undefined; !this.#isClosed; ) {
      const { items, next } = await store.range({
        interval: keys,
        startAfter,
        limit: pageSize,
        at,
      });
      for (const object of items) if (object.modRevision === revision) events.push(asEvent(object));
      if (next === undefined) break;
      startAfter = next;
      await new Promise<void>((resolve) => clock.setImmediate(resolve));
    }
    return events;
  }
}

function asEvent(object: WatchEvent["object"]): WatchEvent {
  const isNew = object.createRevision === object.modRevision;
  return new WatchEvent(isNew ? "ADDED" : "MODIFIED", object, undefined);
}

/** The messages of a frame, each with a field added. */
function* messagesIn(frame: Buffer, field: Buffer): Generator<Buffer, void, void> {
  for (let at = 0; at < frame.length; ) {
    const end = at + prefixSize + frame.readUInt32BE(at + 1);
    const message = frame.subarray(at + prefixSize, end);
    yield field.length === 0 ? message : Buffer.concat([message, field]);
    at = end;
  }
}
