import type { WatchBatch, WatchEvent } from "../../model/event.ts";
import type { StoredObject } from "../../model/object.ts";
import { bytesFieldSize, WireWriter } from "../../protobuf/wire-writer.ts";
import { prefixSize } from "../../wire/encode.ts";
import { deletionSize, keyValueSize, writeDeletion, writeKeyValue } from "./key-value.ts";
import { eventsTag, fragmentTag, kvTag, previousTag, typeTag } from "./watch-response.ts";

/*
 * The events of a watch in etcd's wire format: a WatchResponse with the messages Event and KeyValue of its kv.proto.
 */

/** A response of this size is sent in fragments, if the watch allows that: etcd's default --max-request-bytes and 512 KiB. */
export const fragmentBytes = 2 * 1024 ** 2;

/**
 * Up to so many revisions of a batch have a response each, as etcd sends them to a watch that is not behind: some clients
 * rely on it, also etcd's own tests. More come in one response, as from etcd to a watch that catches up.
 */
const maxSeparate = 8;

/** Responses of no more than these bytes together are one frame, for one write. */
const joinedBytes = 4 * 1024;

/** What the responses of a watch depend on, other than its keys. */
export interface EventOptions {
  readonly withoutPuts: boolean;
  readonly withoutDeletes: boolean;
  readonly withPrevious: boolean;
  readonly fragment: boolean;
  /**
   * Whether the client is another watch-fanout. It takes a header above the first event for a sign that the events come from
   * etcd's store, which may be compacted, and asks etcd. So a response has the revision of its first event, and all revisions
   * of a batch, as the cost of the client is mostly that of a response.
   */
  readonly isFollower?: boolean | undefined;
}

/** The frames of a batch that lacks the previous value of an object, for a watch that asks for it and that etcd would send. */
export const previousUnknown: readonly Uint8Array[] = [];

/** The frames of a batch of which nothing is sent. */
const noFrames: readonly Uint8Array[] = [];

/**
 * Returns the responses for a batch, for the watch id 0, as frames: with gRPC's prefix, and several in one if they are
 * small. They are encoded once and cached in the batch, for all watches with the same options. `header` returns the field
 * with the header of a revision.
 *
 * Events before the revision `from` are left out, and previous values of those up to `compacted`. Returns `previousUnknown`
 * if that is so.
 */
export function etcdFramesOf(
  batch: WatchBatch,
  options: EventOptions,
  prefix: Buffer,
  header: (revision: number) => Buffer,
  from: number,
  compacted: number = 0,
): readonly Uint8Array[] {
  const [first] = batch.events;
  if (first === undefined) return noFrames;
  if (first.revision < from || first.revision <= compacted) {
    return encodeBatch(batch, options, prefix, header, from, compacted);
  }
  const kind = kindOf(options);
  batch.etcdFrames ??= [];
  let frames = batch.etcdFrames[kind];
  if (frames === undefined) {
    frames = encodeBatch(batch, options, prefix, header, 0, 0);
    batch.etcdFrames[kind] = frames;
  }
  return frames;
}

function kindOf(options: EventOptions): number {
  const { withoutPuts, withoutDeletes, withPrevious, fragment, isFollower } = options;
  return (
    (withoutPuts ? 1 : 0) |
    (withoutDeletes ? 2 : 0) |
    (withPrevious ? 4 : 0) |
    (fragment ? 8 : 0) |
    (isFollower === true ? 16 : 0)
  );
}

function encodeBatch(
  { events, revision = 0, isAtomic }: WatchBatch,
  options: EventOptions,
  prefix: Buffer,
  header: (revision: number) => Buffer,
  from: number,
  compacted: number,
): readonly Uint8Array[] {
  const encoder = new EventEncoder(prefix, options.fragment);
  const { isFollower = false } = options;
  const isSeparate =
    !isAtomic && !isFollower && revisionsIn(events, maxSeparate + 1) <= maxSeparate;
  const last = events.at(-1)?.revision;
  let begun = 0;
  for (const event of events) {
    if (event.revision < from) continue;
    if (begun === 0 || (isSeparate && event.revision > begun)) {
      begun = event.revision;
      // No header has a revision of which events are still to come.
      encoder.begin(header(isFollower || (isSeparate && begun !== last) ? begun : revision));
    }
    const isDelete = event.type === "DELETED";
    if (isDelete ? options.withoutDeletes : options.withoutPuts) continue;
    const { createRevision, modRevision } = event.object;
    const isCreated = createRevision === modRevision;
    if (!options.withPrevious || isCreated || event.revision <= compacted) {
      encoder.add(event, undefined);
    } else {
      if (event.previous === undefined) return previousUnknown;
      encoder.add(event, event.previous);
    }
  }
  return encoder.finish();
}

