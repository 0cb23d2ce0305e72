import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, afterEach, beforeAll, describe, expect, test } from "vitest";
import { revisionConflict } from "../../../src/base/errors.ts";
import { type Client, connect } from "../../../src/client/connect.ts";
import { statusOf } from "../../../src/wire/errors.ts";
import { startScriptedServer } from "../../client/scripted-server.ts";
import { wireObject } from "../../client/wire-messages.ts";
import { startEtcd } from "../../etcd/etcd.ts";
import fc, { costlyRuns } from "../../property.ts";
import { CommandProcess, type Served, startServe } from "../serve/serve-process.ts";
import { type Outcome, run } from "./client-terminal.ts";

let folder: string;
let served: Served;
let client: Client;

beforeAll(async () => {
  folder = mkdtempSync(join(tmpdir(), "watch-fanout-"));
  served = await startServe(["--resource", "a=/a/", "--resource", "b=/b/"]);
  client = connect({ address: served.grpc });
});
afterEach(async () => {
  for (const resource of ["a", "b"]) {
    for (const key of (await state(resource)).keys()) await client.delete(resource, key);
  }
});
afterAll(async () => {
  client.close();
  await served.process[Symbol.asyncDispose]();
  rmSync(folder, { recursive: true });
});

function against(...args: readonly string[]): Promise<Outcome> {
  return run([...args, "--address", served.grpc]);
}

/** Runs `export`, and returns its output and the path of a file with it. */
async function exported(...args: readonly string[]): Promise<{ text: string; file: string }> {
  const { code, stdout, stderr } = await against("export", ...args);
  expect([code, stderr]).toEqual([0, expect.stringContaining("Exported ")]);
  const file = fileOf(stdout);
  return { text: stdout, file };
}

function fileOf(text: string): string {
  const file = join(folder, "export.jsonl");
  writeFileSync(file, text);
  return file;
}

async function imported(file: string, ...args: readonly string[]): Promise<string> {
  const { code, stdout, stderr } = await against("import", file, ...args);
  expect({ code, stderr }).toEqual({ code: 0, stderr: "" });
  return stdout;
}

/** All keys of a resource with their values, as text of one character per byte. */
async function state(resource: string): Promise<ReadonlyMap<string, string>> {
  const objects = new Map<string, string>();
  for await (const { items } of client.list(resource)) {
    for (const { key, value } of items) objects.set(key, Buffer.from(value).toString("latin1"));
  }
  return objects;
}

async function put(resource: string, key: string, value: string | Buffer): Promise<number> {
  return (await client.put(resource, key, Buffer.from(value))).revision;
}

function objectsIn(text: string): readonly { resource: string; key: string; value?: string }[] {
  return text
    .trim()
    .split("\n")
    .slice(1, -1)
    .map((line) => JSON.parse(line));
}

const counts = (created: number, replaced: number, left: number, deleted: number, failed = 0) =>
  `${created} created, ${replaced} replaced, ${left} left as they were, ${deleted} deleted, ${failed} failed.\n`;

test("Any bytes below any keys are the same after an export and an import.", async () => {
  const key = fc.string({ unit: "grapheme", minLength: 1, maxLength: 12 });
  const value = fc.oneof(
    fc.uint8Array({ maxLength: 40 }).map((bytes) => Buffer.from(bytes)),
    fc.string({ unit: "binary" }).map((text) => Buffer.from(text)),
    fc.constantFrom("\ufeffx", "\u2028\r\n", "", "\u0000").map((text) => Buffer.from(text)),
  );
  await fc.assert(
    fc.asyncProperty(
      fc.dictionary(key, value, { maxKeys: 12, noNullPrototype: true }),
      async (objects) => {
        for (const resource of ["a", "b"]) {
          for (const old of (await state(resource)).keys()) await client.delete(resource, old);
          for (const [name, bytes] of Object.entries(objects)) await put(resource, name, bytes);
        }
        const before = await state("a");
        const { file, text } = await exported("-r", "a", "-r", "b");
        expect(objectsIn(text)).toHaveLength(2 * before.size);
        for (const name of before.keys()) await client.delete("a", name);
        await imported(file);
        expect(await state("a")).toEqual(before);
        expect(await state("b")).toEqual(before);
      },
    ),
    { numRuns: costlyRuns(60) },
  );
});

