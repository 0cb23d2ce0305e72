import { pino } from "pino";
import { expect, test } from "vitest";
import { systemClock } from "../../../src/base/clock.ts";
import { AttributeReader } from "../../../src/codec/attribute-reader.ts";
import { JsonCodec } from "../../../src/codec/json-codec.ts";
import { thing } from "../../contract/replica.ts";
import { put } from "../../server/putting.ts";
import { type Served, serveThings } from "../../server/served.ts";
import { run, Terminal } from "./client-terminal.ts";

/** Things `t-0` to `t-9`. */
async function things(): Promise<{ served: Served; at: readonly string[] }> {
  const served = await serveThings();
  for (let i = 0; i < 10; i++) await put(served.storage, `t-${i}`, `value ${i}`);
  return { served, at: ["-r", "things", "--address", `127.0.0.1:${served.server.port}`] };
}

function keysIn(table: string): string[] {
  return table.match(/^t-\d/gm) ?? [];
}

test("list --keys-only prints objects without values.", async () => {
  const { at } = await things();
  const { stdout } = await run(["list", "t-1", "--keys-only", "-o", "json", ...at]);
  expect(JSON.parse(stdout)).toMatchObject({ items: [{ key: "t-1", value: "", version: "1" }] });
});

test("list --count prints the number of objects, and with -o json the response.", async () => {
  const { at } = await things();
  expect((await run(["list", "--count", ...at])).stdout).toBe("10\n");
  const { stdout } = await run(["list", "t-1", "--count", "-o", "json", ...at]);
  expect(JSON.parse(stdout)).toMatchObject({ items: [], remaining_item_count: "1" });
});

test.each([
  [["-o", "value"], "-o value"],
  [["--keys-only"], "--keys-only"],
  [["--attributes"], "--attributes"],
  [["--read-mask", "spec"], "--read-mask"],
  [["--limit", "3"], "--limit"],
  [["--page-size", "3"], "--page-size"],
])("list --count refuses %j.", async (option, name) => {
  const { code, stderr } = await run(["list", "--count", ...option]);
  expect(code).toBe(2);
  expect(stderr).toContain(`--count can't be used with ${name}.`);
});

test.each([
  [["--limit", "3"], 3],
  [["--limit", "7", "--page-size", "3"], 7],
  [["--limit", "100"], 10],
  [["--limit", "0"], 10],
])("list %j prints the first of them.", async (options, count) => {
  const { at } = await things();
  const { stdout } = await run(["list", ...options, ...at]);
  expect(keysIn(stdout)).toEqual(Array.from({ length: count }, (_, i) => `t-${i}`));
});

test("list --shard prints each key in one part.", async () => {
  const { at } = await things();
  const parts = await Promise.all(
    ["1/3", "2/3", "3/3"].map(async (part) => (await run(["list", "--shard", part, ...at])).stdout),
  );
  expect(parts.every((part) => keysIn(part).length < 10)).toBe(true);
  expect(parts.flatMap(keysIn).toSorted()).toHaveLength(10);
});

test.each(["0/3", "4/3", "1", "a/b", "1/0"])("--shard %s is a usage error.", async (part) => {
  const { code, stderr } = await run(["list", "--shard", part]);
  expect([code, stderr]).toEqual([2, expect.stringContaining("A part is i/n")]);
});

test("watch --event-types and --keys-only print what is asked for.", async () => {
  const { at, served } = await things();
  const terminal = new Terminal();
  const options = ["--event-types", "deleted,added", "--keys-only"];
  const done = terminal.run("watch", ...options, ...at);
  while (served.cacher.stats().watchers.live === 0) await new Promise(setImmediate);
  await put(served.storage, "t-1", "changed");
  await served.storage.delete({ key: "t-2" });
  await put(served.storage, "t-new", "new");
  await terminal.until("stdout", "t-new");
  terminal.interrupt();
  const { stdout } = await done;
  expect(stdout).not.toContain("t-1");
  expect(stdout).not.toContain("value");
  expect(stdout).toMatch(/DELETED +t-2/);
});

