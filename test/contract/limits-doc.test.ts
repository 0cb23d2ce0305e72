import { globSync, readFileSync } from "node:fs";
import { describe, expect, test } from "vitest";
import { optionNames } from "../../src/config/options.ts";
import { accessBounds } from "../bounds/access.ts";
import type { Bound } from "../bounds/bound.ts";
import { callBounds } from "../bounds/calls.ts";
import { clientBounds } from "../bounds/client.ts";
import { declaredIn, isOwning, ownersIn } from "../bounds/collections.ts";
import { connectionBounds } from "../bounds/connections.ts";
import { etcdApiBounds } from "../bounds/etcd-api.ts";
import { etcdServerBounds } from "../bounds/etcd-server.ts";
import { processBounds } from "../bounds/process.ts";
import { readBounds } from "../bounds/reads.ts";
import { storageBounds } from "../bounds/storage.ts";
import { watcherBounds } from "../bounds/watchers.ts";
import { xdsBounds } from "../bounds/xds.ts";
import { filesWith, notOneFile } from "./test-titles.ts";

const bounds: readonly Bound[] = [
  ...[connectionBounds, callBounds, accessBounds, watcherBounds, readBounds, storageBounds],
  ...[etcdApiBounds, etcdServerBounds, clientBounds, processBounds, xdsBounds],
].flat();

/**
 * Owners of a collection that outlives a call and that need no row: each is fixed at start, or part of something that
 * has one. Say here which.
 */
const exceptions: Readonly<Record<string, string>> = {
  fieldsByMessage: "the messages of etcd's protos",
  typesByName: "the messages of this service's protos",
  CertificateStore:
    "the connections of a server or client that take its certificates, fixed at start",
  CachedResources: "resources, fixed at start",
  ProcessResources: "resources, fixed at start",
  ImportRun: "writes of one import, at most as many as its --concurrency",
  ChangeableLevel: "the loggers of a process: its log, and a few for each resource",
  Checks: "problems of the configuration, reported at start",
  Table: "a number for each heading of a printed table",
  knownMessages: "the messages of etcd, a constant",
  claimsOfOneToken: "a constant",
  noKeys: "a constant",
  startUpText: "no checks, the default of a parameter",
};

// What the test kit holds is bounded by the test that asks for it.
const excluded = ["src/wire/generated/**", "src/testing/**"];
const sources = globSync("src/**/*.ts", { exclude: excluded }).map((file) => ({
  ...{ file, source: readFileSync(file, "utf8") },
}));
const owners = sources.flatMap(({ file, source }) => ownersIn(file, source));
const declared = new Set(sources.flatMap(({ source }) => declaredIn(source)));