test("An export, as a user runs it, has a header, the objects in order, and a footer.", async () => {
  await put("b", "k2", Buffer.of(0xff));
  const revision = await put("b", "k1", "text\u2028");
  const leased = await client.put("a", "leased", Buffer.from("x"), { ttlMs: 60_000 });
  await using command = new CommandProcess(["export", "--all", "--address", served.grpc]);
  const { code, stdout, stderr } = await command.exit;
  expect([code, stderr]).toEqual([
    0,
    expect.stringMatching(/^watch-fanout: Exported 3 objects at revision \d+\.\n$/),
  ]);
  const [header, ...lines] = stdout
    .trim()
    .split("\n")
    .map((line) => JSON.parse(line));
  expect(header).toMatchObject({
    ...{ format: "watch-fanout-export/1", prefix: "" },
    resources: [
      { name: "a", revision: leased.revision, history_id: expect.stringMatching(/./) },
      { name: "b", revision: leased.revision, history_id: expect.stringMatching(/./) },
    ],
  });
  expect(lines).toMatchObject([
    { resource: "a", key: "leased", value: "x", lease: expect.stringMatching(/^[1-9]/) },
    { resource: "b", key: "k1", value: "text\u2028", mod_revision: revision, version: 1 },
    { resource: "b", key: "k2", value_base64: "/w==" },
    { end: true, objects: 3 },
  ]);
  const outcome = await against("import", fileOf(stdout));
  expect(outcome.stderr).toContain("1 object had a lease");
});

describe("An export is of one revision", () => {
  test("of all resources of an etcd, also of a past one.", async () => {
    const etcd = await startEtcd();
    await using _ = { [Symbol.asyncDispose]: () => etcd.stop() };
    const resources = ["--resource", "a=/a/", "--resource", "b=/b/"];
    const other = await startServe(["--etcd", etcd.url, ...resources]);
    await using __ = other.process;
    const to = connect({ address: other.grpc });
    await to.put("a", "k", Buffer.from("1"));
    const { revision } = await to.put("b", "k", Buffer.from("1"));
    await to.put("a", "k", Buffer.from("2"));
    await to.delete("b", "k");
    to.close();
    const outcome = (...args: readonly string[]): Promise<Outcome> =>
      run(["export", "-r", "a", "-r", "b", "--address", other.grpc, ...args]);
    const past = await outcome("--at", String(revision));
    expect(objectsIn(past.stdout)).toMatchObject([{ value: "1" }, { value: "1" }]);
    const now = await outcome();
    expect(objectsIn(now.stdout)).toMatchObject([{ resource: "a", value: "2" }]);
    const { resources: positions } = JSON.parse(now.stdout.split("\n")[0] ?? "");
    const [first, second] = positions;
    expect(second).toEqual({ ...first, name: "b" });
    expect(first.revision).toBe(revision + 2);
  });

  test("which resources of several stores do not have.", async () => {
    const { address, stop } = await startScriptedServer({
      list: ({ request }, callback) =>
        callback(null, { revision: "1", history_id: `of ${request.resource}` }),
    });
    const from = ["-r", "a", "-r", "b", "--at", "1", "--address", address];
    const outcome = await run(["export", ...from]);
    stop();
    expect(outcome).toMatchObject({ code: 2, stdout: "" });
    expect(outcome.stderr).toContain("several stores");
  });

  test("that all pages ask for, in one history.", async () => {
    const asked: unknown[] = [];
    const { address, stop } = await startScriptedServer({
      list: ({ request }, callback) => {
        const { resource, revision, revision_match: match, history_id: history } = request;
        asked.push([resource, match.replace("REVISION_MATCH_", ""), revision, history]);
        const isFirst = request.page_token === "" && match === "REVISION_MATCH_EXACT";
        callback(null, {
          revision: match === "REVISION_MATCH_EXACT" ? revision : resource === "a" ? "9" : "7",
          items: [wireObject(isFirst ? "k1" : "k2", 5, "x")],
          next_page_token: isFirst ? "next" : "",
          history_id: "h",
        });
      },
    });
    const { code } = await run(["export", "-r", "a", "-r", "b", "--address", address]);
    expect(code).toBe(0);
    expect(asked).toEqual([
      ["a", "LINEARIZABLE", "0", ""],
      ["b", "LINEARIZABLE", "0", ""],
      ["a", "EXACT", "9", "h"],
      ["a", "EXACT", "9", "h"],
      ["b", "EXACT", "9", "h"],
      ["b", "EXACT", "9", "h"],
    ]);
    stop();
  });

  test("and of a prefix, which an import does not go beyond.", async () => {
    for (const key of ["p/1", "p/2", "q"]) await put("a", key, "x");
    const { file, text } = await exported("-r", "a", "--prefix", "p/");
    expect(objectsIn(text).map(({ key }) => key)).toEqual(["p/1", "p/2"]);
    await put("a", "p/3", "x");
    expect(await imported(file, "--prune", "--yes")).toBe(counts(0, 0, 2, 1));
    expect([...(await state("a")).keys()]).toEqual(["p/1", "p/2", "q"]);
  });
});

