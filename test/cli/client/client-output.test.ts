import { PassThrough, Writable } from "node:stream";
import { describe, expect, test } from "vitest";
import { batchJson } from "../../../src/cli/client/object-output.ts";
import { Output, OutputClosed } from "../../../src/cli/output/command-io.ts";
import { printableBytes, printableText } from "../../../src/cli/output/printable.ts";
import { Table } from "../../../src/cli/output/table.ts";
import { WatchEvent } from "../../../src/model/event.ts";
import { StoredObject } from "../../../src/model/object.ts";

describe("Printable text", () => {
  test.each([
    ["plain text", 'a "b" ü 日本 🎈 \\', 'a "b" ü 日本 🎈 \\'],
    ["line ends and tabs", "a\nb\r\tc", "a\\nb\\r\\tc"],
    ["a terminal's escape", "\u001b[2Jx", "\\u{1b}[2Jx"],
    ["delete and C1 controls", "\u007f\u009b", "\\u{7f}\\u{9b}"],
    ["a change of direction", "a\u202eb", "a\\u{202e}b"],
    ["an invisible character", "a\u200bb", "a\\u{200b}b"],
    ["a line separator", "a\u2028b", "a\\u{2028}b"],
    ["half a surrogate pair", "a\ud800b", "a\\u{d800}b"],
  ])("escapes %s, on one line.", (_, text, shown) => {
    expect(printableText(text)).toBe(shown);
  });

  test("shows UTF-8 bytes as text.", () => {
    expect(printableBytes(Buffer.from("ü\n"))).toBe("ü\\n");
  });

  test("shows other bytes as ASCII and \\xNN.", () => {
    expect(printableBytes(Buffer.from([0x61, 0xff, 0x00, 0x1b]))).toBe("a\\xff\\x00\\x1b");
  });
});

describe("A table", () => {
  test("is aligned, has its headings once, and no blanks at line ends.", () => {
    const table = new Table(["KEY", "VALUE"], { colours: false });
    expect(
      table.format([
        ["a", "1"],
        ["longer", ""],
      ]),
    ).toBe("KEY     VALUE\na       1\nlonger\n");
    expect(table.format([["b", "2"]])).toBe("b       2\n");
  });

  test("becomes wider for later rows, never narrower.", () => {
    const table = new Table(["K", "V"], { colours: false });
    expect(table.format([])).toBe("K  V\n");
    expect(table.format([["long", "1"]])).toBe("long  1\n");
    expect(table.format([["a", "2"]])).toBe("a     2\n");
  });

  test.each([
    [20, "KEY  VALUE\nk    0123456789\n"],
    [10, "KEY  VALUE\nk    0123…\n"],
    [4, "KE…\nk…\n".replace("KE…", "KEY…").replace("k…", "k  …")],
  ])("cuts lines at %i columns, with an ellipsis.", (columns, text) => {
    const table = new Table(["KEY", "VALUE"], { colours: false, columns });
    expect(table.format([["k", "0123456789"]])).toBe(text);
  });

  test("counts characters, not UTF-16 units.", () => {
    const table = new Table(["K", "V"], { colours: false });
    expect(
      table.format([
        ["🎈🎈", "1"],
        ["ab", "2"],
      ]),
    ).toBe("K   V\n🎈🎈  1\nab  2\n");
  });

  test("is aligned in the same way with and without colours.", () => {
    const row = [{ text: "ADDED", colour: "green" as const }, "x"];
    expect(new Table(["E", "K"], { colours: true }).format([row])).toBe(
      "E      K\n\u001b[32mADDED  \u001b[39mx\n",
    );
    expect(new Table(["E", "K"], { colours: false }).format([row])).toBe("E      K\nADDED  x\n");
  });
});

describe("An atomic batch as JSON", () => {
  const event = (key: string) =>
    new WatchEvent("ADDED", new StoredObject(key, Buffer.from("v"), 1, 1, 1, 0n), undefined);
  const batchOf = (...keys: string[]) => ({
    revision: 7,
    events: keys.map(event),
    initial: true,
    historyId: "h",
  });
  const parsed = (lines: Iterable<string>) => [...lines].map((line) => JSON.parse(line));

  test("is one line.", () => {
    const lines = [...batchJson(batchOf("a", "b"))];
    expect(lines).toHaveLength(1);
    expect(lines[0]).toMatch(/^\{[^\n]*\}\n$/);
    expect(parsed(lines)[0]).toMatchObject({ revision: "7", initial_events_end: true });
  });

  test("above the bound is several lines, of which only the last has the revision.", () => {
    const lines = parsed(batchJson(batchOf("a", "b", "c"), 150));
    expect(lines.map((line) => [line.revision, line.initial_events_end])).toEqual([
      [undefined, false],
      ["7", true],
    ]);
    expect(lines.map((line) => line.events.length)).toEqual([2, 1]);
  });

  test("has at least one event per line.", () => {
    expect(parsed(batchJson(batchOf("a", "b"), 1)).map((line) => line.events.length)).toEqual([
      1, 1,
    ]);
  });

  test("without events is a bookmark.", () => {
    expect(parsed(batchJson({ ...batchOf(), initial: false }))).toEqual([
      { revision: "7", events: [], initial_events_end: false, history_id: "h" },
    ]);
  });
});

describe("The output", () => {
  test("waits for its reader.", async () => {
    const stream = new PassThrough({ highWaterMark: 4 });
    const output = new Output(stream);
    let written = false;
    const writing = output.write("12345678").then(() => {
      written = true;
    });
    await new Promise(setImmediate);
    expect(written).toBe(false);
    stream.resume();
    await writing;
  });

  test.each([
    ["EPIPE", OutputClosed],
    ["ENOSPC", Error],
  ])("rejects every write after %s.", async (code, kind) => {
    const stream = new Writable({
      write: (_chunk, _encoding, callback) => callback(Object.assign(new Error(code), { code })),
    });
    const output = new Output(stream);
    await output.write("x").catch(() => {});
    await expect(output.flush()).rejects.toBeInstanceOf(kind);
    await expect(output.write("y")).rejects.toThrow(code);
    expect(output.failed.aborted).toBe(true);
  });

  test("rejects a write that waits when the reader closes the stream.", async () => {
    const stream = new Writable({ highWaterMark: 1, write: () => {} });
    const output = new Output(stream);
    const writing = output.write("xx");
    stream.destroy(Object.assign(new Error("gone"), { code: "EPIPE" }));
    await expect(writing).rejects.toBeInstanceOf(OutputClosed);
  });
});
