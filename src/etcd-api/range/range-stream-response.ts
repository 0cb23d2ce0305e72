import type { TimeSlicedWork } from "../../base/time-slices.ts";
import type { StoredObject } from "../../model/object.ts";
import { bytesFieldSize } from "../../protobuf/wire-writer.ts";
import { prefixSize } from "../../wire/encode.ts";
import type { FrameParts } from "../../wire/frame-parts.ts";
import { PartsWriter } from "../../wire/parts-writer.ts";
import {
  endSize,
  fieldsSize,
  objectSize,
  type RangeResponseOptions,
  writeEnd,
  writeObject,
} from "./range-fields.ts";
import type { PiecewiseResponse } from "./range-response.ts";
import type { SelectedObjects } from "./range-selection.ts";

/** Field 1 of etcd's RangeStreamResponse, a RangeResponse. */
const rangeResponseTag = 0x0a;

/**
 * The responses to etcd's RangeStream (3.7), which merged are the response to a Range: each has a part of the objects, and
 * the last one has the other fields as well.
 */
export class RangeStreamResponse implements PiecewiseResponse {
  readonly size: number;
  readonly #selected: SelectedObjects;
  readonly #options: RangeResponseOptions;
  /** The first object that is not encoded. */
  #next = 0;
  #isDone = false;

  private constructor(selected: SelectedObjects, options: RangeResponseOptions, size: number) {
    this.#selected = selected;
    this.#options = options;
    this.size = size;
  }

  static *of(
    selected: SelectedObjects,
    options: RangeResponseOptions,
  ): TimeSlicedWork<RangeStreamResponse> {
    return new RangeStreamResponse(selected, options, yield* fieldsSize(selected, options));
  }

  get isDone(): boolean {
    return this.#isDone;
  }

  get length(): number {
    return this.#selected.objects.length;
  }

  /** One message. */
  take(maxBytes: number): FrameParts {
    const [selected, options] = [this.#selected, this.#options];
    const { objects } = selected;
    const { header } = options;
    let end = this.#next;
    let size = 0;
    for (; end < objects.length && size < maxBytes; end++) {
      size += objectSize(objects[end] as StoredObject, options);
    }
    const isLast = end === objects.length;
    if (isLast) size += header.length + endSize(selected);
    const messageSize = bytesFieldSize(size);
    const parts = new PartsWriter(prefixSize + messageSize);
    const writer = parts.room(prefixSize + messageSize - size + (isLast ? header.length : 0));
    writer.prefix(messageSize);
    writer.byte(rangeResponseTag);
    writer.varint(size);
    if (isLast) writer.raw(header);
    for (; this.#next < end; this.#next++) {
      writeObject(parts, objects[this.#next] as StoredObject, options);
    }
    if (isLast) writeEnd(parts, selected);
    this.#isDone = isLast;
    return parts.finish();
  }
}
