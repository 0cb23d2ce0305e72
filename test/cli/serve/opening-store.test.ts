import { mkdtempSync, renameSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { pino } from "pino";
import { expect, onTestFinished, test, vi } from "vitest";
import { systemClock } from "../../../src/base/clock.ts";
import { backupRefusal } from "../../../src/cli/serve/main-process.ts";
import { ServiceProcess } from "../../../src/cli/serve/service-process.ts";
import { StartError } from "../../../src/cli/serve/start-error.ts";
import { load } from "../../config/sources.ts";

/** A process with this data file, which is not open yet. */
function processWith(data: string): ServiceProcess {
  const config = load({ flags: ["--data", data] });
  const main = new ServiceProcess(config, systemClock, pino({ level: "silent" }));
  onTestFinished(() => main.stop());
  return main;
}

function folder(): string {
  const path = mkdtempSync(join(tmpdir(), "watch-fanout-opening-"));
  onTestFinished(() => rmSync(path, { recursive: true }));
  return path;
}

function fails(): never {
  throw new Error("The store has failed.");
}

test("While the embedded store is loading, that is why the process is not ready; then its file is in the status", async () => {
  const main = processWith(join(folder(), "store.db"));
  const opening = main.openStore(fails);
  expect(main.readiness()).toContainEqual({
    name: "serving",
    failure: "the embedded store is loading",
  });
  expect(main.dataFile).toBeUndefined();
  await opening;
  expect(main.dataFile).toMatchObject({ revision: 1, oldestRevision: 1, commits: 0 });
});

test("A data file that is moved while it is in use is a warning of the readiness", async () => {
  const path = join(folder(), "store.db");
  const main = processWith(path);
  await main.openStore(fails);
  const check = () => main.readiness().find(({ name }) => name === "data");
  expect(check()).toEqual({ name: "data", failure: undefined, warning: undefined });
  renameSync(path, `${path}-elsewhere`);
  await vi.waitFor(
    () => expect(check()?.warning).toContain(`The data file ${path} was moved or deleted`),
    { timeout: 60_000 },
  );
  expect(check()?.failure).toBeUndefined();
});

test.each<[readonly string[], boolean]>([
  [[], true],
  [["--listen", "0.0.0.0:1", "--admin", "0.0.0.0:2", "--insecure", "on"], true],
  [["--listen", "0.0.0.0:1", "--admin", "127.0.0.1:2", "--insecure", "on"], true],
  // More callers reach the admin port than the data.
  [["--admin", "0.0.0.0:2", "--insecure", "on"], false],
  [["--listen", "unix:/run/wf.sock"], false],
  [["--listen", "unix:/run/wf.sock", "--admin-token-file", "tokens"], true],
  [["--token-file", "tokens"], false],
  [["--token-file", "tokens", "--admin-token-file", "tokens"], true],
  [["--policy", "policy"], false],
])("With %j the admin port gives backups: %s", (flags, isGiven) => {
  const tokens = `sha256:${"0".repeat(64)} ops\n`;
  const config = load({ flags, files: { tokens, policy: "roles: []\nbindings: []\n" } });
  expect(backupRefusal(config) === undefined).toBe(isGiven);
});

test.each([
  ["a file of something else", (path: string) => writeFileSync(path, "not a store".repeat(1_000))],
  ["an empty file", (path: string) => writeFileSync(path, "")],
])("The process does not start with %s, and names it", async (_, make) => {
  const path = join(folder(), "store.db");
  make(path);
  const opening = processWith(path).openStore(fails);
  await expect(opening).rejects.toThrow(StartError);
  await expect(opening).rejects.toThrow(`--data: `);
  await expect(opening).rejects.toThrow(path);
});
