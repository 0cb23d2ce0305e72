import { z } from "zod";
import { type CodecName, codecNames } from "../codec/codec.ts";
import { choice, count, duration, onOff, size, text } from "./value-types.ts";

/** What was said of one resource. `NAME=PREFIX` says no more than the first two. */
export interface ResourceSettings {
  readonly name: string;
  readonly prefix: string;
  readonly codec?: CodecName | undefined;
  readonly labels?: string | undefined;
  readonly fields?: readonly string[] | undefined;
  readonly indexes?: readonly string[] | undefined;
  /** The path of a descriptor set, and a message of it: of the codec protobuf. */
  readonly descriptors?: string | undefined;
  readonly message?: string | undefined;
  readonly history?: HistorySettings | undefined;
  readonly cache?: boolean | undefined;
}

/** What is not said is as for all resources. */
export interface HistorySettings {
  /** In milliseconds. */
  readonly age?: number | undefined;
  readonly "min-events"?: number | undefined;
  readonly "max-events"?: number | undefined;
  /** In bytes. */
  readonly "max-bytes"?: number | undefined;
}

const resourceName = z
  .string({ error: "is not text; put it in quotes" })
  .regex(/^[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?$/, {
    error:
      "is not a resource's name: at most 63 lower-case letters, digits and hyphens, " +
      "which begins and ends with a letter or digit",
  });

const resourcePrefix = z
  .string({ error: "is not text; put it in quotes" })
  .refine((prefix) => prefix.isWellFormed(), { error: "is not valid Unicode" });

const paths = z.array(text, { error: "is not a list of fields, such as [status.phase]" });

const history = {
  age: duration("1s").optional(),
  "min-events": count(0).optional(),
  "max-events": count(1).optional(),
  "max-bytes": size.optional(),
};

const mapping = {
  name: resourceName,
  prefix: resourcePrefix,
  codec: choice(codecNames).optional(),
  labels: text.optional(),
  fields: paths.optional(),
  indexes: paths.optional(),
  descriptors: text.optional(),
  message: text.optional(),
  history: z
    .strictObject(history, { error: unlessUnknownKey(`is not a mapping of ${listing(history)}`) })
    .optional(),
  cache: onOff.optional(),
};

/** `NAME=PREFIX`, or in YAML also a mapping with more. */
export const resource: z.ZodType<ResourceSettings> = z.preprocess(
  (input, context) => {
    if (typeof input !== "string") return input;
    const equals = input.indexOf("=");
    if (equals >= 0) return { name: input.slice(0, equals), prefix: input.slice(equals + 1) };
    context.addIssue({
      code: "custom",
      message: "is not NAME=PREFIX, such as services=/services/",
    });
    return z.NEVER;
  },
  z.strictObject(mapping, {
    error: unlessUnknownKey("is not a mapping of name, prefix and more, or NAME=PREFIX"),
  }),
);

/** The keys that a mapping has: the whole resource's, or what is at `key` within. */
export function keysOf(key: "resource" | "history"): readonly string[] {
  return Object.keys(key === "history" ? history : mapping);
}

/** Keys that don't exist are told of one by one, where all problems are put into words. */
function unlessUnknownKey(message: string) {
  return (issue: { readonly code?: string | undefined }): string | undefined =>
    issue.code === "unrecognized_keys" ? undefined : message;
}

function listing(shape: object): string {
  const names = Object.keys(shape);
  return `${names.slice(0, -1).join(", ")} and ${names.at(-1)}`;
}
