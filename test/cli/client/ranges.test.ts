import { expect, test } from "vitest";
import { put } from "../../server/putting.ts";
import { type Served, serveThings } from "../../server/served.ts";
import { run, Terminal } from "./client-terminal.ts";

/** Things `t-4` down to `t-0`, in the order of their creation. */
async function things(): Promise<{ served: Served; at: readonly string[] }> {
  const served = await serveThings();
  for (let i = 4; i >= 0; i--) await put(served.storage, `t-${i}`, `value ${i}`);
  return { served, at: ["-r", "things", "--address", `127.0.0.1:${served.server.port}`] };
}

function keysIn(table: string): string {
  return (table.match(/\bt-\d/gm) ?? []).join(" ");
}

test.each([
  [["--from", "t-1", "--to", "t-3"], "t-1 t-2"],
  [["--to", "t-2"], "t-0 t-1"],
  [["t-", "--from", "t-3"], "t-3 t-4"],
  [["--order", "key-descending", "--limit", "2"], "t-4 t-3"],
  [["--order", "mod-revision-ascending", "--from", "t-2"], "t-4 t-3 t-2"],
  [["--order", "create-revision-descending", "--page-size", "2"], "t-0 t-1 t-2 t-3 t-4"],
])("list %j prints these objects in their order.", async (options, expected) => {
  const { at } = await things();
  expect(keysIn((await run(["list", ...options, ...at])).stdout)).toBe(expected);
});

test("list --count counts a range.", async () => {
  const { at } = await things();
  expect((await run(["list", "--count", "--from", "t-2", ...at])).stdout).toBe("3\n");
});

test("list --order of no order is a usage error.", async () => {
  const { code, stderr } = await run(["list", "--order", "age"]);
  expect([code, stderr]).toEqual([2, expect.stringContaining("mod-revision-descending")]);
});

test("watch --from and --to print the changes of a range.", async () => {
  const { at, served } = await things();
  const terminal = new Terminal();
  const done = terminal.run("watch", "--from", "t-1", "--to", "t-3", ...at);
  while (served.cacher.stats().watchers.live === 0) await new Promise(setImmediate);
  for (const key of ["t-0", "t-1", "t-3", "t-2"]) await put(served.storage, key, "new");
  await terminal.until("stdout", "t-2");
  terminal.interrupt();
  expect(keysIn((await done).stdout)).toBe("t-1 t-2");
});

test.each([
  ["--key", "a"],
  ["--prefix", "a"],
])("watch --from can't be used with %s.", async (option, value) => {
  const { code, stderr } = await run(["watch", "--from", "t", option, value]);
  expect([code, stderr]).toEqual([2, expect.stringContaining("--from and --to can't be used")]);
});

test.each([
  ["list", "b"],
  ["list", "a"],
  ["watch", "a"],
])("%s --from b --to %s is refused: there are no keys between them.", async (command, to) => {
  const { code, stderr } = await run([command, "--from", "b", "--to", to]);
  expect([code, stderr]).toEqual([2, expect.stringContaining('--from "b" is not below --to')]);
});
