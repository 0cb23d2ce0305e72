import type { OptionName } from "./options.ts";

/** A step towards a part of a value: the index of an element, or a key. */
export type Step = string | number;

/** Where a value was given, in the words of messages. `path` leads to the part that is meant. */
export type Origin = (path?: readonly Step[]) => string;

/** What was given for one option, unchecked. */
export interface Setting {
  readonly value: unknown;
  readonly origin: Origin;
}

export type Settings = ReadonlyMap<OptionName, Setting>;

/** `resources[0].prefix` */
export function formatPath(path: readonly Step[]): string {
  return path
    .map((step) => (typeof step === "number" ? `[${step}]` : `.${step}`))
    .join("")
    .replace(/^\./, "");
}

/** The origin of what was given as text, in which a part has a name but no place of its own. */
export function textOrigin(source: string): Origin {
  return (path = []) => {
    const part = formatPath(path.filter((step) => typeof step === "string"));
    return part === "" ? source : `${source} (${part})`;
  };
}
