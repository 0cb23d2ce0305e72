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
import {
  maxPieceBytesOf,
  objectsPerPiece,
  type PiecewiseResponse,
  pieceBytes,
} from "./range-response.ts";
import type { SelectedObjects } from "./range-selection.ts";

/** Field 1 of etcd's RangeStreamResponse, a RangeResponse. */
const rangeResponseTag = 0x0a;

/**
 * The responses to etcd's RangeStream (3.7), which merged are the response to a Range: each has a part of the objects, and
 * the last one has the other fields as well.
 */
export class RangeStreamResponse implements PiecewiseResponse {
  readonly size: number;
  readonly maxPieceBytes: number;
  readonly isMidMessage = false;
  readonly #selected: SelectedObjects;
  readonly #options: RangeResponseOptions;
  readonly #objects: Iterator<StoredObject>;
  /** Number of objects that are not encoded. */
  #left: number;
  #isDone = false;

  constructor(selected: SelectedObjects, options: RangeResponseOptions) {
    this.#selected = selected;
    this.#options = options;
    this.#objects = selected.objects[Symbol.iterator]();
    this.#left = selected.length;
    this.size = fieldsSize(selected, options);
    this.maxPieceBytes = maxPieceBytesOf(this.size, selected);
  }

  get isDone(): boolean {
    return this.#isDone;
  }

  /** One message. */
  take(): FrameParts {
    const [selected, options] = [this.#selected, this.#options];
    const { header } = options;
    const rest = Math.max(0, this.#left - objectsPerPiece);
    const objects: StoredObject[] = [];
    let size = 0;
    for (; this.#left > rest && size < pieceBytes; this.#left--) {
      const object = this.#objects.next().value as StoredObject;
      objects.push(object);
      size += objectSize(object, options);
    }
    const isLast = this.#left === 0;
    if (isLast) size += header.length + endSize(selected);
    const messageSize = bytesFieldSize(size);
    const parts = new PartsWriter(prefixSize + messageSize);
    const writer = parts.room(prefixSize + messageSize - size + (isLast ? header.length : 0));
    writer.prefix(messageSize);
    writer.byte(rangeResponseTag);
    writer.varint(size);
    if (isLast) writer.raw(header);
    for (const object of objects) writeObject(parts, object, options);
    if (isLast) writeEnd(parts, selected);
    this.#isDone = isLast;
    return parts.finish();
  }
}
