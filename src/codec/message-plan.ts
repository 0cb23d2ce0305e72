import type { Descriptors } from "../protobuf/descriptors.ts";
import { LENGTH_DELIMITED } from "../protobuf/message-cursor.ts";
import { type PathStep, scalarRuleOf } from "./protobuf-path.ts";
import type { ScalarRule } from "./protobuf-scalar.ts";

/**
 * The fields to read in messages of one type. A slot is the index of a declared field's value among the results; labels
 * have `labelsSlot`.
 */
export interface MessagePlan {
  readonly fields: ReadonlyMap<number, FieldPlan>;
  /** The values of the fields without presence if the message does not set them. */
  readonly empty: readonly { readonly slot: number; readonly text: string }[];
}

/** `message` is set, or `scalar` and `slot`, or `slot` is `labelsSlot`; otherwise the field is skipped. */
export interface FieldPlan {
  readonly name: string;
  readonly wireType: number;
  readonly message: MessagePlan | undefined;
  readonly scalar: ScalarRule | undefined;
  readonly slot: number | undefined;
  /** The slots below the other fields of its oneof, which are unset when this one is set. */
  readonly unsets: readonly number[];
}

export const labelsSlot = -1;

/** A path through messages, and the slot of the value at its end. */
export interface PlannedPath {
  readonly steps: readonly PathStep[];
  readonly slot: number;
}

/** Merges paths that begin in messages of the type `typeName`, so that one pass reads all of them. */
export function planMessage(
  descriptors: Descriptors,
  typeName: string,
  paths: readonly PlannedPath[],
): MessagePlan {
  const fields = new Map<number, FieldPlan>();
  const empty: { slot: number; text: string }[] = [];
  for (const field of descriptors.messages.get(typeName) ?? []) {
    const through = pathsThrough(paths, field.name);
    const rivals = (descriptors.messages.get(typeName) ?? []).filter(
      (other) => other !== field && other.oneof !== undefined && other.oneof === field.oneof,
    );
    const unsets = rivals.flatMap(({ name }) => pathsThrough(paths, name).map(({ slot }) => slot));
    if (through.length === 0 && unsets.length === 0) continue;
    const further = through
      .map(({ steps, slot }) => ({ steps: steps.slice(1), slot }))
      .filter(({ steps }) => steps.length > 0);
    const message =
      further.length === 0 ? undefined : planMessage(descriptors, field.typeName, further);
    const slot = message === undefined ? through[0]?.slot : undefined;
    const scalar =
      slot === undefined || slot === labelsSlot ? undefined : scalarRuleOf(descriptors, field);
    const wireType = scalar?.wireType ?? LENGTH_DELIMITED;
    fields.set(field.number, { name: field.name, wireType, message, scalar, slot, unsets });
    if (slot !== undefined && scalar !== undefined && !field.hasPresence) {
      empty.push({ slot, text: scalar.empty });
    }
  }
  return { fields, empty };
}

function pathsThrough(paths: readonly PlannedPath[], name: string): readonly PlannedPath[] {
  return paths.filter(({ steps }) => steps[0]?.field.name === name);
}
