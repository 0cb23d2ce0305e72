import type { WatchBatch, WatchEvent } from "../../model/event.ts";
import type { StoredObject } from "../../model/object.ts";
import { bytesFieldSize, WireWriter } from "../../protobuf/wire-writer.ts";
import { prefixSize } from "../../wire/encode.ts";
import { deletionSize, keyValueSize, writeDeletion, writeKeyValue } from "../contract/key-value.ts";

/*
 * The events of a watch in etcd's wire format: a WatchResponse with the messages Event and KeyValue of its kv.proto.
 */

/** A response of this size is sent in fragments, if the watch allows that: etcd's default --max-request-bytes and 512 KiB. */
export const fragmentBytes = 2 * 1024 ** 2;

/** What the responses of a watch depend on, other than its keys. */
export interface EventOptions {
  readonly withoutPuts: boolean;
  readonly withoutDeletes: boolean;
  readonly withPrevious: boolean;
  readonly fragment: boolean;
}

/** The frames of a batch that lacks the previous value of an object, for a watch that asks for it. */
export const previousUnknown: readonly Uint8Array[] = [];

/** The frames of a batch of which nothing is sent. */
const noFrames: readonly Uint8Array[] = [];

/**
 * Returns the responses for a batch, for the watch id 0, as frames: with gRPC's prefix. There are several if it is sent in
 * fragments. They are encoded once and cached in the batch, for all watches with the same options. `header` returns the
 * field with the header of the batch's revision.
 *
 * Events before the revision `from` are left out. Returns `previousUnknown` if that is so.
 */
export function etcdFramesOf(
  batch: WatchBatch,
  options: EventOptions,
  prefix: Buffer,
  header: (revision: number) => Buffer,
  from: number,
): readonly Uint8Array[] {
  const [first] = batch.events;
  if (first === undefined) return noFrames;
  if (first.revision < from) return encodeBatch(batch, options, prefix, header, from);
  const kind = kindOf(options);
  batch.etcdFrames ??= [];
  let frames = batch.etcdFrames[kind];
  if (frames === undefined) {
    frames = encodeBatch(batch, options, prefix, header, 0);
    batch.etcdFrames[kind] = frames;
  }
  return frames;
}

function kindOf({ withoutPuts, withoutDeletes, withPrevious, fragment }: EventOptions): number {
  return (
    (withoutPuts ? 1 : 0) | (withoutDeletes ? 2 : 0) | (withPrevious ? 4 : 0) | (fragment ? 8 : 0)
  );
}

function encodeBatch(
  { events, revision = 0 }: WatchBatch,
  options: EventOptions,
  prefix: Buffer,
  header: (revision: number) => Buffer,
  from: number,
): readonly Uint8Array[] {
  const encoder = new EventEncoder(prefix, header(revision), options.fragment);
  for (const event of events) {
    if (event.revision < from) continue;
    const isDelete = event.type === "DELETED";
    if (isDelete ? options.withoutDeletes : options.withoutPuts) continue;
    const { createRevision, modRevision } = event.object;
    if (!options.withPrevious || createRevision === modRevision) {
      encoder.add(event, undefined);
    } else {
      if (event.previous === undefined) return previousUnknown;
      encoder.add(event, event.previous);
    }
  }
  return encoder.finish();
}

/** Collects events, and closes a fragment when the next event would not fit. */
class EventEncoder {
  readonly #prefix: Buffer;
  readonly #header: Buffer;
  readonly #maxBytes: number;
  readonly #done: Uint8Array[] = [];
  #events: WatchEvent[] = [];
  #previous: (StoredObject | undefined)[] = [];
  #sizes: number[] = [];
  #size = 0;

  constructor(prefix: Buffer, header: Buffer, fragment: boolean) {
    this.#prefix = prefix;
    this.#header = header;
    this.#maxBytes = fragment ? fragmentBytes : Infinity;
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
    if (this.#events.length === 0) return noFrames;
    this.#close(false);
    return this.#done;
  }

  #close(isFragment: boolean): void {
    const size = this.#header.length + (isFragment ? 2 : 0) + this.#size;
    const writer = new WireWriter(Buffer.allocUnsafe(prefixSize + size));
    writer.prefix(size);
    writer.raw(this.#header);
    writer.numberField(0x38, isFragment ? 1 : 0);
    this.#events.forEach((event, i) => {
      this.#writeEvent(writer, event, this.#previous[i], this.#sizes[i] ?? 0);
    });
    this.#done.push(writer.bytes);
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
    writer.byte(0x5a);
    writer.varint(size);
    if (type === "DELETED") {
      writer.byte(0x08);
      writer.byte(1);
      // The object has its last content, of which etcd sends nothing but the key.
      writer.byte(0x12);
      writer.varint(deletionSize(this.#prefix.length, object));
      writeDeletion(writer, this.#prefix, object);
    } else {
      this.#writeKeyValue(writer, 0x12, object);
    }
    if (previous !== undefined) this.#writeKeyValue(writer, 0x1a, previous);
  }

  #writeKeyValue(writer: WireWriter, tag: number, object: StoredObject): void {
    writer.byte(tag);
    writer.varint(keyValueSize(this.#prefix.length, object, false));
    writeKeyValue(writer, this.#prefix, object);
  }
}
