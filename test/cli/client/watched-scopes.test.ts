import { describe, expect, onTestFinished, test } from "vitest";
import { systemClock } from "../../../src/base/clock.ts";
import { Cacher } from "../../../src/cacher/cacher.ts";
import { MemoryStorage } from "../../../src/storage/memory/memory-storage.ts";
import { startReady } from "../../cacher/ready.ts";
import { Relay } from "../../faults/relay.ts";
import { ManualTimers } from "../../server/limits/manual-timers.ts";
import { serve } from "../../server/served.ts";
import { silent } from "../../storage/etcd/source.ts";
import { type Outcome, Terminal } from "./client-terminal.ts";

/** The resources `pods` and `nodes`, and a relay to their service. */
async function service() {
  const clock = systemClock;
  const stores = new Map<string, MemoryStorage>();
  const cachers = new Map<string, Cacher>();
  for (const name of ["pods", "nodes"]) {
    const storage = new MemoryStorage({ clock });
    const cacher = new Cacher({ storage, clock, logger: silent, name });
    await startReady(cacher);
    onTestFinished(() => cacher.close());
    stores.set(name, storage);
    cachers.set(name, cacher);
  }
  const { server, recorder } = await serve(cachers, new ManualTimers());
  const relay = await Relay.to(server.port);
  onTestFinished(() => relay.close());
  const put = async (name: string, key: string, value: string) =>
    stores.get(name)?.put({ key, value: Buffer.from(value) });
  return { relay, recorder, put, address: `127.0.0.1:${relay.port}` };
}

const terminal = () => new Terminal();

describe("watch with several scopes", () => {
  /** Watches until the last line is there. */
  async function watching(
    parts: Awaited<ReturnType<typeof service>>,
    args: readonly string[],
    write: (until: (part: string) => Promise<void>) => Promise<void>,
  ): Promise<Outcome> {
    const shown = terminal();
    const outcome = shown.run("watch", "--address", parts.address, ...args);
    await write((part) => shown.until("stdout", part));
    shown.interrupt();
    return outcome;
  }

  const scopes = ["--scope", "pods=ns-1/", "--scope", "nodes=", "--scope-key", "pods=ns-2/x=y"];

  test("prints the scope of each event, and has one stream", async () => {
    const parts = await service();
    const { put, recorder } = parts;
    await put("pods", "ns-1/a", "1");
    await put("pods", "ns-2/b", "2");
    await put("pods", "ns-2/x=y", "3");
    const { stdout, code } = await watching(parts, [...scopes, "--initial"], async (until) => {
      await until("ns-1/a");
      await until("x=y  3");
      expect(recorder.open).toBe(1);
      await put("nodes", "n1", "here");
      await until("here");
    });
    expect(code).toBe(0);
    const rows = stdout
      .trimEnd()
      .split("\n")
      .map((line) => line.split(/ {2,}/));
    expect(rows[0]).toEqual(["SCOPE", "REVISION", "EVENT", "KEY", "VALUE"]);
    expect(rows.slice(1).sort()).toEqual([
      ["nodes=", "2", "ADDED", "n1", "here"],
      ["pods=ns-1/", "2", "ADDED", "ns-1/a", "1"],
      ["pods=ns-2/x=y", "4", "ADDED", "ns-2/x=y", "3"],
    ]);
  });

  test("has the request of each batch in its JSON", async () => {
    const parts = await service();
    const { stdout } = await watching(
      parts,
      [...scopes, "--initial", "-o", "json"],
      async (until) => {
        await until('"watch":{"resource":"nodes","prefix":""}');
        await parts.put("nodes", "n1", "here");
        await until("n1");
      },
    );
    const lines = stdout
      .trimEnd()
      .split("\n")
      .map((line) => JSON.parse(line));
    expect(lines.at(-1)).toMatchObject({
      watch: { resource: "nodes", prefix: "" },
      revision: "2",
      events: [{ type: "EVENT_TYPE_ADDED", object: { key: "n1" } }],
    });
    expect(lines.map(({ watch }) => watch)).toContainEqual({ resource: "pods", key: "ns-2/x=y" });
  });

  test("resumes all of them when the stream is lost, and reports it once", async () => {
    const parts = await service();
    const { put, relay } = parts;
    const { stdout, stderr } = await watching(parts, [...scopes, "--initial"], async (until) => {
      await put("pods", "ns-1/a", "1");
      await put("nodes", "n1", "2");
      await until("ns-1/a");
      await until("n1");
      relay.cut();
      await put("pods", "ns-1/a", "final pod");
      await put("nodes", "n1", "final node");
      await until("final pod");
      await until("final node");
    });
    expect(stdout.split("\n").filter((line) => line.includes("MODIFIED"))).toHaveLength(2);
    expect(stderr.match(/Retrying to resume/g)).toHaveLength(1);
  });

  test("ends when one of them is refused, and names it", async () => {
    const { address } = await service();
    const args = ["--scope", "pods=", "--scope", "nothing=a/"];
    const { code, stderr } = await terminal().run("watch", "--address", address, ...args);
    expect(code).not.toBe(0);
    expect(stderr).toContain("Can't watch nothing=a/.");
  });

  test.each([
    ["key=a", "--scope-key RESOURCE=KEY"],
    ["prefix=a/", "--scope RESOURCE=PREFIX"],
  ])("says what %s may mean", async (scope, meant) => {
    const { address } = await service();
    const { code, stderr } = await terminal().run("watch", "--address", address, "--scope", scope);
    expect([code, stderr]).toEqual([3, expect.stringContaining(meant)]);
  });
});

test.each([
  [["--scope", "pods"], "RESOURCE=PREFIX"],
  [["--scope", "=a"], "RESOURCE=PREFIX"],
  [["--scope-key", "pods="], "The key is empty"],
  [["--scope", "pods=", "--key", "a"], "leave out --resource, --key and the prefix"],
  [["--scope", "pods=", "a/"], "leave out --resource, --key and the prefix"],
  [["--scope", "pods=", "-r", "pods"], "leave out --resource, --key and the prefix"],
])("watch %o is a usage error", async (args, says) => {
  const { code, stderr } = await terminal().run("watch", ...args);
  expect([code, stderr]).toEqual([2, expect.stringContaining(says)]);
});