function optionsIn(text: string): string[] {
  return [...text.matchAll(/`--([a-z-]+)/g)].map(([, name = ""]) => name);
}

const known = new Set<string>([
  ...optionNames,
  ...["quota-backend-bytes", "max-request-bytes", "max-old-space-size"],
]);

describe("The bounds of test/bounds/", () => {
  test("have an owner, a bound, its scope and a test each", () => {
    expect(bounds.length).toBeGreaterThan(90);
    const incomplete = bounds.filter(
      ({ what, owners: held, bound, per, shownBy }) =>
        [what, bound, per].includes("") || held.length === 0 || shownBy.length === 0,
    );
    expect(incomplete).toEqual([]);
  });

  test.each([...new Set(bounds.flatMap(({ shownBy }) => shownBy))])(
    "are shown by a test of one file: %s",
    (title) => {
      expect(filesWith(title), notOneFile).toHaveLength(1);
    },
  );

  test("are of owners that src/ declares", () => {
    const missing = bounds.flatMap(({ what, owners: held }) =>
      held.filter((name) => !declared.has(name)).map((name) => `${name}: ${what}`),
    );
    expect(missing).toEqual([]);
  });

  test("name only existing options", () => {
    const options = bounds.flatMap(({ bound, atBound }) => optionsIn(`${bound} ${atBound}`));
    expect(options.length).toBeGreaterThan(20);
    expect(options.filter((name) => !known.has(name))).toEqual([]);
  });

  test("are there for each class and module that owns a collection", () => {
    const bounded = new Set(bounds.flatMap(({ owners: held }) => held));
    const missing = owners.filter(({ name }) => !bounded.has(name) && !(name in exceptions));
    expect(
      missing,
      "These hold a collection that outlives a call, and test/bounds/ has no row for them. Bound it in count, bytes and time, write a test that shows what happens at the bound, and add a row (or the name to the owners of the row that bounds it); if it is fixed at start or part of something that has a row, add it to the exceptions of this test and say why.",
    ).toEqual([]);
  });

  test("have no two owners of one name, of which one would need no row", () => {
    const names = owners.map(({ name }) => name);
    expect(owners.filter(({ name }, i) => names.indexOf(name) !== i)).toEqual([]);
  });

  test("have no needless exceptions", () => {
    const names = new Set(owners.map(({ name }) => name));
    const bounded = new Set(bounds.flatMap(({ owners: held }) => held));
    const needless = Object.keys(exceptions).filter(
      (name) => !names.has(name) || bounded.has(name),
    );
    expect(needless).toEqual([]);
  });

  test.each([
    ["  readonly #places = new Map<string, Place>();", true],
    ["  #items: T[] = [];", true],
    ["  readonly #single = new Fifo<Notification<T>>();", true],
    ["  #batches: (Batch | undefined)[];", true],
    ["  readonly #listeners: ((ready: boolean) => void)[] = [];", true],
    ["  readonly #waiting = new FairQueue<() => void>();", true],
    ["  readonly #byField: ReadonlyMap<string, Map<string, Groups>>;", true],
    ["const encoded = new WeakMap<object, Buffer>();", true],
    ["const counts: Map<string, number> = new Map();", true],
    ["const codes: ReadonlySet<string> = new Set([", false],
    ["  const found = new Set([file]);", false],
    ["    const items: StoredObject[] = [];", false],
    ["  readonly events: readonly WatchEvent[];", false],
    ["  readonly #fields: readonly string[];", false],
  ])("take %j for one: %s", (line, isOwner) => {
    expect(isOwning(line)).toBe(isOwner);
  });

  test("are required of each class of a file", () => {
    const source = [
      "const encoded = new WeakMap<object, Buffer>();",
      "export abstract class Bounded {",
      "  readonly #items: string[] = [];",
      "  readonly #keys = new Set<string>();",
      "}",
      "class Stateless {",
      "}",
      "/** A second class of the file. */",
      "class Forgotten<T> {",
      "  readonly #waiting = new Fifo<T>();",
      "}",
    ].join("\n");
    const names = ownersIn("some.ts", source).map(({ name }) => name);
    expect(names).toEqual(["encoded", "Bounded", "Forgotten"]);
  });
});

describe("docs/limits.md", () => {
  const text = readFileSync("docs/limits.md", "utf8");

  test("names only existing options", () => {
    const options = [...text.matchAll(/`--([a-z-]+)/g)].map(([, name = ""]) => name);
    expect(options.length).toBeGreaterThan(15);
    expect(options.filter((name) => !known.has(name))).toEqual([]);
  });

  test("has each option that sets a limit", () => {
    const limits = optionNames.filter((name) => /^max-(?!staleness)|-ceiling$/.test(name));
    expect(limits.length).toBeGreaterThan(10);
    expect(limits.filter((name) => !text.includes(`\`--${name}`))).toEqual([]);
  });

  test("links to the tests that show it", () => {
    const links = [...text.matchAll(/\[([^\]]+)\]\(\.\.\/(test\/[^)]+\.test\.ts)\)/g)];
    expect(links.length).toBeGreaterThan(0);
    for (const [, name = "", path = ""] of links) {
      const source = readFileSync(path, "utf8");
      expect([name, name === "shown" || source.includes(`"${name}"`)]).toEqual([name, true]);
    }
  });
});
