import { describe, expect, test } from "vitest";
import { formattedJson } from "../../../src/cli/client/value-diff.ts";
import { put } from "../../server/putting.ts";
import { type Served, serveThings } from "../../server/served.ts";
import { run } from "./client-terminal.ts";

async function things(): Promise<{ served: Served; at: readonly string[] }> {
  const served = await serveThings();
  return { served, at: ["-r", "things", "--address", `127.0.0.1:${served.server.port}`] };
}

describe("history", () => {
  test("prints the changes of one object, the newest first.", async () => {
    const { served, at } = await things();
    await put(served.storage, "k", "one");
    await put(served.storage, "k", "two");
    await put(served.storage, "kk", "another");
    await served.storage.delete({ key: "k" });
    const { stdout, stderr, code } = await run(["history", "k", ...at]);
    expect([code, stderr]).toEqual([0, ""]);
    expect(stdout.split("\n").map((line) => line.trim().split(/ {2,}/))).toEqual([
      ["REVISION", "EVENT", "VERSION", "SIZE", "VALUE"],
      ["5", "DELETED", "2", "3 B", "two"],
      ["3", "MODIFIED", "2", "3 B", "two"],
      ["2", "ADDED", "1", "3 B", "one"],
      [""],
    ]);
  });

  test("prints at most --limit changes, up to --revision, and as JSON the responses.", async () => {
    const { served, at } = await things();
    for (const value of ["one", "two", "three", "four"]) await put(served.storage, "k", value);
    const { stdout } = await run([
      ...["history", "k", "--limit", "2", "--revision", "4", "--keys-only", "-o", "json", ...at],
    ]);
    expect(JSON.parse(stdout)).toMatchObject({
      revision: "4",
      events: [
        { type: "EVENT_TYPE_MODIFIED", object: { key: "k", mod_revision: "4", value: "" } },
        { type: "EVENT_TYPE_MODIFIED", object: { key: "k", mod_revision: "3", value: "" } },
      ],
      end: "HISTORY_END_UNSPECIFIED",
    });
    expect((await run(["history", "k", "-o", "value", ...at])).stdout).toBe(
      "four\nthree\ntwo\none\n",
    );
  });

  test("says that older changes are compacted.", async () => {
    const { served, at } = await things();
    for (const value of ["one", "two", "three"]) await put(served.storage, "k", value);
    await served.storage.compact(3);
    const { stdout, stderr } = await run(["history", "k", ...at]);
    expect(stdout).not.toContain("one");
    expect(stderr).toContain(
      "no longer has the changes before these: it was compacted at revision 3",
    );
    expect((await run(["history", "k", "-o", "json", ...at])).stderr).toBe("");
  });
});

describe("diff", () => {
  const before = '{"a":1,"big":12345678901234567890,"list":[1,2],"none":{}}';
  const after = '{"a":2,"big":12345678901234567891,"list":[1,2],"none":{}}';

  test("prints the lines of JSON that differ between a revision and now, or another.", async () => {
    const { served, at } = await things();
    await put(served.storage, "k", before);
    await put(served.storage, "k", after);
    const expected = [
      "--- k at revision 2, last changed at 2",
      "+++ k at revision 3, last changed at 3",
      "@@ -1,6 +1,6 @@",
      " {",
      '-  "a": 1,',
      '-  "big": 12345678901234567890,',
      '+  "a": 2,',
      '+  "big": 12345678901234567891,',
      '   "list": [',
      "     1,",
      "     2",
      "",
    ].join("\n");
    expect((await run(["diff", "k", "2", ...at])).stdout).toBe(expected);
    expect((await run(["diff", "k", "2", "3", ...at])).stdout).toBe(expected);
    expect((await run(["diff", "k", "3", "3", ...at])).stdout).toBe("");
  });

  test("compares with nothing where the object does not exist.", async () => {
    const { served, at } = await things();
    await put(served.storage, "k", "one\ntwo\n");
    await served.storage.delete({ key: "k" });
    const { stdout, code } = await run(["diff", "k", "2", ...at]);
    expect([code, stdout]).toEqual([
      0,
      [
        "--- k at revision 2, last changed at 2",
        "+++ k does not exist at revision 3",
        "@@ -1,2 +0,0 @@",
        "-one",
        "-two",
        "",
      ].join("\n"),
    ]);
    const nowhere = await run(["diff", "other", "2", ...at]);
    expect([nowhere.code, nowhere.stdout]).toEqual([3, ""]);
  });

  test("says what can't be printed as lines, and escapes what would control a terminal.", async () => {
    const { served, at } = await things();
    await put(served.storage, "k", '{"a": 1}');
    await put(served.storage, "k", '{ "a":1 }');
    expect((await run(["diff", "k", "2", ...at])).stdout).toContain("the same JSON");
    await served.storage.put({ key: "k", value: Buffer.of(0xff, 0xfe) });
    expect((await run(["diff", "k", "2", ...at])).stdout).toContain("not text: 8 B and 2 B");
    await put(served.storage, "k", "\u001b[31mred\n");
    expect((await run(["diff", "k", "3", ...at])).stdout).toContain("+\\u{1b}[31mred");
  });

  test.each([
    [["diff", "k", "0"], "Revisions begin at 1"],
    [["diff", "k", "x"], "whole number"],
    [["diff", "k", "1", "-o", "json"], "diff prints lines"],
  ])("%j is a usage error.", async (args, message) => {
    const { code, stderr } = await run(args);
    expect([code, stderr]).toEqual([2, expect.stringContaining(message)]);
  });
});

describe("Formatted JSON", () => {
  test.each([
    ['{"a":[],"b":{},"c":"x: {[,\\"}"}', '{\n  "a": [],\n  "b": {},\n  "c": "x: {[,\\"}"\n}'],
    ['[1,{"a":null}]', '[\n  1,\n  {\n    "a": null\n  }\n]'],
    ['{"a":1,"a":2}', '{\n  "a": 1,\n  "a": 2\n}'],
    ["-1.50e3", "-1.50e3"],
    ["{a}", undefined],
    [`${"[".repeat(200)}${"]".repeat(200)}`, undefined],
  ])("of %s", (text, expected) => {
    expect(formattedJson(text)).toBe(expected);
  });
});
