import type { TimeSlicedWork } from "../../base/time-slices.ts";
import type { StoredObject } from "../../model/object.ts";
import { bytesFieldSize, numberFieldSize, type WireWriter } from "../../protobuf/wire-writer.ts";
import { prefixSize } from "../../wire/encode.ts";
import type { FrameParts } from "../../wire/frame-parts.ts";
import { leastInPlace, PartsWriter } from "../../wire/parts-writer.ts";
import {
  keyValueHeadSize,
  keyValueSize,
  leaseSize,
  writeKeyValueHead,
  writeLease,
} from "../contract/key-value.ts";
import type { SelectedObjects } from "./range-selection.ts";

/*
 * etcd's RangeResponse. Field numbers are those of its rpc.proto: header 1, kvs 2, more 3, count 4.
 */

const kvsTag = 0x12;
const moreTag = 0x18;
const countTag = 0x20;

/** Number of objects measured between two yields. */
const perStep = 2_048;

/** What a response is made of, beside its objects. */
export interface RangeResponseOptions {
  /** The prefix of the objects' resource. */
  readonly prefix: Buffer;
  /** The encoded field with the header. */
  readonly header: Buffer;
  readonly keysOnly: boolean;
}

/** A response that is encoded piece by piece, since it is one message of any size. Large values are sent from slabs. */
export class RangeResponse {
  /** Size of the message, in bytes. */
  readonly size: number;
  readonly #selected: SelectedObjects;
  readonly #options: RangeResponseOptions;
  /** The first object that is not encoded; -1: nothing is. */
  #next = -1;

  private constructor(selected: SelectedObjects, options: RangeResponseOptions, size: number) {
    this.#selected = selected;
    this.#options = options;
    this.size = size;
  }

  static *of(
    selected: SelectedObjects,
    options: RangeResponseOptions,
  ): TimeSlicedWork<RangeResponse> {
    const { objects, count, more } = selected;
    const { prefix, header, keysOnly } = options;
    let size = header.length + (more ? 2 : 0) + numberFieldSize(count);
    let measured = 0;
    for (const object of objects) {
      if (++measured % perStep === 0) yield;
      size += bytesFieldSize(keyValueSize(prefix.length, object, keysOnly));
    }
    return new RangeResponse(selected, options, size);
  }

  /** Whether all pieces were taken. */
  get isDone(): boolean {
    return this.#next > this.#selected.objects.length;
  }

  /** Number of objects of the response. */
  get length(): number {
    return this.#selected.objects.length;
  }

  /** The next piece, of about `maxBytes` in copied parts and large values in place. The first begins with gRPC's prefix. */
  take(maxBytes: number): FrameParts {
    const { objects, count, more } = this.#selected;
    const parts = new PartsWriter(Math.min(maxBytes, prefixSize + this.size));
    let bytes = 0;
    if (this.#next < 0) {
      const { header } = this.#options;
      const writer = parts.room(prefixSize + header.length);
      writer.prefix(this.size);
      writer.raw(header);
      this.#next = 0;
    }
    for (; this.#next < objects.length && bytes < maxBytes; this.#next++) {
      bytes += this.#write(parts, objects[this.#next] as StoredObject);
    }
    if (this.#next === objects.length && bytes < maxBytes) {
      const writer = parts.room((more ? 2 : 0) + numberFieldSize(count));
      writer.numberField(moreTag, more ? 1 : 0);
      writer.numberField(countTag, count);
      this.#next++;
    }
    return parts.finish();
  }

  /** Returns its size. */
  #write(parts: PartsWriter, object: StoredObject): number {
    const { prefix, keysOnly } = this.#options;
    const { content, valueStart, valueEnd } = object;
    const size = keyValueSize(prefix.length, object, keysOnly);
    const field = bytesFieldSize(size);
    const valueBytes = keysOnly ? 0 : valueEnd - valueStart;
    const isInPlace = valueBytes >= leastInPlace;
    const beforeValue = field - size + keyValueHeadSize(prefix.length, object, keysOnly);
    const writer = parts.room(isInPlace ? beforeValue : field);
    begin(writer, size);
    writeKeyValueHead(writer, prefix, object, keysOnly);
    if (isInPlace) {
      parts.add(content, valueStart, valueEnd);
      writeLease(parts.room(leaseSize(object)), object);
    } else {
      if (valueBytes > 0) writer.copy(content, valueStart, valueEnd);
      writeLease(writer, object);
    }
    return field;
  }
}

function begin(writer: WireWriter, size: number): void {
  writer.byte(kvsTag);
  writer.varint(size);
}
