import {
  endSize,
  fieldsSize,
  objectSize,
  type RangeResponseOptions,
  writeEnd,
  writeObject,
} from "../../etcd/wire/range-response.ts";
import type { StoredObject } from "../../model/object.ts";
import { bytesFieldSize } from "../../protobuf/wire-writer.ts";
import { type FrameParts, prefixSize } from "../../wire/encode.ts";
import { PartsWriter } from "../../wire/parts-writer.ts";
import type { SelectedObjects } from "./range-selection.ts";

/** Size of a piece, in bytes; a large value may exceed it. */
export const pieceBytes = 256 * 1024;

/** Maximum number of objects of a piece: they are encoded in one step. */
export const objectsPerPiece = 2_048;

/** Field 1 of etcd's RangeStreamResponse, a RangeResponse. */
const rangeResponseTag = 0x0a;

/**
 * The response to etcd's Range, one message; or the responses to its RangeStream (3.7), which merged are the same: each has
 * a part of the objects, and the last one has the other fields as well. It is encoded piece by piece, since it can be of any
 * size. Large values are sent from slabs.
 */
export class RangeResponse {
  /** Size of the objects and the other fields, in bytes. */
  readonly size: number;
  /** Maximum size of a piece, in bytes: a piece ends with the object that makes it large enough. */
  readonly maxPieceBytes: number;
  readonly #isStream: boolean;
  readonly #selected: SelectedObjects;
  readonly #options: RangeResponseOptions;
  readonly #objects: Iterator<StoredObject>;
  /** Number of objects that are not encoded. */
  #left: number;
  #hasBegun = false;
  #isDone = false;

  constructor(selected: SelectedObjects, options: RangeResponseOptions, isStream: boolean) {
    this.#isStream = isStream;
    this.#selected = selected;
    this.#options = options;
    this.#objects = selected.objects[Symbol.iterator]();
    this.#left = selected.length;
    this.size = fieldsSize(selected, options);
    this.maxPieceBytes = Math.min(this.size, pieceBytes + selected.largestField);
  }

  /** Whether all pieces were taken. */
  get isDone(): boolean {
    return this.#isDone;
  }

  /** Whether the last piece ends within a message. */
  get isMidMessage(): boolean {
    return !this.#isStream && this.#hasBegun && !this.#isDone;
  }

  /** The next piece, with gRPC's prefixes. */
  take(): FrameParts {
    const parts = this.#isStream ? this.#takeMessage() : this.#takePart();
    this.#hasBegun = true;
    this.#isDone = this.#left === 0;
    return parts;
  }

  /** A part of the only message. */
  #takePart(): FrameParts {
    const { header } = this.#options;
    const parts = new PartsWriter(Math.min(pieceBytes, prefixSize + this.size));
    if (!this.#hasBegun) {
      const writer = parts.room(prefixSize + header.length);
      writer.prefix(this.size);
      writer.raw(header);
    }
    const rest = Math.max(0, this.#left - objectsPerPiece);
    let bytes = 0;
    for (; this.#left > rest && bytes < pieceBytes; this.#left--) {
      bytes += writeObject(parts, this.#next(), this.#options);
    }
    if (this.#left === 0) writeEnd(parts, this.#selected);
    return parts.finish();
  }

  /** A message of the stream. */
  #takeMessage(): FrameParts {
    const [selected, options] = [this.#selected, this.#options];
    const { header } = options;
    const rest = Math.max(0, this.#left - objectsPerPiece);
    const objects: StoredObject[] = [];
    let size = 0;
    for (; this.#left > rest && size < pieceBytes; this.#left--) {
      const object = this.#next();
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
    return parts.finish();
  }

  #next(): StoredObject {
    return this.#objects.next().value as StoredObject;
  }
}
