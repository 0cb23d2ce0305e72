import { globSync, readFileSync } from "node:fs";
import { describe, expect, test } from "vitest";
import { optionNames } from "../../src/config/options.ts";

const page = new URL("../../docs/limits.md", import.meta.url);
const text = readFileSync(page, "utf8");

/** A test that the page names: `[its name](its file)`. */
interface Named {
  readonly name: string;
  readonly path: string;
}

function namedIn(part: string): Named[] {
  const links = part.matchAll(/\[([^\]]+)\]\((\.\.\/test\/[^)]+)\)/g);
  return [...links].map(([, name = "", path = ""]) => ({ name, path }));
}

/** The rows of the tables that say where something is, which all have six columns. */
const rows = text
  .split("\n")
  .map((line) => line.split(/(?<!\\)\|/).slice(1, -1))
  .filter((cells) => cells.length === 6)
  .map((cells) => cells.map((cell) => cell.trim()))
  .filter(([first = ""]) => first !== "what" && !/^-+$/.test(first));

/** The files below src/ that a row says something of. */
const documented = new Set(
  rows.flatMap(([, where = ""]) => [...where.matchAll(/`([^`]+)`/g)].map(([, file = ""]) => file)),
);

/**
 * Files with a collection that outlives a call and needs no row: each is fixed at start, or part of something that has
 * one. Say here which.
 */
const exceptions: Readonly<Record<string, string>> = {
  "base/certificate-store.ts":
    "the connections of a server or client that take its certificates, fixed at start",
  "client/remote/relayed-calls.ts": "reasons, a constant",
  "cli/etcd-proxy/proxy-options.ts": "words of Go for true and false, constants",
  "cli/serve/log-level.ts": "the loggers of a process: its log, and a few for each resource",
  "cli/serve/start-up-text.ts": "no checks, the default of a parameter",
  "cli/output/table.ts": "a number for each heading of a printed table",
  "codec/protobuf-scalar.ts": "protobuf's types, a constant",
  "config/checks.ts": "problems of the configuration, reported at start",
  "storage/etcd/client/errors.ts": "gRPC's codes, a constant",
};

const collections =
  "Map|Set|WeakMap|WeakSet|Array|Fifo|FairQueue|BatchQueue|KeyedQueue|KeySet|DelayHeap|BTree|Slabs";

/**
 * Patterns of lines that make a file an owner of a collection: a field of a class or a constant of the module that is
 * initialized with one, or a private field that is declared as one and initialized in the constructor. Variables of
 * functions have more indentation. A readonly collection never grows: it came from elsewhere.
 */
const owns: readonly RegExp[] = [
  new RegExp(`^ {2}(?:readonly )?#?\\w+(?:: (?:[^=]|=>)+)? = (?:new (?:${collections})\\b|\\[)`),
  new RegExp(
    `^ {2}(?:readonly )?#\\w+: (?!readonly )[^=;]*(?:\\b(?:${collections})\\b|\\[\\])[^=;]*;$`,
  ),
  new RegExp(`^(?:export )?(?:const|let) \\w+(?:: [^=]+)? = new (?:${collections})\\b`),
];

const owners = globSync("**/*.ts", { cwd: "src" })
  .filter((file) => !file.startsWith("wire/generated/"))
  .filter((file) =>
    readFileSync(`src/${file}`, "utf8")
      .split("\n")
      .some((line) => owns.some((pattern) => pattern.test(line))),
  )
  .sort();

describe("docs/limits.md", () => {
  test("has file, bound, scope and test in each row", () => {
    expect(rows.length).toBeGreaterThan(90);
    const incomplete = rows.filter(
      ([what, where, bound, per, , shownBy = ""]) =>
        [what, where, bound, per].includes("") || namedIn(shownBy).length === 0,
    );
    expect(incomplete).toEqual([]);
  });

  test.each(namedIn(text))("names $name, which is in $path", ({ name, path }) => {
    // As the title of a test, or as one of the rows that a table of tests takes its titles from.
    const source = readFileSync(new URL(path, page), "utf8");
    expect(name === "limits-doc" || name === "shown" || source.includes(`"${name}"`)).toBe(true);
  });

  test.each([...documented].sort())("names src/%s, which exists", (file) => {
    expect(() => readFileSync(`src/${file}`)).not.toThrow();
  });

  test("names only existing options", () => {
    const options = [...text.matchAll(/`--([a-z-]+)/g)].map(([, name = ""]) => name);
    const ofEtcdAndNode = ["quota-backend-bytes", "max-request-bytes", "max-old-space-size"];
    const known = new Set<string>([...optionNames, ...ofEtcdAndNode]);
    expect(options.filter((name) => !known.has(name))).toEqual([]);
  });

  test("has a row for each file that owns a collection", () => {
    const missing = owners.filter((file) => !documented.has(file) && !(file in exceptions));
    expect(
      missing,
      `These files hold a collection that outlives a call, and docs/limits.md has no row for them. Bound it in count, bytes and time, write a test that shows what happens at the bound, and add a row; if it is fixed at start or part of something that has a row, add it to the exceptions of this test and say why.`,
    ).toEqual([]);
  });

  test("has no needless exceptions", () => {
    const needless = Object.keys(exceptions).filter(
      (file) => !owners.includes(file) || documented.has(file),
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
    ["  const found = new Set([file]);", false],
    ["    const items: StoredObject[] = [];", false],
    ["  readonly events: readonly WatchEvent[];", false],
    ["  readonly #fields: readonly string[];", false],
  ])("takes %j for one: %s", (line, isOwner) => {
    expect(owns.some((pattern) => pattern.test(line))).toBe(isOwner);
  });
});
