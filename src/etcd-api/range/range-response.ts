import type { TimeSlicedWork } from "../../base/time-slices.ts";
import type { StoredObject } from "../../model/object.ts";
import { prefixSize } from "../../wire/encode.ts";
import type { FrameParts } from "../../wire/frame-parts.ts";
import { PartsWriter } from "../../wire/parts-writer.ts";
import { fieldsSize, type RangeResponseOptions, writeEnd, writeObject } from "./range-fields.ts";
import type { SelectedObjects } from "./range-selection.ts";

/** A response that is encoded piece by piece, since it can be of any size. Large values are sent from slabs. */
export interface PiecewiseResponse {
  /** Size of the messages' content, in bytes. */
  readonly size: number;
  /** Number of objects of the response. */
  readonly length: number;
  /** Whether all pieces were taken. */
  readonly isDone: boolean;
  /** The next piece, with gRPC's prefixes, of about `maxBytes` in copied parts and large values in place. */
  take(maxBytes: number): FrameParts;
}

/** The response to etcd's Range: one message. */
export class RangeResponse implements PiecewiseResponse {
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
    return new RangeResponse(selected, options, yield* fieldsSize(selected, options));
  }

  get isDone(): boolean {
    return this.#next > this.#selected.objects.length;
  }

  get length(): number {
    return this.#selected.objects.length;
  }

  take(maxBytes: number): FrameParts {
    const { objects } = this.#selected;
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
      bytes += writeObject(parts, objects[this.#next] as StoredObject, this.#options);
    }
    if (this.#next === objects.length && bytes < maxBytes) {
      writeEnd(parts, this.#selected);
      this.#next++;
    }
    return parts.finish();
  }
}
