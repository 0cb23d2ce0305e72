import { createServer } from "node:http";
import type { AddressInfo } from "node:net";
import { exportJWK, generateKeyPair } from "jose";
import { pino } from "pino";
import { describe, expect, onTestFinished, test } from "vitest";
import { KeysAwaited, parseKeySet, RemoteKeySet } from "../../src/identity/key-set.ts";
import { FakeClock } from "../fake-clock.ts";
import { Issuer, keySetContent } from "./issuer.ts";

const issuer = await Issuer.create("one");
const other = await Issuer.create("two");

describe("A key set is refused that", () => {
  test.each([
    ["is not JSON", "nonsense", "is not a JSON Web Key Set"],
    ["is not a set", "[]", "is not a JSON Web Key Set"],
    ["has no key", '{"keys":[]}', "has no public key"],
    ["has only symmetric keys", '{"keys":[{"kty":"oct","k":"c2VjcmV0"}]}', "has no public key"],
  ])("%s", (_, content, problem) => {
    expect(() => parseKeySet(Buffer.from(content))).toThrow(problem);
  });

  test("has a private key", async () => {
    const { privateKey } = await generateKeyPair("ES256", { extractable: true });
    const content = Buffer.from(JSON.stringify({ keys: [await exportJWK(privateKey)] }));
    expect(() => parseKeySet(content)).toThrow("has a private key");
  });
});

/** Finds a key, after requests for it. */
async function findRequested(keys: RemoteKeySet, kid: string): Promise<unknown> {
  for (;;) {
    try {
      return await keys.find({ alg: "ES256", kid }, { payload: "", signature: "" });
    } catch (error) {
      if (!(error instanceof KeysAwaited)) throw error;
      await error.requested;
    }
  }
}

/** Keys that a function provides instead of HTTP. */
function setUp() {
  const clock = new FakeClock();
  const requests: PromiseWithResolvers<Buffer>[] = [];
  const lines: string[] = [];
  const keys = new RemoteKeySet({
    url: new URL("https://issuer.example/keys"),
    clock,
    logger: pino({}, { write: (line) => lines.push(line) }),
    fetch: (_url, _maxBytes, signal) => {
      const request = Promise.withResolvers<Buffer>();
      requests.push(request);
      signal.addEventListener("abort", () => request.reject(signal.reason));
      return request.promise;
    },
  });
  onTestFinished(() => keys.close());
  const find = (kid: string) => findRequested(keys, kid);
  return { clock, requests, keys, find, lines };
}