describe("An import", () => {
  /** A file with k1, k2 and k3 at `old`; the service then has k2 changed, k3 deleted, and k0. */
  async function changed(): Promise<string> {
    for (const key of ["k1", "k2", "k3"]) await put("a", key, "old");
    const { file } = await exported("-r", "a");
    await put("a", "k2", "new");
    await client.delete("a", "k3");
    await put("a", "k0", "new");
    return file;
  }
  const objectsOf = (entries: Record<string, string>) => new Map(Object.entries(entries));

  test("creates and replaces, leaves what is the same, and writes nothing when repeated.", async () => {
    const file = await changed();
    const { object } = await client.get("a", "k1");
    expect(await imported(file)).toBe(counts(1, 1, 1, 0));
    expect(await state("a")).toEqual(objectsOf({ k1: "old", k2: "old", k3: "old", k0: "new" }));
    expect((await client.get("a", "k1")).object.modRevision).toBe(object.modRevision);
    expect(await imported(file, "--concurrency", "1")).toBe(counts(0, 0, 3, 0));
  });

  test("with --only-missing replaces nothing.", async () => {
    const file = await changed();
    expect(await imported(file, "--only-missing")).toBe(counts(1, 0, 2, 0));
    expect(await state("a")).toEqual(objectsOf({ k1: "old", k2: "new", k3: "old", k0: "new" }));
  });

  test("with --prune deletes what the file lacks, if that is confirmed.", async () => {
    const file = await changed();
    expect((await against("import", file, "--prune")).code).toBe(2);
    expect(await state("a")).toHaveProperty("size", 3);
    expect(await imported(file, "--prune", "--yes")).toBe(counts(1, 1, 1, 1));
    expect(await state("a")).toEqual(objectsOf({ k1: "old", k2: "old", k3: "old" }));
  });

  test("with --dry-run says what it would do, and does nothing.", async () => {
    const file = await changed();
    const before = await state("a");
    expect(await imported(file, "--prune", "--dry-run")).toBe(
      `delete a k0\nreplace a k2\ncreate a k3\nDry run: ${counts(1, 1, 1, 1)}`,
    );
    expect(await state("a")).toEqual(before);
  });

  test("reports each failure, continues, and ends after a hundred.", async () => {
    const keys = Array.from({ length: 300 }, (_, i) => `k${String(i).padStart(3, "0")}`);
    const lines = keys.map((key) => ({
      ...{ resource: "a", key, value: "x", create_revision: 1, mod_revision: 1, version: 1 },
    }));
    const header = {
      ...{ format: "watch-fanout-export/1", prefix: "" },
      resources: [{ name: "a", revision: 1, history_id: "h" }],
    };
    const text = (count: number): string =>
      [header, ...lines.slice(0, count), { end: true, objects: count }]
        .map((line) => `${JSON.stringify(line)}\n`)
        .join("");
    let puts = 0;
    let open = 0;
    let widest = 0;
    const { address, stop } = await startScriptedServer({
      list: (_, callback) => callback(null, { revision: "9", items: [], history_id: "h" }),
      put: ({ request }, callback) => {
        puts++;
        widest = Math.max(widest, ++open);
        setImmediate(() => {
          open--;
          if (request.key === "k001") {
            callback(null, {
              revision: "10",
              object: wireObject("k001", 10, "x"),
              history_id: "h",
            });
          } else callback(statusOf(revisionConflict(request.key, 0, 5)));
        });
      },
    });
    const options = ["--concurrency", "4", "--address", address];
    const few = await run(["import", fileOf(text(3)), ...options]);
    expect(few).toMatchObject({ code: 4, stdout: counts(1, 0, 0, 0, 2) });
    expect(few.stderr.match(/Can't create a k00[02]: /g)).toHaveLength(2);
    puts = 0;
    const many = await run(["import", fileOf(text(300)), ...options]);
    expect(many.code).toBe(1);
    expect(many.stderr).toContain("The import ends after 100 failures.");
    expect(puts).toBeLessThan(110);
    expect(widest).toBe(4);
    stop();
  });
});

describe("A file is refused, before anything is written,", () => {
  async function refusal(change: (lines: string[]) => void): Promise<string> {
    for (const key of ["k1", "k2"]) await put("a", key, "x");
    const { text } = await exported("-r", "a");
    for (const key of ["k1", "k2"]) await client.delete("a", key);
    const lines = text.trimEnd().split("\n");
    change(lines);
    const { code, stdout, stderr } = await against("import", fileOf(lines.join("\n")));
    expect({ code, stdout, objects: (await state("a")).size }).toEqual({
      ...{ code: 2, stdout: "", objects: 0 },
    });
    return stderr;
  }

  test.each<[string, (lines: string[]) => void, string]>([
    ["without its footer", (lines) => lines.splice(3), ":3: the file ends without the last line"],
    [
      "that was cut off in a line",
      (lines) => lines.splice(2, 2, '{"key"'),
      ":3: the line is not JSON",
    ],
    [
      "that lacks an object",
      (lines) => lines.splice(1, 1),
      ":3: the export had 2 objects, and the file has 1",
    ],
    ["with more behind its end", (lines) => lines.push("{}"), ":5: there is more"],
    [
      "in another order",
      (lines) => lines.splice(1, 2, lines[2] ?? "", lines[1] ?? ""),
      ":3: the object",
    ],
    ["with an object twice", (lines) => lines.splice(1, 1, lines[2] ?? ""), ":3: the object"],
    [
      "with a field that is not known",
      (lines) => lines.splice(1, 1, lines[1]?.replace("{", '{"x":1,') ?? ""),
      ":2: ",
    ],
    ["with another header", (lines) => lines.splice(0, 1, "{}"), ":1: format"],
    ["that is empty", (lines) => lines.splice(0), ":0: the file ends without"],
  ])("%s.", async (_, change, problem) => {
    expect(await refusal(change)).toContain(problem);
  });

  test("that does not exist.", async () => {
    const { code, stderr } = await against("import", join(folder, "none"));
    expect([code, stderr]).toEqual([2, expect.stringContaining("can't be read")]);
  });
});
