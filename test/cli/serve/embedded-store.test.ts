import { mkdtempSync, readdirSync, rmSync, statSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { expect, onTestFinished, test } from "vitest";
import { type Client, connect } from "../../../src/client/client.ts";
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

async function command(...args: readonly string[]) {
  await using process = new CommandProcess(args);
  return await process.exit;
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
  const second = await command(
    ...["serve", "--data", data, "--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0"],
  );
  expect(second.code).toBe(1);
  expect(second.stderr).toBe(
    `error: --data: The data file ${data} is in use by process ${process.pid}. End that process first, or name another ` +
      "file: a data file has one owner.\n",
  );
});
