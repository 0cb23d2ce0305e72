import type { TimeSlicedWork } from "../../base/event-loop-turns.ts";
import { none, numberField } from "../../protobuf/fields.ts";
import { encodeSelected, type Selected } from "./range-selection.ts";

/** A part of a response: bytes, or what is encoded in steps after the request was executed, as it may be large. */
export type Part = Uint8Array | SelectedPart | MessagePart;

/** The fields of a RangeResponse without its header. */
export interface SelectedPart {
  readonly selected: Selected;
  readonly keysOnly: boolean;
}

/** A field with a message. */
export interface MessagePart {
  readonly tag: number;
  readonly parts: readonly Part[];
}

/** Whether all parts are bytes. */
export function isPlain(parts: readonly Part[]): parts is readonly Uint8Array[] {
  return parts.every((part) => part instanceof Uint8Array);
}

/** Bytes that one step copies, about. */
const copiedPerStep = 256 * 1024;

/** Encodes a response. */
export function* encodeResponse(parts: readonly Part[]): TimeSlicedWork<Buffer> {
  const buffers: Uint8Array[] = [];
  const size = yield* encodeInto(buffers, parts);
  const response = Buffer.allocUnsafe(size);
  let copied = 0;
  let end = 0;
  for (const bytes of buffers) {
    response.set(bytes, end);
    end += bytes.length;
    copied += bytes.length;
    if (copied < copiedPerStep) continue;
    yield;
    copied = 0;
  }
  return response;
}

/** Adds the bytes of the parts. Returns their size. */
function* encodeInto(buffers: Uint8Array[], parts: readonly Part[]): TimeSlicedWork<number> {
  let size = 0;
  for (const part of parts) {
    if (part instanceof Uint8Array) {
      buffers.push(part);
      size += part.length;
    } else if ("selected" in part) {
      for (const bytes of encodeSelected(part.selected, part.keysOnly)) {
        buffers.push(bytes);
        size += bytes.length;
        yield;
      }
    } else {
      // Its size is known afterwards.
      const at = buffers.push(none) - 1;
      const inner = yield* encodeInto(buffers, part.parts);
      const start = numberField(part.tag, inner);
      buffers[at] = start;
      size += start.length + inner;
    }
  }
  return size;
}
