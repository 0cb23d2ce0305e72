import { spawn } from "node:child_process";
import { once } from "node:events";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { basename, join } from "node:path";
import { expect, onTestFinished, test } from "vitest";
import { CallRecorder } from "../../scripts/walks/call-recorder.ts";

/** For each message it calls `first` and then `second`; `unused` never. */
const files = {
  "second.mjs": "export function second() { return 2; }",
  "first.mjs": `import { second } from "./second.mjs";
export const first = () => { const one = 1; return one + second(); };`,
  "unused.mjs": "export function unused() {}",
  "foreign.mjs": "export function foreign() {}",
  "main.mjs": `import "./second.mjs";
import { first } from "./first.mjs";
import { foreign } from "./foreign.mjs";
import { unused } from "./unused.mjs";
if (process.argv.length > 5) { unused(); }
process.on("message", (message) => { foreign(); process.send(message === "none" ? 0 : first()); });`,
};

// Without a timer: how often one fires in a window depends on how busy the machine is.
test("A walk has the files that an action passes, in order, without those of other code", async () => {
  const folder = mkdtempSync(join(tmpdir(), "watch-fanout-walks-test-"));
  onTestFinished(() => rmSync(folder, { recursive: true }));
  for (const [name, text] of Object.entries(files)) writeFileSync(join(folder, name), text);
  const args = ["--inspect=127.0.0.1:0", join(folder, "main.mjs")];
  const child = spawn(process.execPath, args, { stdio: ["ignore", "ignore", "pipe", "ipc"] });
  onTestFinished(() => void child.kill("SIGKILL"));
  let text = "";
  child.stderr?.setEncoding("utf8").on("data", (more: string) => {
    text += more;
    child.emit("printed");
  });
  while (!/listening on \S+\n/.test(text)) await once(child, "printed");
  const [, url = ""] = /listening on (\S+)/.exec(text) ?? [];
  const isOurs = (script: string): boolean =>
    script.includes(basename(folder)) && !script.includes("foreign");
  using recorder = await CallRecorder.attach(url, isOurs);

  const ask = async (message: string): Promise<void> => {
    child.send(message);
    await once(child, "message");
  };
  await ask("warm");
  const reset = async (): Promise<void> => {};
  const act = (): Promise<void> => ask("act");
  const called = await recorder.calledBy(act, reset);
  const passed = await recorder.inOrder(called.values(), act, reset);
  expect(passed.map((each) => basename(each))).toEqual(["main.mjs", "first.mjs", "second.mjs"]);
  const without = await recorder.calledBy(() => ask("none"), reset);
  expect([...without.values()].map((each) => basename(each.url))).toEqual(["main.mjs"]);
});
