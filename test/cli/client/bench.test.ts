import { afterAll, beforeAll, expect, test } from "vitest";
import { type Client, connect } from "../../../src/client/connect.ts";
import { type Script, startScriptedServer } from "../../client/scripted-server.ts";
import { CommandProcess, type Served, startServe } from "../serve/serve-process.ts";
import { type Outcome, run } from "./client-terminal.ts";

let served: Served;
let client: Client;

beforeAll(async () => {
  served = await startServe();
  client = connect({ address: served.grpc });
  await client.put("default", "mine", Buffer.from("x"));
});
afterAll(async () => {
  client.close();
  await served.process[Symbol.asyncDispose]();
});

function bench(...args: readonly string[]): Promise<Outcome> {
  return run(["bench", ...args, "--address", served.grpc]);
}

/** The keys that are left, which the benchmark must not have touched. */
async function keysLeft(): Promise<readonly string[]> {
  const keys: string[] = [];
  for await (const { items } of client.list("default")) keys.push(...items.map(({ key }) => key));
  return keys;
}

const times = "p50 [\\d.]+ m?s, p90 [\\d.]+ m?s, p99 [\\d.]+ m?s, max [\\d.]+ m?s";

test("watch delivers each write to each watcher, in a process of its own.", async () => {
  const options = ["--watchers", "6", "--connections", "2", "--rate", "50", "--duration", "500ms"];
  await using command = new CommandProcess([
    "bench",
    "watch",
    ...options,
    "--address",
    served.grpc,
  ]);
  const { code, stdout, stderr } = await command.exit;
  expect(code).toBe(0);
  expect(stderr).toMatch(
    /^watch-fanout: This writes objects to the resource default, below watch-/,
  );
  const lines = `^puts: (\\d+), \\d+/s, 0 failed; ${times}\nevents: (\\d+), \\d+/s, 0 missing; ${times}\n$`;
  const [, puts, events] = new RegExp(lines).exec(stdout) ?? [];
  expect(Number(puts)).toBeGreaterThan(0);
  expect(Number(puts)).toBeLessThanOrEqual(25);
  expect(Number(events)).toBe(6 * Number(puts));
  expect(await keysLeft()).toEqual(["mine"]);
});

test.each([
  ["put", "puts"],
  ["list", "lists"],
])("%s measures, and removes what it wrote.", async (kind, what) => {
  const { code, stdout } = await bench(kind, "--duration", "100ms");
  expect(code).toBe(0);
  expect(stdout).toMatch(new RegExp(`^${what}: [1-9][\\d,]*, [\\d,]+/s, 0 failed; ${times}\n$`));
  expect(await keysLeft()).toEqual(["mine"]);
});

test("An interrupt ends it early, and what it wrote is removed.", async () => {
  const args = ["bench", "put", "--duration", "10m", "--address", served.grpc];
  await using command = new CommandProcess(args);
  await command.printed(/This writes/);
  while ((await keysLeft()).length < 2);
  command.kill("SIGINT");
  expect(await command.exit).toMatchObject({ code: 0, stdout: expect.stringMatching(/^puts: /) });
  expect(await keysLeft()).toEqual(["mine"]);
});

test("A watch that does not open, or is refused, ends it with the reason.", async () => {
  const list: Script["list"] = (_, callback) =>
    callback(null, { revision: "9", items: [], history_id: "h" });
  // The list must be answered within the first one, and the refusal come within the other, on a busy machine as well.
  for (const [script, timeout, problem] of [
    [{ list, watch: () => {} }, "4s", "2 watchers got no stream in time"],
    [{ list }, "60s", "not in the script"],
  ] as const) {
    const { address, stop } = await startScriptedServer(script);
    const options = ["--watchers", "2", "--timeout", timeout, "--address", address];
    const outcome = await run(["bench", "watch", ...options]);
    expect(outcome).toMatchObject({ stdout: "", stderr: expect.stringContaining(problem) });
    expect(outcome.code).not.toBe(0);
    stop();
  }
});

test.each([
  ["--watchers", "10001"],
  ["--rate", "0"],
  ["--connections", "257"],
  ["--duration", "11m"],
  ["--value-bytes", "8"],
])("%s %s is refused.", async (flag, value) => {
  expect(await bench("watch", flag, value)).toMatchObject({ code: 2, stdout: "" });
});
