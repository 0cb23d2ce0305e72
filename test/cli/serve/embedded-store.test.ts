import { mkdtempSync, readdirSync, rmSync, statSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { expect, onTestFinished, test } from "vitest";
import { type Client, connect } from "../../../src/client/connect.ts";
import { run } from "../client/client-terminal.ts";
import { CommandProcess, startServe, untilStatus } from "./serve-process.ts";

/** The path of a data file that does not exist yet, in a folder of its own that does not either. */
function dataFile(): string {
  const folder = mkdtempSync(join(tmpdir(), "watch-fanout-data-"));
  onTestFinished(() => rmSync(folder, { recursive: true }));
  return join(folder, "watch-fanout.data", "store.db");
}

function clientOf(address: string): Client {
  const client = connect({ address });
  onTestFinished(() => client.close());
  return client;
}

test("What was put is there after a kill, with its revisions, and a watch of the client continues.", async () => {
  const data = dataFile();
  const first = await startServe(["--data", data]);
  const client = clientOf(first.grpc);
  const seen: string[] = [];
  const watching = (async () => {
    for await (const { events } of client.watch("default", { afterRevision: 1 })) {
      for (const { type, object } of events) {
        seen.push(`${type} ${object.key} ${object.modRevision}`);
      }
    }
  })();
  watching.catch(() => {});
  await client.put("default", "a", Buffer.from("hello"));
  await client.put("default", "b", Buffer.from("hello"));
  await client.delete("default", "b");
  await expect.poll(() => seen).toEqual(["ADDED a 2", "ADDED b 3", "DELETED b 4"]);
  const { historyId } = await client.page("default");
  await first.process[Symbol.asyncDispose]();

  const again = await startServe(["--data", data, "--listen", first.grpc]);
  await using _again = again.process;
  await untilStatus(`${again.admin}/readyz`, 200);
  // The other one still waits until it connects again.
  const other = clientOf(again.grpc);
  const page = await other.page("default");
  expect(page).toMatchObject({ historyId, revision: 4 });
  expect(page.items.map(({ key, modRevision }) => [key, modRevision])).toEqual([["a", 2]]);
  await other.put("default", "c", Buffer.from("hello"));
  // Without a repetition: the stream was resumed, not listed again.
  await expect.poll(() => seen.slice(3)).toEqual(["ADDED c 5"]);
  // From before the restart.
  const old = await other.page("default", { at: { match: "EXACT", revision: 3 } });
  expect(old.items.map(({ key }) => key)).toEqual(["a", "b"]);
});

test("The data are readable by their owner only, and a second process is refused them.", async () => {
  const data = dataFile();
  const { process } = await startServe(["--data", data]);
  await using _process = process;
  const folder = join(data, "..");
  expect(statSync(folder).mode & 0o777).toBe(0o700);
  for (const name of readdirSync(folder)) {
    expect(statSync(join(folder, name)).mode & 0o777).toBe(0o600);
  }
  const free = "127.0.0.1:0";
  await using other = new CommandProcess([
    "serve",
    "--data",
    data,
    "--listen",
    free,
    "--admin",
    free,
  ]);
  const second = await other.exit;
  expect(second.code).toBe(1);
  expect(second.stderr).toBe(
    `error: --data: The data file ${data} is in use by process ${process.pid}. End that process first, or name another ` +
      "file: a data file has one owner.\n",
  );
});

test("Backups are copies at one revision, which `restore` makes a store of, with another history.", async () => {
  const data = dataFile();
  const served = await startServe(["--data", data]);
  await using process = served.process;
  const client = clientOf(served.grpc);
  await client.put("default", "a", Buffer.from("hello"));
  const { historyId } = await client.page("default");
  const folder = join(data, "..");
  const copy = join(folder, "copy.db");
  const backup = ["backup", copy, "--url", served.admin];
  expect(await run(backup)).toMatchObject({ code: 0, stdout: "" });
  expect(statSync(copy).mode & 0o777).toBe(0o600);
  expect((await run(backup)).stderr).toBe(
    `watch-fanout: ${copy} exists already, and is left as it is. Name another file.\n`,
  );
  await client.put("default", "b", Buffer.from("later"));

  const restored = join(folder, "restored", "store.db");
  const restore = ["restore", copy, "--data", restored];
  expect(await run(restore)).toMatchObject({ code: 0 });
  const second = await run(restore);
  expect(second.code).toBe(1);
  expect(second.stderr).toContain(restored);
  const again = await startServe(["--data", restored]);
  await using _again = again.process;
  const page = await clientOf(again.grpc).page("default");
  expect(page.items.map(({ key, modRevision }) => [key, modRevision])).toEqual([["a", 2]]);
  expect(page.historyId).not.toBe(historyId);

  process.kill("SIGTERM");
  expect((await process.exit).code).toBe(0);
  // Neither a copy nor the write-ahead log is left.
  expect(readdirSync(folder).sort()).toEqual(["copy.db", "restored", "store.db"]);
});

test("A backup needs a token where clients need a credential, and a file.", async () => {
  const data = dataFile();
  const folder = join(data, "..", "..");
  const policy = join(folder, "policy.yaml");
  writeFileSync(policy, "roles: []\nbindings: []\n");
  const limited = await startServe(["--data", data, "--policy", policy]);
  await using _limited = limited.process;
  const copy = join(folder, "copy.db");
  const denied = await run(["backup", copy, "--url", limited.admin]);
  expect(denied).toMatchObject({ code: 6 });
  expect(denied.stderr).toContain("Set --admin-token-file: a backup has all data");
  const inMemory = await startServe(["--data", ":memory:"]);
  await using _inMemory = inMemory.process;
  const absent = await run(["backup", copy, "--url", inMemory.admin]);
  expect(absent).toMatchObject({ code: 2 });
  expect(absent.stderr).toContain("has no file of an embedded store to copy");
});

test("When a commit fails so that it is not known what is kept, the process ends; the next one has what was acknowledged.", async () => {
  const data = dataFile();
  // The write-ahead log can't grow above it, which is no lack of room: `ulimit` counts 512 bytes or 1 KiB.
  const limit = "-f 1024";
  const first = await startServe(["--data", data, "--log-format", "json"], {}, limit);
  const client = clientOf(first.grpc);
  let acknowledged = 0;
  const value = Buffer.alloc(100_000, "x");
  const writing = (async () => {
    for (;;) {
      await client.put("default", `key-${acknowledged}`, value);
      acknowledged++;
    }
  })();
  await expect(writing).rejects.toThrow();
  const { code, stderr } = await first.process.exit;
  expect(code).toBe(1);
  const fatal = stderr.split("\n").filter((line) => line.includes('"level":"fatal"'));
  expect(fatal).toHaveLength(1);
  expect(stderr).toMatch(/^error: --data: .*store\.db/m);

  const again = await startServe(["--data", data]);
  await using _again = again.process;
  const { items } = await clientOf(again.grpc).page("default", { view: "KEYS", pageSize: 1_000 });
  const keys = items.map(({ key }) => key);
  for (let i = 0; i < acknowledged; i++) expect(keys).toContain(`key-${i}`);
  // The one without an answer may be there, too.
  expect(keys.length - acknowledged).toBeOneOf([0, 1]);
});

test("With workers the main process has the file.", async () => {
  const data = dataFile();
  const args = ["--data", data, "--workers", "2"];
  const first = await startServe(args);
  await clientOf(first.grpc).put("default", "a", Buffer.from("hello"));
  await first.process[Symbol.asyncDispose]();
  const again = await startServe(args);
  await using _again = again.process;
  await untilStatus(`${again.admin}/readyz`, 200);
  const { items } = await clientOf(again.grpc).page("default");
  expect(items.map(({ key, modRevision }) => [key, modRevision])).toEqual([["a", 2]]);
});
