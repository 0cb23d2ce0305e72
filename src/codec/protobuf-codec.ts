import { type Descriptors, readDescriptors } from "../protobuf/descriptors.ts";
import { LENGTH_DELIMITED, MessageCursor, WireFault } from "../protobuf/message-cursor.ts";
import { Attributes, noAttributes } from "../selector/attributes.ts";
import { type Codec, CodecError, type CodecProblem, defaultLabelsPath } from "./codec.ts";
import { parseFieldPath } from "./path.ts";
import { protobufMask } from "./protobuf-mask.ts";
import {
  listing,
  type PathStep,
  type ResolvedPath,
  resolveField,
  resolveLabels,
  type ScalarRule,
  scalarRuleOf,
} from "./protobuf-path.ts";
import type { ValueMask } from "./value-mask.ts";

export interface ProtobufCodecOptions {
  /** A google.protobuf.FileDescriptorSet with all imports. */
  readonly descriptors: Uint8Array;
  /** The full name of the values' message type, such as `acme.v1.Lease`. */
  readonly message: string;
  /** The path of a `map<string, string>`. Default: `metadata.labels`, if the message has that. */
  readonly labels?: string | undefined;
  /** The paths of the fields. Default: none. */
  readonly fields?: readonly string[] | undefined;
}

/**
 * Attributes of values that are protobuf messages of one type.
 *
 * A path consists of field names and leads to a single scalar: a string, a number in decimal, `true` or `false`, or the
 * name of an enum's value. A field with presence, or in an absent message, is absent unless it is set; any other field
 * has its type's default (`0`, `false`, the enum's first name), as the message itself can't distinguish these.
 *
 * Only the fields on a path are decoded, so the cost depends little on the size of the values. Their bytes must be
 * valid: a length beyond the end, invalid UTF-8 or a wire type that does not fit the field's type make the value
 * undecodable. Skipped fields only need a valid length.
 */
export class ProtobufCodec implements Codec {
  readonly name = "protobuf";
  readonly hasAttributes = true;
  readonly declaredFields: ReadonlySet<string>;
  readonly #descriptors: Descriptors;
  readonly #message: string;
  readonly #fields: readonly string[];
  readonly #plan: MessagePlan;

