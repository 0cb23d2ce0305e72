import { z } from "zod";
import { codecNames, defaultLabelsPath } from "../codec/codec.ts";
import { choice, count, duration, mappingWith, onOff, size, text } from "./value-types.ts";

const resourceName = z
  .string({ error: "is not text; put it in quotes" })
  .regex(/^[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?$/, {
    error:
      "is not a resource name: at most 63 lower-case letters, digits and hyphens, " +
      "beginning and ending with a letter or digit",
  });

/** Whether a text is the name of a resource. */
export function isResourceName(text: string): boolean {
  return resourceName.safeParse(text).success;
}

const resourcePrefix = z
  .string({ error: "is not text; put it in quotes" })
  .refine((prefix) => prefix.isWellFormed(), { error: "is not valid Unicode" });

const paths = z.array(text, { error: "is not a list of fields, such as [status.phase]" });

/** The settings of one event window: ages in milliseconds, sizes in bytes. Absent ones have the general values. */
export type EventWindowSettings = z.infer<z.ZodObject<typeof eventWindow>>;

const eventWindow = {
  age: duration("1s")
    .optional()
    .describe("Age up to which events are kept, within the other bounds."),
  "min-events": count(0)
    .optional()
    .describe("Number of events that are kept regardless of their age."),
  "max-events": count(1).optional().describe("Maximum number of events."),
  "max-bytes": size.optional().describe("Maximum estimated size of all events."),
};

/** The settings of one resource. `NAME=PREFIX` sets the first two, and `NAME` the first. */
export type ResourceSettings = z.infer<z.ZodObject<typeof mapping>>;

const mapping = {
  name: resourceName.describe("Its name in requests and metrics."),
  prefix: resourcePrefix
    .optional()
    .describe(
      "Key prefix in etcd, usually with '/' at its end. Clients see keys without it. Required, except with `upstream`.",
    ),
  "upstream-name": resourceName
    .optional()
    .describe("With `upstream`: its name there. Default: the same name."),
  codec: choice(codecNames)
    .optional()
    .describe(
      "How labels and fields are read from values. Default: opaque, which reads none, so that selectors " +
        "are refused.",
    ),
  labels: text
    .optional()
    .describe(
      `Path of the map that holds an object's labels. Default: ${defaultLabelsPath}. Needs codec json or protobuf.`,
    ),
  fields: paths
    .optional()
    .describe(
      "Paths of the fields that field selectors can use. Default: none. Needs codec json or protobuf.",
    ),
  indexes: paths
    .optional()
    .describe(
      "The `fields` that have an index: a list or watch that selects one value pays for no others. Default: none. Needs the cache.",
    ),
  descriptors: text
    .optional()
    .describe(
      "File with the descriptor set of `message`, as `buf build --as-file-descriptor-set` writes it. Required with " +
        "codec protobuf.",
    ),
  message: text
    .optional()
    .describe("Full name of the message that values hold. Required with codec protobuf."),
  "event-window": mappingWith(eventWindow, `is not a mapping of ${listing(eventWindow)}`)
    .optional()
    .describe(
      "Bounds of this resource's event window, as the options of these names. Needs the cache.",
    ),
  cache: onOff
    .optional()
    .describe(
      "off: Get, List and writes go to etcd, and Watch is refused, for what is too large for memory. Default: on.",
    ),
};

/** Why a text is not a resource of etcd or of the embedded store. */
export const notNameAndPrefix = "is not NAME=PREFIX, such as services=/services/";

/** `NAME=PREFIX`, `NAME` of a relay, or a mapping in YAML. */
export const resource: z.ZodType<ResourceSettings> = z.preprocess(
  (input, context) => {
    if (typeof input !== "string") return input;
    const equals = input.indexOf("=");
    if (equals >= 0) return { name: input.slice(0, equals), prefix: input.slice(equals + 1) };
    // Whether that is enough depends on --upstream.
    if (resourceName.safeParse(input).success) return { name: input };
    context.addIssue({ code: "custom", message: notNameAndPrefix });
    return z.NEVER;
  },
  mappingWith(mapping, "is neither NAME=PREFIX nor a mapping with name and prefix"),
);

/** The keys of a resource's or an event window's mapping. */
export function keysOf(key: "resource" | "event-window"): readonly string[] {
  return Object.keys(schemasOf(key));
}

/** The same keys, each with the schema of its value, which has a description. */
export function schemasOf(key: "resource" | "event-window"): Readonly<Record<string, z.ZodType>> {
  return key === "event-window" ? eventWindow : mapping;
}

function listing(shape: object): string {
  const names = Object.keys(shape);
  return `${names.slice(0, -1).join(", ")} and ${names.at(-1)}`;
}
