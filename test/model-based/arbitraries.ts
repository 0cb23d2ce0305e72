import type { Delivery } from "../../src/cacher/request/request.ts";
import { deliveries } from "../foreign/deliveries.ts";
import type { View } from "../guarantees/recording.ts";
import fc from "../property.ts";
import type { ModelRequirement } from "../selector/label-model.ts";
import { type Entry, type ModelSelector, type ModelValue, modelFields, selects } from "./model.ts";

/*
 * Random histories and requests, with few keys, values and selectors, so that they match often.
 */

/** The last ones sort differently in UTF-16 than in UTF-8. */
export const modelKeys = ["a", "a/1", "a/2", "ab", "b/\u{ffee}", "b/\u{1f388}", "\u{10ffff}"];
const prefixes = ["", "a", "a/", "b/", "b/\u{1f388}", "x"];

const labelValues = ["", "web", "db", "7", "10"];
const fieldValues = ["Running", "Failed", "a,b=c\\", "7", "true"];

const modelValue: fc.Arbitrary<ModelValue> = fc.record(
  {
    metadata: fc.record(
      {
        labels: fc.dictionary(
          fc.constantFrom("app", "tier"),
          fc.constantFrom("", "web", "db", "7", "010"),
          { noNullPrototype: true },
        ),
      },
      { requiredKeys: [] },
    ),
    phase: fc.constantFrom("Running", "Failed", "a,b=c\\", "", null),
    spec: fc.record({ node: fc.constantFrom<string | number | boolean>("Running", 7, true) }),
  },
  { requiredKeys: [] },
);

const value: fc.Arbitrary<string> = fc.oneof(
  { weight: 8, arbitrary: modelValue.map((json) => JSON.stringify(json)) },
  { weight: 1, arbitrary: fc.constantFrom("", '{"phase":"Running"', '"\xff"', "no JSON") },
);

/** A transaction, with each key at most once. */
export const transaction: fc.Arbitrary<readonly Entry[]> = fc
  .shuffledSubarray(modelKeys, { minLength: 1, maxLength: 4 })
  .chain((keys) =>
    fc.tuple(
      ...keys.map((key) =>
        fc.tuple(fc.constant(key), fc.option(value, { freq: 3 })).map((entry): Entry => entry),
      ),
    ),
  );

const labelRequirement: fc.Arbitrary<ModelRequirement> = fc.oneof(
  fc.record({
    key: fc.constantFrom("app", "tier"),
    operator: fc.constantFrom("in", "notin"),
    values: fc.uniqueArray(fc.constantFrom(...labelValues), { minLength: 1, maxLength: 2 }),
  }),
  fc.record({
    key: fc.constantFrom("app", "tier"),
    operator: fc.constantFrom("exists", "absent"),
    values: fc.constant([]),
  }),
  fc.record({
    key: fc.constant("tier"),
    operator: fc.constantFrom(">", "<"),
    values: fc.constantFrom("7", "8").map((integer) => [integer]),
  }),
);

const fieldRequirement: fc.Arbitrary<ModelSelector["fields"][number]> = fc.record({
  field: fc.constantFrom(...modelFields),
  operator: fc.constantFrom("=", "=", "==", "!="),
  value: fc.constantFrom("", ...fieldValues),
});

export const selector: fc.Arbitrary<ModelSelector> = fc.oneof(
  { weight: 3, arbitrary: fc.constant({ labels: [], fields: [] }) },
  {
    weight: 2,
    arbitrary: fc.record({ labels: fc.constant([]), fields: fc.tuple(fieldRequirement) }),
  },
  {
    weight: 3,
    arbitrary: fc.record({
      labels: fc.array(labelRequirement, { maxLength: 2 }),
      fields: fc.array(fieldRequirement, { maxLength: 2 }),
    }),
  },
);

/** Invalid label and field selectors. */
const unusable: fc.Arbitrary<readonly [string, string]> = fc.constantFrom(
  ["app in (", ""] as const,
  ["app=web", "undeclared=1"] as const,
  ["", "phase"] as const,
);

const unusableSelector = seldom(20, unusable);

/** A value once in `n` times, otherwise undefined. */
function seldom<T>(n: number, arbitrary: fc.Arbitrary<T>): fc.Arbitrary<T | undefined> {
  return fc.oneof({ weight: n - 1, arbitrary: fc.constant(undefined) }, { weight: 1, arbitrary });
}

