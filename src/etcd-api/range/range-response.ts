import type { StoredObject } from "../../model/object.ts";
import { prefixSize } from "../../wire/encode.ts";
import type { FrameParts } from "../../wire/frame-parts.ts";
import { PartsWriter } from "../../wire/parts-writer.ts";
import { fieldsSize, type RangeResponseOptions, writeEnd, writeObject } from "./range-fields.ts";
import type { SelectedObjects } from "./range-selection.ts";

/** Size of a piece, in bytes; a large value may exceed it. */
export const pieceBytes = 256 * 1024;

/** Maximum number of objects of a piece: they are encoded in one step. */
export const objectsPerPiece = 2_048;

/** A response that is encoded piece by piece, since it can be of any size. Large values are sent from slabs. */
export interface PiecewiseResponse {
  /** Size of the objects and the other fields, in bytes. */
  readonly size: number;
  /** Maximum size of a piece, in bytes. */
  readonly maxPieceBytes: number;
  /** Whether all pieces were taken. */
  readonly isDone: boolean;
  /** Whether the last piece ends within a message. */
  readonly isMidMessage: boolean;
  /** The next piece, with gRPC's prefixes. */
  take(): FrameParts;
}

/** Maximum size of a piece of a response of this size, in bytes: a piece ends with the object that makes it large enough. */
export function maxPieceBytesOf(size: number, { largestField }: SelectedObjects): number {
  return Math.min(size, pieceBytes + largestField);
}

/** The response to etcd's Range: one message. */
export class RangeResponse implements PiecewiseResponse {
  readonly size: number;
  readonly maxPieceBytes: number;
  readonly #selected: SelectedObjects;
  readonly #options: RangeResponseOptions;
  readonly #objects: Iterator<StoredObject>;
  /** Number of objects that are not encoded. */
  #left: number;
  #hasBegun = false;
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

  get isMidMessage(): boolean {
    return this.#hasBegun && !this.#isDone;
  }

  take(): FrameParts {
    const { header } = this.#options;
    const parts = new PartsWriter(Math.min(pieceBytes, prefixSize + this.size));
    if (!this.#hasBegun) {
      const writer = parts.room(prefixSize + header.length);
      writer.prefix(this.size);
      writer.raw(header);
      this.#hasBegun = true;
    }
    const rest = Math.max(0, this.#left - objectsPerPiece);
    let bytes = 0;
    for (; this.#left > rest && bytes < pieceBytes; this.#left--) {
      bytes += writeObject(parts, this.#objects.next().value as StoredObject, this.#options);
    }
    if (this.#left === 0) {
      writeEnd(parts, this.#selected);
      this.#isDone = true;
    }
    return parts.finish();
  }
}
