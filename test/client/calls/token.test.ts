import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { describe, expect, onTestFinished, test, vi } from "vitest";
import type { ConnectOptions } from "../../../src/client/calls/options.ts";
import type { Client } from "../../../src/client/client.ts";
import { jsonValues } from "../../../src/client/values/value-codec.ts";
import type { AtomicBatch } from "../../../src/client/watch/client-calls.ts";
import { parseTokenFile, tokenDigest } from "../../../src/identity/token-file.ts";
import { run } from "../../cli/client/client-terminal.ts";
import { FakeClock } from "../../fake-clock.ts";
import { issuer, serveAuthenticated } from "../../server/authenticated-calls.ts";
import { client } from "../opened.ts";

function file(content: string): string {
  const folder = mkdtempSync(join(tmpdir(), "token-"));
  onTestFinished(() => rmSync(folder, { recursive: true }));
  writeFileSync(join(folder, "token"), content);
  return join(folder, "token");
}

async function setUp(token: ConnectOptions["token"], options: Partial<ConnectOptions> = {}) {
  const served = await serveAuthenticated();
  const opened = client(`127.0.0.1:${served.server.port}`, { token, ...options });
  const list = async () => (await opened.page("things")).revision;
  return { ...served, client: opened, list };
}

/** The next batch that is not a bookmark. */
async function nextEvents(watch: ReturnType<Client["watch"]>): Promise<AtomicBatch["events"]> {
  for (;;) {
    const { value } = await watch.next();
    if (value === undefined) throw new Error("The watch has ended.");
    if (value.events.length > 0) return value.events;
  }
}

const line = (token: string) => parseTokenFile(Buffer.from(`sha256:${tokenDigest(token)} machine`));

describe("A client with a token", () => {
  test.each([
    ["as text", () => "static"],
    ["from a file, with a line break at its end", () => ({ file: file("static\n") })],
    ["from a function", () => () => "static"],
    ["from an asynchronous function", () => async () => "static"],
  ])("%s sends it with each call and stream", async (_, token) => {
    const { list, client, authenticators } = await setUp(token());
    await list();
    await client.put("things", "a", Buffer.from("1"));
    for await (const _batch of client.watch("things")) break;
    expect(authenticators.identities.map(({ name }) => name)).toEqual([
      ...["machine", "machine", "machine"],
    ]);
  });

  test("in a file reads the file again once it is a second old", async () => {
    const clock = new FakeClock();
    const path = file("static");
    const { list, tokens } = await setUp({ file: path }, { clock });
    await list();
    writeFileSync(path, "next");
    await list();
    tokens.replace(line("next"));
    await expect(list()).rejects.toMatchObject({ reason: "UNAUTHENTICATED" });
    clock.advance(1_000);
    await list();
  });

  test("calls its function for each call", async () => {
    const token = vi.fn(() => "static");
    const { list } = await setUp(token);
    await list();
    await list();
    expect(token).toHaveBeenCalledTimes(2);
  });

  test("that is wrong gets UNAUTHENTICATED, once, with what to do", async () => {
    const { list, authenticators } = await setUp("wrong");
    await expect(list()).rejects.toMatchObject({ reason: "UNAUTHENTICATED" });
    await expect(list()).rejects.toThrow("Call again with a new token");
    expect(authenticators.counts.refused).toBe(2);
  });

  test.each([
    ["a file that is missing", { file: "/does/not/exist" }, "can't be read from /does/not/exist"],
    ["a function that fails", () => Promise.reject(new Error("no")), "has failed"],
    ["a function without a token", () => "", "is not a token"],
    ["a function that hangs", () => new Promise<string>(() => {}), "no token after"],
  ])("from %s gets UNAUTHENTICATED, and sends nothing", async (_, token, problem) => {
    // Long enough to connect, on a busy machine as well: a call waits for that first.
    const { list, authenticators } = await setUp(token, { timeoutMs: 5_000 });
    const failure = await list().catch((error: unknown) => error);
    expect(failure).toMatchObject({ reason: "UNAUTHENTICATED" });
    expect((failure as Error).message).toContain(problem);
    expect(authenticators.identities).toEqual([]);
  });

  test.each(["", "two words", "line\nbreak", "x".repeat(16_385)])(
    "%j is not created: INVALID_REQUEST, without the text",
    (token) => {
      const make = () => client("127.0.0.1:1", { token });
      expect(make).toThrow("is not a token");
      if (token !== "") expect(make).not.toThrow(token);
    },
  );

  test("ends its calls when it is closed, also while it waits for the token", async () => {
    const { client, list } = await setUp(() => new Promise<string>(() => {}));
    const called = list();
    client.close();
    await expect(called).rejects.toThrow("This client is closed.");
  });
});

