import type { Descriptors } from "../protobuf/descriptors.ts";
import { LENGTH_DELIMITED, MessageCursor, WireFault } from "../protobuf/message-cursor.ts";
import { bytesFieldSize, varintSize, WireWriter } from "../protobuf/wire-writer.ts";
import { resolveMasked } from "./protobuf-path.ts";
import {
  canonicalTree,
  MaskPathError,
  type MaskTree,
  maskTree,
  type ValueMask,
} from "./value-mask.ts";

/**
 * A mask of values that are protobuf messages of the type `message`. A masked value is a message of the same type with the
 * named fields, as they are encoded in the value; unknown fields are left out. A message on a path stays, even if it has
 * nothing else. Throws a MaskPathError for a path that the type does not have.
 */
export function protobufMask(
  descriptors: Descriptors,
  message: string,
  paths: readonly string[],
): ValueMask {
  const tree = maskTree(paths);
  for (const path of paths) {
    const { problem } = resolveMasked(descriptors, message, path);
    if (problem !== undefined) throw new MaskPathError(path, problem);
  }
  const plan = planOf(descriptors, message, tree);
  return {
    canonical: canonicalTree(tree),
    apply: (value) => {
      try {
        const found = new MaskedMessage();
        found.read(new MessageCursor(value), plan);
        return found.encode(value);
      } catch (error) {
        if (error instanceof WireFault) return undefined;
        throw error;
      }
    },
  };
}

/** What is kept of messages of one type, by the number of the field. Other fields are left out. */
type Plan = ReadonlyMap<number, FieldPlan>;

interface FieldPlan {
  /** Whether it is sent; otherwise it only unsets others of its oneof. */
  readonly isKept: boolean;
  /** What of a message is sent; undefined: everything. */
  readonly below: Plan | undefined;
  /** The sent fields of the same oneof, which are unset when this one is set. */
  readonly unsets: readonly number[];
}

function planOf(descriptors: Descriptors, message: string, tree: MaskTree): Plan {
  const declared = descriptors.messages.get(message) ?? [];
  const plan = new Map<number, FieldPlan>();
  const kept = declared.filter(({ name }) => tree.has(name));
  const oneofs = new Set(kept.flatMap(({ oneof = [] }) => oneof));
  for (const field of declared) {
    const { name, number, oneof, typeName } = field;
    const isKept = tree.has(name);
    if (!isKept && (oneof === undefined || !oneofs.has(oneof))) continue;
    const rivals = kept.filter((other) => oneof !== undefined && other.oneof === oneof);
    const unsets = rivals.map((other) => other.number).filter((other) => other !== number);
    const below = tree.get(name);
    plan.set(number, {
      ...{ isKept, unsets },
      below: below && planOf(descriptors, typeName, below),
    });
  }
  return plan;
}

/** A part of the value, from the tag on. Occurrences that follow each other are one. */
interface Span {
  readonly from: number;
  to: number;
}

/** The kept fields of a message. One that occurs several times is merged, as readers do. */
class MaskedMessage {
  /** The occurrences of a field, or the message in it. */
  readonly #fields = new Map<number, Span[] | MaskedMessage>();
  /** Undefined until it has been read. */
  #knownSize: number | undefined;

  read(cursor: MessageCursor, plan: Plan): void {
    let from = cursor.position;
    for (let tag = cursor.next(); tag !== 0; tag = cursor.next()) {
      const number = tag >>> 3;
      const field = plan.get(number);
      for (const other of field?.unsets ?? []) this.#fields.delete(other);
      if (field?.isKept === true && field.below !== undefined) {
        this.#readMessage(cursor, tag, field.below);
      } else {
        cursor.skip(tag);
        if (field?.isKept === true) this.#add(number, from, cursor.position);
      }
      from = cursor.position;
    }
  }

  /** The message without what is left out. `value`: what was read. */
  encode(value: Uint8Array): Buffer {
    const writer = new WireWriter(Buffer.allocUnsafe(this.#size()));
    this.#write(writer, value);
    return writer.bytes;
  }

  #readMessage(cursor: MessageCursor, tag: number, plan: Plan): void {
    const wireType = tag & 7;
    if (wireType !== LENGTH_DELIMITED) {
      throw new WireFault(`has wire type ${wireType} instead of ${LENGTH_DELIMITED}`);
    }
    const number = tag >>> 3;
    let message = this.#fields.get(number);
    if (!(message instanceof MaskedMessage)) {
      message = new MaskedMessage();
      this.#fields.set(number, message);
    }
    const outer = cursor.enter();
    message.read(cursor, plan);
    cursor.leave(outer);
  }

  #add(number: number, from: number, to: number): void {
    const spans = this.#fields.get(number);
    const last = Array.isArray(spans) ? spans.at(-1) : undefined;
    if (!Array.isArray(spans)) this.#fields.set(number, [{ from, to }]);
    else if (last?.to === from) last.to = to;
    else spans.push({ from, to });
  }

  #size(): number {
    if (this.#knownSize !== undefined) return this.#knownSize;
    let size = 0;
    for (const [number, field] of this.#fields) {
      if (Array.isArray(field)) for (const { from, to } of field) size += to - from;
      else size += varintSize(number * 8) - 1 + bytesFieldSize(field.#size());
    }
    this.#knownSize = size;
    return size;
  }

  #write(writer: WireWriter, value: Uint8Array): void {
    for (const [number, field] of this.#fields) {
      if (Array.isArray(field)) {
        for (const { from, to } of field) writer.copy(value, from, to);
        continue;
      }
      writer.varint(number * 8 + LENGTH_DELIMITED);
      writer.varint(field.#size());
      field.#write(writer, value);
    }
  }
}