export function labelText({ labels }: ModelSelector): string {
  return labels
    .map(({ key, operator, values }) => {
      if (operator === "exists") return key;
      if (operator === "absent") return `!${key}`;
      if (operator === ">" || operator === "<") return `${key} ${operator} ${values.join("")}`;
      return `${key} ${operator} (${values.join(", ")})`;
    })
    .join(", ");
}

export function fieldText({ fields }: ModelSelector): string {
  return fields
    .map(({ field, operator, value }) => field + operator + value.replace(/[\\,=]/g, "\\$&"))
    .join(",");
}

export type ModelScope = { readonly key: string } | { readonly prefix: string };

const prefixScope = fc.constantFrom(...prefixes).map((prefix) => ({ prefix }));
export const scope: fc.Arbitrary<ModelScope> = fc.oneof(
  { weight: 3, arbitrary: prefixScope },
  { weight: 1, arbitrary: fc.constantFrom(...modelKeys, "x").map((key) => ({ key })) },
);

/** Number of revisions back from the newest; negative: in the future. */
const back = fc.oneof(
  { weight: 16, arbitrary: fc.nat(6) },
  { weight: 1, arbitrary: fc.constantFrom(-1, -2) },
  { weight: 1, arbitrary: fc.nat(60) },
);

export interface WatchWish {
  readonly scope: ModelScope;
  readonly selector: ModelSelector;
  /** Replaces `selector`, if given. */
  readonly unusable: readonly [labels: string, fields: string] | undefined;
  readonly includePrevious: boolean;
  /** The revision to begin after, counted back from the newest; undefined: unspecified. */
  readonly back: number | undefined;
  readonly sendInitialEvents: boolean;
  readonly delivery: Delivery;
  readonly bookmarkIntervalMs: number;
  readonly eagerBookmarks: boolean;
  /** Lifetime in milliseconds, if limited. */
  readonly lifetimeMs: number | undefined;
  readonly history: "not said" | "this one" | "another";
  /** Whether its reader reads as soon as it is notified; otherwise at any time. */
  readonly takesAtOnce: boolean;
}

export const watchWish: fc.Arbitrary<WatchWish> = fc.record({
  scope,
  selector,
  unusable: unusableSelector,
  includePrevious: fc.boolean(),
  back: fc.option(back, { freq: 3, nil: undefined }),
  sendInitialEvents: fc.boolean(),
  delivery: fc.constantFrom(...(Object.keys(deliveries) as Delivery[])),
  bookmarkIntervalMs: fc.constantFrom(1_000, 2_500),
  eagerBookmarks: fc.boolean(),
  lifetimeMs: seldom(10, fc.integer({ min: 1_000, max: 10_000 })),
  history: fc.constantFrom(
    ...Array<"this one" | "not said">(20).fill("this one").fill("not said", 10),
    "another",
  ),
  takesAtOnce: fc.boolean(),
});

export type Match = "LINEARIZABLE" | "ANY" | "NOT_OLDER_THAN" | "EXACT";

export interface ReadWish {
  readonly scope: ModelScope;
  /** A get has an empty selector. */
  readonly selector: ModelSelector;
  readonly unusable: readonly [labels: string, fields: string] | undefined;
  readonly match: Match;
  /** For NOT_OLDER_THAN and EXACT. */
  readonly back: number;
  /** 0: none. */
  readonly pageSize: number;
  /** 0: none. */
  readonly pageBytes: number;
}

export const readWish: fc.Arbitrary<ReadWish> = fc
  .record({
    scope,
    selector,
    unusable: unusableSelector,
    match: fc.constantFrom<Match[]>("LINEARIZABLE", "ANY", "NOT_OLDER_THAN", "EXACT"),
    back,
    pageSize: fc.nat(3),
    pageBytes: fc.constantFrom(0, 0, 1, 200),
  })
  .map((wish) => {
    if ("prefix" in wish.scope) return wish;
    return { ...wish, selector: { labels: [], fields: [] }, unusable: undefined };
  });

export function viewOf(
  scope: ModelScope,
  selector: ModelSelector,
  includePrevious: boolean = false,
): View {
  return {
    includes: (key) => ("key" in scope ? key === scope.key : key.startsWith(scope.prefix)),
    matches: (object) => selects(selector, object),
    includePrevious,
  };
}
