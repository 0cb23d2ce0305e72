import { type Attributes, noAttributes } from "../selector/attributes.ts";
import type { ValueMask } from "./value-mask.ts";

/** Reads what selectors can select by from an object's value alone: equal values have equal attributes. */
export interface Codec {
  readonly name: CodecName;
  /** Whether its objects have labels and fields at all. */
  readonly hasAttributes: boolean;
  /** The names of the fields that a selector may use, as configured. */
  readonly declaredFields: ReadonlySet<string>;
  /**
   * Returns undefined if the value can't be decoded: the object then has no labels and no fields. Never throws, and
   * keeps no reference to `value`.
   */
  attributesOf(value: Uint8Array): Attributes | undefined;
  /** The mask of these paths. Throws a MaskPathError. Absent: it can't reduce values to parts of them. */
  maskOf?(paths: readonly string[]): ValueMask;
}

export const codecNames = ["opaque", "json", "protobuf"] as const;
export type CodecName = (typeof codecNames)[number];

/** Default path of the labels, as in Kubernetes. */
export const defaultLabelsPath = "metadata.labels";

/** The codec of values that only clients can decode. */
export const opaqueCodec: Codec = {
  name: "opaque",
  hasAttributes: false,
  declaredFields: new Set(),
  attributesOf: () => noAttributes,
};

export interface CodecProblem {
  /** The invalid option of the codec and the element in it: `["fields", 2]`. */
  readonly at: readonly (string | number)[];
  /** A sentence that begins with the invalid value and says what is accepted. */
  readonly message: string;
}

/** The options of a codec are invalid. Lists all problems. */
export class CodecError extends Error {
  override readonly name = "CodecError";
  readonly problems: readonly CodecProblem[];

  constructor(problems: readonly CodecProblem[]) {
    super(problems.map(({ at, message }) => `${at.join(" ")}: ${message}`).join("\n"));
    this.problems = problems;
  }
}