/** The number of revisions of these events; at most `limit`. */
function revisionsIn(events: readonly WatchEvent[], limit: number): number {
  let count = 0;
  let last = 0;
  for (const { revision } of events) {
    if (revision !== last) count++;
    if (count === limit) break;
    last = revision;
  }
  return count;
}

/** Collects events, and closes a fragment when the next event would not fit. */
class EventEncoder {
  readonly #prefix: Buffer;
  readonly #maxBytes: number;
  readonly #done: Uint8Array[] = [];
  #doneBytes = 0;
  #header: Buffer = Buffer.of();
  #events: WatchEvent[] = [];
  #previous: (StoredObject | undefined)[] = [];
  #sizes: number[] = [];
  #size = 0;

  constructor(prefix: Buffer, fragment: boolean) {
    this.#prefix = prefix;
    this.#maxBytes = fragment ? fragmentBytes : Infinity;
  }

  /** Begins a response with this header. */
  begin(header: Buffer): void {
    if (this.#events.length > 0) this.#close(false);
    this.#header = header;
  }

  add(event: WatchEvent, previous: StoredObject | undefined): void {
    const { length: prefixBytes } = this.#prefix;
    const size =
      (event.type === "DELETED" ? 2 + bytesFieldSize(deletionSize(prefixBytes, event.object)) : 0) +
      (event.type === "DELETED"
        ? 0
        : bytesFieldSize(keyValueSize(prefixBytes, event.object, false))) +
      (previous === undefined ? 0 : bytesFieldSize(keyValueSize(prefixBytes, previous, false)));
    const field = bytesFieldSize(size);
    const isFull = this.#header.length + this.#size + field >= this.#maxBytes;
    if (isFull && this.#events.length > 0) this.#close(true);
    this.#events.push(event);
    this.#previous.push(previous);
    this.#sizes.push(size);
    this.#size += field;
  }

  finish(): readonly Uint8Array[] {
    if (this.#events.length > 0) this.#close(false);
    const isJoined = this.#done.length > 1 && this.#doneBytes <= joinedBytes;
    return isJoined ? [Buffer.concat(this.#done, this.#doneBytes)] : this.#done;
  }

  #close(isFragment: boolean): void {
    const size = this.#header.length + (isFragment ? 2 : 0) + this.#size;
    const writer = new WireWriter(Buffer.allocUnsafe(prefixSize + size));
    writer.prefix(size);
    writer.raw(this.#header);
    writer.numberField(fragmentTag, isFragment ? 1 : 0);
    this.#events.forEach((event, i) => {
      this.#writeEvent(writer, event, this.#previous[i], this.#sizes[i] ?? 0);
    });
    this.#done.push(writer.bytes);
    this.#doneBytes += prefixSize + size;
    this.#events = [];
    this.#previous = [];
    this.#sizes = [];
    this.#size = 0;
  }

  #writeEvent(
    writer: WireWriter,
    { type, object }: WatchEvent,
    previous: StoredObject | undefined,
    size: number,
  ): void {
    writer.byte(eventsTag);
    writer.varint(size);
    if (type === "DELETED") {
      writer.byte(typeTag);
      writer.byte(1);
      // The object has its last content, of which etcd sends nothing but the key.
      writer.byte(kvTag);
      writer.varint(deletionSize(this.#prefix.length, object));
      writeDeletion(writer, this.#prefix, object);
    } else {
      this.#writeKeyValue(writer, kvTag, object);
    }
    if (previous !== undefined) this.#writeKeyValue(writer, previousTag, previous);
  }

  #writeKeyValue(writer: WireWriter, tag: number, object: StoredObject): void {
    writer.byte(tag);
    writer.varint(keyValueSize(this.#prefix.length, object, false));
    writeKeyValue(writer, this.#prefix, object);
  }
}
