import type { z } from "zod";
import { count, duration, onOff, size, text } from "./value-types.ts";

/** The definition of one option. Its flag, variable, key in the file, help and checks are derived from it. */
export interface OptionDefinition {
  /** The type of the value; of a list: of one element. */
  readonly schema: z.ZodType;
  /** Placeholder of the value in help. */
  readonly value: string;
  /** One or two sentences, without the default. */
  readonly help: string;
  /** The default, as it would be typed. Without one, the option is absent by default. */
  readonly default?: string;
  /** Text of the help for a default that is not a value. */
  readonly defaultHelp?: string;
  /**
   * A list: a flag that repeats, a variable with commas, a sequence in the file. "commas": flags and the file may
   * separate elements by commas as well.
   */
  readonly list?: "commas" | "repeated";
  /** Its key in the file, if that is not the option's name. */
  readonly fileKey?: string;
  /** Its flag may be given without a value, which means on. The placeholder is in brackets. */
  readonly isSwitch?: true;
  /** Never shown in a message, and without a flag, since other users of the machine can see flags. */
  readonly secret?: true;
}

/** The value of each option of a table. */
export type ValuesOf<Table> = { readonly [Name in keyof Table]: ValueOf<Table[Name]> };

type ValueOf<D> = D extends { readonly schema: z.ZodType<infer T> }
  ? D extends { readonly list: string }
    ? readonly T[]
    : D extends { readonly default: string }
      ? T
      : T | undefined
  : never;

/*
 * The usual kinds of options: the type of the value, and its placeholder in help.
 */

/** The path of a file. */
export const fileOption = { schema: text, value: "FILE" } as const;

export const sizeOption = { schema: size, value: "SIZE" } as const;

export const switchOption = { schema: onOff, isSwitch: true, value: "[on|off]" } as const;

/** A number of at least `least`. */
export function countOption(least: number) {
  return { schema: count(least), value: "COUNT" } as const;
}

/** A time of at least `shortest`, such as `1s`. */
export function durationOption(shortest: string) {
  return { schema: duration(shortest), value: "DURATION" } as const;
}