describe("Keys from a URL", () => {
  test("are looked up without waiting for a request, which all lookups share", async () => {
    const { clock, requests, keys, find } = setUp();
    const lookUp = (kid: string) =>
      Promise.resolve(keys.find({ alg: "ES256", kid }, { payload: "", signature: "" }));
    await expect(lookUp("one")).rejects.toBeInstanceOf(KeysAwaited);
    requests[0]?.resolve(keySetContent(issuer));
    await find("one");
    clock.advance(10_000);
    const [a, b] = await Promise.all([lookUp("two").catch((e) => e), lookUp("x").catch((e) => e)]);
    expect(a.requested).toBe(b.requested);
    expect(requests).toHaveLength(2);
    // The request hangs.
    expect(await lookUp("one")).toBeDefined();
    await expect(lookUp("two")).rejects.toBeInstanceOf(KeysAwaited);
    clock.advance(5_000);
    await a.requested;
    await expect(lookUp("two")).rejects.toThrow("no applicable key");
  });

  test("are requested at once, and lookups wait for them", async () => {
    const { requests, find } = setUp();
    const found = find("one");
    expect(requests).toHaveLength(1);
    requests[0]?.resolve(keySetContent(issuer));
    expect(await found).toBeDefined();
  });

  test("are requested again for an unknown kid, once for all, and at most every 10 s", async () => {
    const { clock, requests, find, keys } = setUp();
    requests[0]?.resolve(keySetContent(issuer));
    await find("one");
    await expect(find("two")).rejects.toThrow("no applicable key");
    expect(requests).toHaveLength(1);
    clock.advance(10_000);
    const found = Promise.all([find("two"), find("two")]);
    await clock.settle();
    expect(requests).toHaveLength(2);
    requests[1]?.resolve(keySetContent(issuer, other));
    expect(await found).toHaveLength(2);
    for (let i = 0; i < 100; i++) await expect(find(`${i}`)).rejects.toThrow("no applicable key");
    expect(requests).toHaveLength(2);
    expect(keys.counts).toEqual({ succeeded: 2, failed: 0 });
  });

  test("are requested every 10 minutes, and stay in use if a request fails", async () => {
    const { clock, requests, find, keys, lines } = setUp();
    requests[0]?.resolve(keySetContent(issuer));
    await find("one");
    await clock.elapse(10 * 60_000);
    expect(requests).toHaveLength(2);
    requests[1]?.reject(new Error("no"));
    await clock.settle();
    expect(await find("one")).toBeDefined();
    expect(keys.counts).toEqual({ succeeded: 1, failed: 1 });
    expect(lines).toHaveLength(1);
  });

  test("can't be found while no request has succeeded: not the client's fault", async () => {
    const { clock, find, requests } = setUp();
    const found = find("one");
    // The request hangs, and has a time limit.
    void clock.elapse(5_000);
    await expect(found).rejects.toMatchObject({ reason: "UPSTREAM_UNAVAILABLE" });
    await expect(find("one")).rejects.toMatchObject({ reason: "UPSTREAM_UNAVAILABLE" });
    expect(requests).toHaveLength(1);
  });

  test("report a change, and not an equal answer", async () => {
    const { clock, requests, keys, find } = setUp();
    let changes = 0;
    keys.onChange(() => changes++);
    requests[0]?.resolve(keySetContent(issuer));
    await find("one");
    await clock.elapse(10 * 60_000);
    requests[1]?.resolve(keySetContent(issuer));
    await clock.elapse(10 * 60_000);
    expect(changes).toBe(1);
    requests[2]?.resolve(keySetContent(other));
    await clock.settle();
    expect(changes).toBe(2);
  });
});

describe("Over HTTP", () => {
  async function served(answer: { status?: number; headers?: object; body: string }) {
    const server = createServer((_request, response) => {
      response.writeHead(answer.status ?? 200, { ...answer.headers }).end(answer.body);
    }).listen(0, "127.0.0.1");
    await new Promise((resolve) => server.once("listening", resolve));
    onTestFinished(() => void server.close());
    const { port } = server.address() as AddressInfo;
    const lines: string[] = [];
    const logger = pino({}, { write: (line) => lines.push(JSON.parse(line).problem) });
    const url = new URL(`http://127.0.0.1:${port}/keys`);
    const keys = new RemoteKeySet({ url, clock: new FakeClock(), logger });
    onTestFinished(() => keys.close());
    return { lines, found: findRequested(keys, "one") };
  }

  test("keys are fetched", async () => {
    const { found } = await served({ body: JSON.stringify(issuer.keySet) });
    expect(await found).toBeDefined();
  });

  test.each([
    ["an error", { status: 500, body: "" }, "status 500"],
    ["a redirect", { status: 302, headers: { location: "http://127.0.0.1:1" }, body: "" }, ""],
    ["too large an answer", { body: "x".repeat(2 ** 20 + 1) }, "more than 1048576 bytes"],
    ["no key set", { body: "{}" }, "is not a JSON Web Key Set"],
  ])("%s is a failure", async (_, answer, problem) => {
    const { found, lines } = await served(answer);
    await expect(found).rejects.toMatchObject({ reason: "UPSTREAM_UNAVAILABLE" });
    expect(lines[0]).toContain(problem);
  });
});
