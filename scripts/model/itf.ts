import { readFileSync } from "node:fs";
import type { State } from "./compile.ts";
import { isList, QuintMap, QuintSet, type Value } from "./values.ts";

/** A value in the Informal Trace Format. */
type ItfValue =
  | number
  | string
  | boolean
  | readonly ItfValue[]
  | { readonly [name: string]: ItfValue };

/** Reads the states of a trace in the Informal Trace Format, such as `quint run --out-itf` writes. */
export function readItf(file: string): readonly State[] {
  const { states } = JSON.parse(readFileSync(file, "utf8")) as {
    readonly states: readonly { readonly [name: string]: ItfValue }[];
  };
  return states.map((state) =>
    Object.fromEntries(
      Object.entries(state)
        .filter(([name]) => !name.startsWith("#"))
        .map(([name, value]) => [name, fromItf(value)]),
    ),
  );
}

function fromItf(value: ItfValue): Value {
  if (typeof value !== "object") return value;
  if (Array.isArray(value)) return value.map(fromItf);
  const { "#bigint": int, "#set": set, "#map": map, ...fields } = value as Record<string, ItfValue>;
  if (int !== undefined) return Number(int);
  if (set !== undefined) return QuintSet.of(listOf(set));
  if (map !== undefined) {
    return listOf(map).reduce<QuintMap>((soFar, entry) => {
      const [key = "", own = ""] = isList(entry) ? entry : [];
      return soFar.with(key, own);
    }, new QuintMap(new Map()));
  }
  const sorted = Object.entries(fields).sort(([one], [other]) => (one < other ? -1 : 1));
  return Object.fromEntries(sorted.map(([name, own]) => [name, fromItf(own)]));
}

function listOf(value: ItfValue): readonly Value[] {
  return Array.isArray(value) ? value.map(fromItf) : [];
}