  /** Throws a CodecError if the descriptors do not have the message or a path. */
  constructor(options: ProtobufCodecOptions) {
    const descriptors = descriptorsOf(options);
    this.#fields = [...new Set(options.fields)];
    this.declaredFields = new Set(this.#fields);
    this.#plan = planMessage(descriptors, options.message, pathsOf(options, descriptors));
    this.#descriptors = descriptors;
    this.#message = options.message;
  }

  maskOf(paths: readonly string[]): ValueMask {
    return protobufMask(this.#descriptors, this.#message, paths);
  }

  attributesOf(value: Uint8Array): Attributes | undefined {
    const found = new Found(this.#fields.length);
    try {
      look(new MessageCursor(value), this.#plan, found);
    } catch (error) {
      if (error instanceof WireFault) return undefined;
      throw error;
    }
    const fields = new Map<string, string>();
    for (const [slot, name] of this.#fields.entries()) {
      const text = found.texts[slot] ?? "";
      if (text !== "") fields.set(name, text);
    }
    const { labels } = found;
    return labels.size + fields.size === 0 ? noAttributes : new Attributes(labels, fields);
  }
}

function descriptorsOf({ descriptors: bytes, message }: ProtobufCodecOptions): Descriptors {
  let descriptors: Descriptors;
  try {
    descriptors = readDescriptors(bytes);
  } catch (error) {
    if (!(error instanceof WireFault)) throw error;
    throw new CodecError([{ at: ["descriptors"], message: noDescriptors(error.message) }]);
  }
  if (descriptors.messages.has(message)) return descriptors;
  const names = [...descriptors.messages.keys()].filter(
    (name) => !descriptors.mapEntries.has(name),
  );
  if (names.length === 0) {
    throw new CodecError([{ at: ["descriptors"], message: noDescriptors("declares no message") }]);
  }
  const problem =
    `${JSON.stringify(message)} is not a message of the descriptor set, ` +
    `which has ${listing(names)}.`;
  throw new CodecError([{ at: ["message"], message: problem }]);
}

function noDescriptors(why: string): string {
  return (
    `it is not a descriptor set: it ${why}. ` +
    'Write one with "buf build -o FILE.binpb" or "protoc --include_imports --descriptor_set_out=FILE".'
  );
}

function pathsOf(options: ProtobufCodecOptions, descriptors: Descriptors): readonly PlannedPath[] {
  const { message, labels, fields = [] } = options;
  const paths: PlannedPath[] = [];
  const problems: CodecProblem[] = [];
  const add = (way: ResolvedPath, slot: number, at: CodecProblem["at"]): void => {
    if (way.problem === undefined) paths.push({ steps: way.steps, slot });
    else problems.push({ at, message: way.problem });
  };
  const names = [...new Set(fields)];
  for (const [index, path] of fields.entries()) {
    const parsed = parseFieldPath(path);
    const way = parsed.problem === undefined ? resolveField(descriptors, message, path) : parsed;
    add(way, names.indexOf(path), ["fields", index]);
  }
  const labelsWay = resolveLabels(descriptors, message, labels ?? defaultLabelsPath);
  if (labels !== undefined || labelsWay.problem === undefined) {
    add(labelsWay, labelsSlot, ["labels"]);
  }
  if (problems.length > 0) throw new CodecError(problems);
  return paths;
}

/**
 * The fields to read in messages of one type. A slot is the index of a declared field's value among the results; labels
 * have `labelsSlot`.
 */
interface MessagePlan {
  readonly fields: ReadonlyMap<number, FieldPlan>;
  /** The values of the fields without presence if the message does not set them. */
  readonly empty: readonly { readonly slot: number; readonly text: string }[];
}

/** `message` is set, or `scalar` and `slot`, or `slot` is `labelsSlot`; otherwise the field is skipped. */
interface FieldPlan {
  readonly name: string;
  readonly wireType: number;
  readonly message: MessagePlan | undefined;
  readonly scalar: ScalarRule | undefined;
  readonly slot: number | undefined;
  /** The slots below the other fields of its oneof, which are unset when this one is set. */
  readonly unsets: readonly number[];
}

const labelsSlot = -1;

/** A path through messages, and the slot of the value at its end. */
interface PlannedPath {
  readonly steps: readonly PathStep[];
  readonly slot: number;
}

/** Merges paths that begin in messages of the type `typeName`, so that one pass reads all of them. */
function planMessage(
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

/** The values found so far. */
class Found {
  readonly labels = new Map<string, string>();
  /** By slot. */
  readonly texts: (string | undefined)[];

  constructor(slots: number) {
    this.texts = new Array<string | undefined>(slots).fill(undefined);
  }

  unset(slots: readonly number[]): void {
    for (const slot of slots) {
      if (slot === labelsSlot) this.labels.clear();
      else this.texts[slot] = undefined;
    }
  }
}

/** If a field occurs more than once, the last one counts; messages are merged. */
function look(cursor: MessageCursor, plan: MessagePlan, found: Found): void {
  for (const { slot, text } of plan.empty) found.texts[slot] ??= text;
  for (let tag = cursor.next(); tag !== 0; tag = cursor.next()) {
    const field = plan.fields.get(tag >>> 3);
    if (field === undefined) cursor.skip(tag);
    else take(cursor, tag, field, found);
  }
}

function take(cursor: MessageCursor, tag: number, field: FieldPlan, found: Found): void {
  found.unset(field.unsets);
  const { message, scalar, slot } = field;
  if (message === undefined && slot === undefined) {
    cursor.skip(tag);
    return;
  }
  const wireType = tag & 7;
  if (wireType !== field.wireType) {
    throw new WireFault(`has wire type ${wireType} instead of ${field.wireType}`);
  }
  if (scalar !== undefined && slot !== undefined) {
    found.texts[slot] = scalar.read(cursor);
    return;
  }
  const outer = cursor.enter();
  if (message !== undefined) look(cursor, message, found);
  else addLabel(cursor, found.labels);
  cursor.leave(outer);
}

/** A map is a repeated message with the key in field 1 and the value in field 2. */
function addLabel(entry: MessageCursor, labels: Map<string, string>): void {
  const texts = ["", "", ""];
  for (let tag = entry.next(); tag !== 0; tag = entry.next()) {
    const field = tag >>> 3;
    const wireType = tag & 7;
    if (field > 2) entry.skip(tag);
    else if (wireType === LENGTH_DELIMITED) texts[field] = entry.text();
    else throw new WireFault(`has wire type ${wireType} in a map's entry`);
  }
  labels.set(texts[1] ?? "", texts[2] ?? "");
}
