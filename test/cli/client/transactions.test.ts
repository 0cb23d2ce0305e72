import { afterAll, afterEach, beforeAll, expect, test } from "vitest";
import { wordsIn } from "../../../src/cli/client/txn-text.ts";
import { type Client, connect } from "../../../src/client/connect.ts";
import { type Etcd, startEtcd } from "../../etcd/etcd.ts";
import fc, { runs } from "../../property.ts";
import { CommandProcess, type Exit, type Served, startServe } from "../serve/serve-process.ts";
import { type Outcome, run } from "./client-terminal.ts";

let etcd: Etcd;
let served: Served;
let client: Client;

beforeAll(async () => {
  etcd = await startEtcd();
  const resources = ["--resource", "a=/a/", "--resource", "b=/b/"];
  served = await startServe(["--etcd", etcd.url, ...resources]);
  client = connect({ address: served.grpc });
});
afterEach(() => client.deletePrefix("a", "", { everyKey: true }));
afterAll(async () => {
  client.close();
  await served.process[Symbol.asyncDispose]();
  await etcd.stop();
});

/** Runs a command in a process of its own. */
async function command(...args: readonly string[]): Promise<Exit> {
  const [name = "", ...rest] = args;
  await using process = new CommandProcess([name, "-r", "a", "--address", served.grpc, ...rest]);
  return await process.exit;
}

/** Runs one in this process. */
function ran(...args: readonly string[]): Promise<Outcome> {
  const [name = "", ...rest] = args;
  return run([name, "-r", "a", "--address", served.grpc, ...rest]);
}

function typed(stdin: string | Uint8Array, ...args: readonly string[]): Promise<Outcome> {
  return run(["txn", "-r", "a", "--address", served.grpc, ...args], { stdin });
}

async function put(key: string, value: string): Promise<number> {
  return (await client.put("a", key, Buffer.from(value))).revision;
}

/** All keys with their values. */
async function state(): Promise<Readonly<Record<string, string>>> {
  const objects: Record<string, string> = {};
  for await (const { items } of client.list("a")) {
    for (const { key, value } of items) objects[key] = Buffer.from(value).toString();
  }
  return objects;
}

test("A transaction from arguments writes all at one revision if its conditions hold.", async () => {
  const revision = await put("x", "1");
  await put("old", "");
  const clauses = ["if", "x", "mod_revision", String(revision), "if", "new", "absent"];
  const words = [...clauses, "put", "x", "two words", "put", "new", "$'\"", "delete", "old"];
  const { code, stdout, stderr } = await command("txn", ...words);
  expect({ code, stderr }).toEqual({ code: 0, stderr: "" });
  const { object } = await client.get("a", "x");
  expect(stdout.split("\n").map((line) => line.trimEnd())).toEqual([
    `Succeeded at revision ${object.modRevision}.`,
    "OPERATION  RESOURCE  KEY  VERSION",
    "put        a         x    2",
    "put        a         new  1",
    "delete     a         old  -",
    "",
  ]);
  expect(await state()).toEqual({ x: "two words", new: "$'\"" });
  expect((await client.get("a", "new")).object.modRevision).toBe(object.modRevision);
});

test("A condition that does not hold: nothing is written, the objects are shown, exit code 4.", async () => {
  const revision = await put("x", "1");
  const words = ["if", "x", "value", "2", "if", "y", "absent", "put", "y", "1"];
  const { code, stdout, stderr } = await command("txn", ...words);
  expect({ code, stderr }).toEqual({ code: 4, stderr: "" });
  expect(stdout).toMatch(/^A condition does not hold at revision \d+: nothing was written\.\n/);
  expect(stdout).toMatch(new RegExp(`\nno +a +x +${revision} +1 +1\n`));
  expect(stdout).toMatch(/\nyes +a +y +- +- +-\n/);
  expect(await state()).toEqual({ x: "1" });

  const json = await typed("", "-o", "json", ...words);
  expect(json.code).toBe(4);
  expect(JSON.parse(json.stdout)).toMatchObject({
    succeeded: false,
    results: [],
    compares: [
      { held: false, object: { key: "x", value: Buffer.from("1").toString("base64") } },
      { held: true },
    ],
  });
});

test.each([
  ["exists", 0],
  ["absent", 4],
  ["create_revision 0", 4],
  ["value 1", 0],
])("The condition %j of an object with the value 1 ends with %i.", async (condition, expected) => {
  await put("x", "1");
  expect((await typed(`if x ${condition} put y 1`)).code).toBe(expected);
  expect(await state()).toEqual(expected === 0 ? { x: "1", y: "1" } : { x: "1" });
});

test("A transaction on standard input has quoted words, leases and other resources.", async () => {
  const lease = await client.leases.grant(60_000);
  const text = `if none absent
  in b
    put x "3"
  in a
    put "two words" "line 1\\nline 2"
    put leased "" lease ${lease.id}
    put short 1 ttl 60s`;
  const { code, stderr } = await typed(text);
  expect({ code, stderr }).toEqual({ code: 0, stderr: "" });
  const other = await client.get("b", "x");
  expect(Buffer.from(other.object.value).toString()).toBe("3");
  expect(await state()).toEqual({ "two words": "line 1\nline 2", leased: "", short: "1" });
  expect((await client.get("a", "leased")).object.lease).toBe(lease.id);
  expect((await client.get("a", "short")).object.lease).not.toBe(0n);
  await client.leases.release(lease);
});

