import { readFileSync } from "node:fs";
import { expect, test } from "vitest";

/** The rows of the README's table of costs, and those of docs/benchmarks.md that they are of. */
const sources: readonly (readonly [string, string])[] = [
  [
    "CPU per event and stream, 1,000 streams on 20 connections, as many events as possible",
    "CPU per delivered event, 1000 streams, 20 connections, saturated writer",
  ],
  [
    "the same, 30 events a second",
    "CPU of the serving process per delivered event, 30 puts/s, 1000 streams, 20 connections",
  ],
  [
    "the same with a connection for each stream, 30 events a second",
    "CPU of the serving process per delivered event, 30 puts/s, 1000 streams, 1000 connections",
  ],
  [
    "from a put to the last of 1,000 streams, 30 puts a second, 20 connections, p99",
    "put to the last of 1000 streams, 30 puts/s, 20 connections, p99",
  ],
  [
    "1,000 clients reconnect at once and get 10,000 objects each: CPU",
    "1000 clients reconnect at once, state of 10000 objects: CPU in all",
  ],
  ["a list of 10,000 objects of 1 KiB: CPU", "CPU of a list of 10000 x 1024 B, cache unchanged"],
  [
    "memory of an idle stream, 20 connections",
    "memory per idle stream, 5000 streams, 20 connections",
  ],
  [
    "the same with a TLS connection for each stream",
    "memory per idle stream, 1000 streams, 1000 connections, TLS",
  ],
];

/** In the benchmark, etcd's column is of one watch. The text of the row compares with etcd itself. */
const putRow = {
  here: "etcd's own CPU for a put, 200 a second, 1,000 clients",
  there: "etcd's CPU per put, 200 a second, 1000 clients (etcd: one watch)",
};

/** The rows of a page's tables, by their first cells. */
function rowsOf(page: string): ReadonlyMap<string, readonly string[]> {
  const lines = readFileSync(page, "utf8").matchAll(/^\| (.*) \|$/gm);
  return new Map(
    [...lines].map(([, line = ""]) => {
      const [title = "", ...cells] = line.split("|").map((cell) => cell.trim());
      return [title, cells] as const;
    }),
  );
}

/** With two digits. */
const rounded = (ratio: number): number => Number(ratio.toPrecision(2));

const readme = rowsOf("README.md");
const measured = rowsOf("docs/benchmarks.md");

test.each(sources)("The README has the measured costs of %s", (here, there) => {
  const [one, proxy, ours] = readme.get(here) ?? [];
  const [comparison = "", , , , etcd, grpcProxy] = measured.get(there) ?? [];
  const [, ratio] = /^([\d.]+) × etcd/.exec(comparison) ?? [];
  expect([one, ours?.replaceAll("*", "")]).toEqual(["1", ratio]);
  if (grpcProxy === "-") expect(proxy).toBe("");
  else expect(Number(proxy)).toBe(rounded(Number(grpcProxy) / Number(etcd)));
});

test("The README has the measured cost of a put to etcd", () => {
  const [comparison = "", , , own, , grpcProxy] = measured.get(putRow.there) ?? [];
  const [, ratio] = /([\d.]+) × etcd with 1000/.exec(comparison) ?? [];
  const [one, proxy, ours] = readme.get(putRow.here) ?? [];
  expect([one, ours]).toEqual(["1", `**${ratio}**`]);
  // Both columns are in the same unit.
  expect(Number(proxy)).toBe(rounded((Number(ratio) * Number(grpcProxy)) / Number(own)));
});

test("Each row of the README's costs is compared", () => {
  const costs = [...readme].filter(([, cells]) => cells.length === 3 && cells[0] === "1");
  expect(costs.map(([title]) => title).sort()).toEqual(
    [...sources.map(([here]) => here), putRow.here].sort(),
  );
});
