import type { OptionName } from "./options.ts";

/** A step towards a part of a value: the index of an element, or a key. */
export type Step = string | number;

/** The source of a value, as messages name it. `path` leads to a part of the value. */
export type Origin = (path?: readonly Step[]) => string;

/** The unchecked value of one option. */
export interface Setting {
  readonly value: unknown;
  readonly origin: Origin;
}

/** The unchecked values of the options that were given. */
export type Settings = ReadonlyMap<OptionName, Setting>;

/** Formats a path, for example `resources[0].prefix`. */
export function formatPath(path: readonly Step[]): string {
  return path
    .map((step) => (typeof step === "number" ? `[${step}]` : `.${step}`))
    .join("")
    .replace(/^\./, "");
}

/** The origin of a value that was given as text: its parts have names but no positions. */
export function textOrigin(source: string): Origin {
  return (path = []) => {
    const part = formatPath(path.filter((step) => typeof step === "string"));
    return part === "" ? source : `${source} (${part})`;
  };
}