test("--event-types of no type is a usage error.", async () => {
  const { code, stderr } = await run(["watch", "--event-types", "added,moved"]);
  expect([code, stderr]).toEqual([2, expect.stringContaining("added, modified and deleted")]);
});

/** Two things with labels and fields, and one that no codec can read. */
async function labelledThings() {
  const codec = new JsonCodec({ fields: ["spec.node"] });
  const attributes = new AttributeReader(codec, systemClock, pino({ level: "silent" }));
  const served = await serveThings({ cacher: { attributes } });
  await put(served.storage, "t-1", thing("web", "n1"));
  await put(served.storage, "t-2", thing("db", "n2"));
  await put(served.storage, "t-3", "no JSON");
  return { served, at: ["-r", "things", "--address", `127.0.0.1:${served.server.port}`] };
}

const attributes = { labels: { app: "web" }, fields: { "spec.node": "n1" } };

test("get and list --attributes print labels and fields in place of the values.", async () => {
  const { at } = await labelledThings();
  const got = await run(["get", "t-1", "--attributes", "-o", "json", ...at]);
  expect(JSON.parse(got.stdout).object).toMatchObject({ key: "t-1", value: "", attributes });
  const listed = await run(["list", "--attributes", "-o", "json", ...at]);
  expect(JSON.parse(listed.stdout).items).toMatchObject([
    { key: "t-1", value: "", attributes },
    { key: "t-2", attributes: { labels: { app: "db" } } },
    { key: "t-3", value: "", undecodable: true },
  ]);
  const { stdout } = await run(["list", "--attributes", ...at]);
  expect(stdout).toContain(JSON.stringify({ attributes }));
  expect(stdout).toMatch(/t-3 .*\{"undecodable":true\}/);
  const value = await run(["get", "t-1", "--attributes", "-o", "value", ...at]);
  expect(JSON.parse(value.stdout)).toEqual({ attributes });
});

test("--attributes of a resource without a codec names the flag that there is in its place.", async () => {
  const { at } = await things();
  const { code, stderr } = await run(["list", "--attributes", ...at]);
  expect([code, stderr]).toEqual([2, expect.stringContaining("use --keys-only")]);
  expect(stderr).not.toContain("VIEW_");
});

test("An error about a key that looks like a name of the contract has the key as it is.", async () => {
  const { at } = await things();
  const { code, stderr } = await run(["get", "VIEW_ATTRIBUTES", ...at]);
  expect([code, stderr]).toEqual([3, expect.stringContaining('no object "VIEW_ATTRIBUTES"')]);
});

test("get, list and watch --read-mask print these parts of the values.", async () => {
  const { at, served } = await labelledThings();
  const mask = ["--read-mask", "spec.node,metadata.none", "-o", "value"];
  const shown = '{"metadata":{},"spec":{"node":"n1"}}';
  expect((await run(["get", "t-1", ...mask, ...at])).stdout).toBe(shown);
  const listed = await run(["list", ...mask, ...at]);
  expect(listed.stdout).toBe(`${shown}\n${shown.replace("n1", "n2")}\n{"undecodable":true}\n`);
  const terminal = new Terminal();
  const done = terminal.run("watch", ...mask, ...at);
  while (served.cacher.stats().watchers.live === 0) await new Promise(setImmediate);
  await put(served.storage, "t-1", thing("db", "n9"));
  await terminal.until("stdout", "n9");
  terminal.interrupt();
  expect((await done).stdout).toBe(`${shown.replace("n1", "n9")}\n`);
});

test("list --read-mask says which path the service refuses.", async () => {
  const { at } = await labelledThings();
  const { code, stderr } = await run(["list", "--read-mask", "spec,a..b", ...at]);
  expect([code, stderr]).toEqual([2, expect.stringContaining('"a..b" is not a path')]);
});

test.each([
  [["--keys-only", "--attributes"]],
  [["--attributes", "--read-mask", "spec"]],
  [["--keys-only", "--read-mask", "spec"]],
])("list refuses %j together.", async (options) => {
  const { code, stderr } = await run(["list", ...options]);
  expect([code, stderr]).toEqual([2, expect.stringContaining("cannot be used with")]);
});