describe("When its credential expires", () => {
  test("a watch continues with the next token, without a gap", async () => {
    const expires = Math.ceil(Date.now() / 1_000) + 600;
    let exp = expires;
    const interruptions: string[] = [];
    const served = await setUp(() => issuer.sign({ exp }));
    const watch = served.client.watch("things", {
      sendInitialEvents: true,
      onInterruption: ({ error }) => interruptions.push(error.reason),
    });
    const { value: initial } = await watch.next();
    expect(initial).toBeDefined();
    const next = nextEvents(watch);
    exp = expires + 600;
    served.time.now = expires * 1_000;
    served.clock.advance(1_000);
    await vi.waitFor(() => expect(interruptions).toEqual(["UNAUTHENTICATED"]), 60_000);
    await served.storage.put({ key: "a", value: Buffer.from("1") });
    expect((await next).map(({ object }) => object.key)).toEqual(["a"]);
    await watch.return();
  });

  test("a watch ends with UNAUTHENTICATED if the token is not renewed", async () => {
    const exp = Math.ceil(Date.now() / 1_000) + 600;
    const served = await setUp(await issuer.sign({ exp }));
    const watch = served.client.watch("things", { sendInitialEvents: true });
    await watch.next();
    const next = watch.next();
    served.time.now = (exp + 61) * 1_000;
    served.clock.advance(1_000);
    await expect(next).rejects.toMatchObject({ reason: "UNAUTHENTICATED" });
  });

  test("an informer reports it, tries again, and continues once it is accepted", async () => {
    const { client, tokens, storage, authenticators } = await setUp("static");
    const reasons: string[] = [];
    let recovered = 0;
    const informer = client.resource("things", jsonValues<number>()).informer({
      backoff: { initialMs: 1, maxMs: 10 },
      onWatchError: ({ error }) => reasons.push(error.reason),
      onRecovered: () => recovered++,
    });
    onTestFinished(() => informer.stop());
    informer.start();
    await informer.waitForSync();
    tokens.replace(line("other"));
    await vi.waitFor(() => expect(reasons.length).toBeGreaterThan(3), 60_000);
    expect(new Set(reasons)).toEqual(new Set(["UNAUTHENTICATED"]));
    expect(authenticators.counts.refused).toBeGreaterThan(2);
    tokens.replace(line("static"));
    await storage.put({ key: "a", value: Buffer.from("1") });
    await vi.waitFor(() => expect(informer.indexer.get("a")).toBeDefined(), 60_000);
    expect(recovered).toBeGreaterThan(0);
    expect(informer.stats().relists).toBe(0);
  });
});

test("The command sends the token of --bearer-token-file, and says what is wrong without one", async () => {
  const { server } = await serveAuthenticated();
  const list = ["list", "-r", "things", "--address", `127.0.0.1:${server.port}`];
  const good = await run([...list, "--bearer-token-file", file("static\n")]);
  expect(good).toMatchObject({ code: 0, stderr: "" });
  const wrong = await run([...list, "--bearer-token-file", file("wrong-token")]);
  expect(wrong).toMatchObject({ code: 6, stdout: "" });
  expect(wrong.stderr).toContain("Call again with a new token");
  expect(wrong.stderr).not.toContain("wrong-token");
  const missing = await run([...list, "--bearer-token-file", "/does/not/exist"]);
  expect(missing.stderr).toContain("can't be read from /does/not/exist");
});