test("Any words are the same after they were quoted on standard input.", () => {
  const word = fc.string({ unit: "binary" });
  const plain = fc.stringMatching(/^[^\s"]+$/);
  const words = fc.array(
    fc.oneof(
      word.map((text) => [text, JSON.stringify(text)] as const),
      plain.map((text) => [text, text] as const),
    ),
  );
  fc.assert(
    fc.property(words, fc.constantFrom(" ", "\n", "\r\n  "), (all, space) => {
      const text = all.map(([, quoted]) => quoted).join(space);
      expect(wordsIn(text)).toEqual(all.map(([given]) => given));
    }),
    { numRuns: runs(200) },
  );
});

test.each([
  ["", "it is empty"],
  ["if x", "a condition is missing after if x"],
  ["if x mod_revision", "its operand is missing after if x mod_revision"],
  ["if x newer 1", '"newer" is in the place of exists'],
  ["if x mod_revision 1x", 'mod_revision can\'t be "1x"'],
  ["put x", "a value is missing after put x"],
  ["put x 1 lease 0", 'lease can\'t be "0"'],
  ["put x 1 ttl 1s lease 1", "lease follows a put that has neither"],
  ["delete x ttl 1s", "ttl follows a put that has neither"],
  ["put x 1\nset y 2", '"set" is in the place of if'],
  ['put x 1\n\nput y "two words', 'line 3 has "two: quotes are around a whole word'],
  ['put y a"b"', "quotes are around a whole word"],
])("The transaction %j is refused, and nothing is written.", async (text, expected) => {
  const { code, stdout, stderr } = await typed(text);
  expect({ code, stdout }).toEqual({ code: 2, stdout: "" });
  expect(stderr).toContain(`The transaction can't be read: `);
  expect(stderr).toContain(expected);
  expect(await state()).toEqual({});
});

test("Bytes that are not UTF-8, and a format of values, are refused.", async () => {
  const refused = { code: 2, stderr: expect.stringContaining("not UTF-8") };
  expect(await typed(Buffer.from("put x \xff", "latin1"))).toMatchObject(refused);
  const format = { code: 2, stderr: expect.stringContaining("one of table, json") };
  expect(await typed("put x 1", "-o", "value")).toMatchObject(format);
  expect(await state()).toEqual({});
});

test("--validate-only checks the conditions and writes nothing.", async () => {
  const valid = await typed("", "--validate-only", "if", "x", "absent", "put", "x", "1");
  expect(valid).toMatchObject({ code: 0, stdout: expect.stringMatching(/^Valid at revision/) });
  const invalid = await typed("", "--validate-only", "if", "x", "exists", "put", "x", "1");
  expect(invalid.code).toBe(4);
  expect(await state()).toEqual({});
});

test("A transaction with the same --request-id is applied once.", async () => {
  const words = ["put", "x", "1", "--request-id", "one"];
  const first = await typed("", ...words);
  expect(first.code).toBe(0);
  await put("x", "2");
  expect(await typed("", ...words)).toEqual(first);
  expect(await state()).toEqual({ x: "2" });
});

test("A prefix is counted and deleted at one revision.", async () => {
  for (const key of ["ns-1/a", "ns-1/b", "ns-2/a"]) await put(key, "1");
  const counted = { code: 0, stdout: "Dry run: 2 objects would be deleted.\n", stderr: "" };
  expect(await ran("delete", "--prefix", "ns-1/", "--dry-run")).toMatchObject(counted);
  expect(Object.keys(await state())).toHaveLength(3);
  const deleted = {
    code: 0,
    stdout: expect.stringMatching(/^Deleted 2 objects at revision \d+\.\n$/),
  };
  expect(await ran("delete", "--prefix", "ns-1/")).toMatchObject(deleted);
  expect(await state()).toEqual({ "ns-2/a": "1" });
  const all = await ran("delete", "--every-key", "-o", "json");
  expect(JSON.parse(all.stdout)).toMatchObject({ deleted: "1" });
  expect(await state()).toEqual({});
});

test.each([
  [[], "give a key, --prefix or --every-key"],
  [["x", "--prefix", "x"], "give a key, --prefix or --every-key"],
  [["--prefix", "x", "--every-key"], "give a key, --prefix or --every-key"],
  [["--prefix", ""], "use --every-key"],
  [["x", "--dry-run"], "--dry-run needs"],
  [["--prefix", "x", "--expected-mod-revision", "1"], "need a key"],
  [["--every-key", "--history-id", "1"], "need a key"],
  [["--prefix", "x", "-o", "value"], "one of table, json"],
])("delete with %j is refused, and nothing is deleted.", async (args, expected) => {
  await put("x", "1");
  const { code, stderr } = await run(["delete", "-r", "a", "--address", served.grpc, ...args]);
  expect({ code, stderr }).toEqual({ code: 2, stderr: expect.stringContaining(expected) });
  expect(await state()).toEqual({ x: "1" });
});

test("Several keys are read at one revision; what is missing is named, with exit code 3.", async () => {
  await put("x", "1");
  const second = await put("y", "2");
  const both = await ran("get", "y", "x", "-o", "value");
  expect(both).toMatchObject({ code: 0, stdout: "2\n1\n", stderr: "" });
  const missing = await ran("get", "x", "no", "y", "none", "-o", "json");
  expect(missing).toMatchObject({
    code: 3,
    stderr: "watch-fanout: These do not exist: no, none.\n",
  });
  const { revision, items } = JSON.parse(missing.stdout);
  expect(items.map(({ key }: { key: string }) => key)).toEqual(["x", "y"]);
  expect(Number(revision)).toBeGreaterThanOrEqual(second);
  const at = await ran("get", "x", "y", "--at", String(second - 1));
  expect(at).toMatchObject({ code: 3, stdout: expect.not.stringContaining("y") });
  const view = await ran("get", "x", "y", "--keys-only");
  expect(view).toMatchObject({ code: 2, stderr: expect.stringContaining("are for one key") });
});
