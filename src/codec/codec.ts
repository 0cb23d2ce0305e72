import { type Attributes, noAttributes } from "../selector/attributes.ts";

/**
 * Finds out what selectors may ask about an object, from its value alone: a value has the same
 * attributes wherever and whenever it is looked at.
 */
export interface Codec {
  readonly name: CodecName;
  /** Whether its objects have labels and fields at all, so that there is something to select by. */
  readonly hasAttributes: boolean;
  /** The names of the fields that a selector may ask for, as they were configured. */
  readonly declaredFields: ReadonlySet<string>;
  /**
   * Undefined if the value can't be decoded: it has no labels and no fields then. Never throws, and
   * keeps nothing of `value`.
   */
  attributesOf(value: Uint8Array): Attributes | undefined;
}

export const codecNames = ["opaque", "json", "protobuf"] as const;
export type CodecName = (typeof codecNames)[number];

/** Where labels are unless told otherwise, as in Kubernetes. */
export const defaultLabelsPath = "metadata.labels";

/** The codec of values that are nobody's business but the clients'. */
export const opaqueCodec: Codec = {
  name: "opaque",
  hasAttributes: false,
  declaredFields: new Set(),
  attributesOf: () => noAttributes,
};

export interface CodecProblem {
  /** Which of the codec's options is wrong, and which element of it: `["fields", 2]`. */
  readonly at: readonly (string | number)[];
  /** A sentence that begins with the wrong value and says what is accepted. */
  readonly message: string;
}

/** What a codec was asked for can't be had; tells all that is wrong. */
export class CodecError extends Error {
  override readonly name = "CodecError";
  readonly problems: readonly CodecProblem[];

  constructor(problems: readonly CodecProblem[]) {
    super(problems.map(({ at, message }) => `${at.join(" ")}: ${message}`).join("\n"));
    this.problems = problems;
  }
}
