import { once } from "node:events";
import { renameSync, writeFileSync } from "node:fs";
import { createServer } from "node:http2";
import type { AddressInfo } from "node:net";
import { Metadata, Server, ServerCredentials } from "@grpc/grpc-js";
import { pino } from "pino";
import { afterAll, beforeAll, describe, expect, onTestFinished, test } from "vitest";
import { tokenDigest } from "../../src/identity/token-file.ts";
import { listWatchService } from "../../src/wire/services.ts";
import { viaKey } from "../../src/wire/via.ts";
import { Relay as Network } from "../faults/relay.ts";
import { type Options, Tier, temporaryFiles, until } from "./tiers.ts";

const value = Buffer.from("v");

/** Stops it after the test. */
function forThisTest<T extends Tier>(tier: T): T {
  onTestFinished(() => tier.stop());
  return tier;
}

async function network(port: number): Promise<Network> {
  const opened = await Network.to(port);
  onTestFinished(() => opened.close());
  return opened;
}

describe("Relays that would follow each other", () => {
  test("are refused, with the path", async () => {
    const root = forThisTest(await Tier.start({}));
    const toRoot = await network(root.port);
    const first = forThisTest(await Tier.relay(`127.0.0.1:${toRoot.port}`));
    const second = forThisTest(await Tier.relay(first.address));
    await second.client().put("default", "a", value);
    const [firstId = "", secondId = ""] = [first, second].map(({ service }) => service.instanceId);
    expect(firstId).not.toBe(secondId);
    // Writes are passed on with their path.
    const passed = new Metadata();
    passed.set(viaKey, firstId);
    const repeated = second.bare().withMetadata(passed).put({ resource: "default", key: "a" });
    const loop = `The relays follow each other in a loop: ${firstId} -> ${secondId} -> ${firstId}.`;
    await expect(repeated).rejects.toMatchObject({
      field: viaKey,
      message: expect.stringContaining(loop),
    });
    // The first one's upstream becomes a relay of itself.
    toRoot.aimAt(second.port);
    toRoot.cut();
    await until(async () => (await first.readyz()).includes(loop));
    await expect(first.client({ maxAttempts: 1 }).put("default", "a", value)).rejects.toMatchObject(
      {
        reason: "UPSTREAM_UNAVAILABLE",
        message: expect.stringContaining(loop),
      },
    );
    // A further relay finds the loop that it would be connected to, as it starts.
    await expect(Tier.relay(second.address)).rejects.toThrow(
      /^--upstream: The relays follow each other in a loop: \S+ -> \S+ -> \S+ -> \S+\./,
    );
    // What they have is served, and says how old it is.
    const cached = () => second.client().get("default", "a", { at: { match: "ANY" } });
    await until(async () => ((await cached()).staleForMs ?? 0) > 0);
    // Another server in the first one's place ends the loop.
    toRoot.aimAt(root.port);
    toRoot.cut();
    await until(async () => !(await first.readyz()).includes("stale"));
    await second.client().put("default", "a", value);
  });

  test("are refused beyond a depth of eight", async () => {
    const root = forThisTest(await Tier.start({}));
    const first = forThisTest(await Tier.relay(root.address));
    const second = forThisTest(await Tier.relay(first.address));
    /** A relay that follows the second one, at this depth below the root. */
    const atDepth = (depth: number) => {
      const metadata = new Metadata();
      metadata.set(viaKey, Array.from({ length: depth - 2 }, (_, i) => `relay-${i}`).join(","));
      return second.bare().withMetadata(metadata);
    };
    await atDepth(8).put({ resource: "default", key: "deep" });
    await atDepth(8).unary(listWatchService.Resources, { check_path: true });
    const refused = {
      field: viaKey,
      message: expect.stringMatching(
        /^The request has passed 9 relays, and the maximum is 8: (\S+ -> ){8}\S+\. Let the relay/,
      ),
    };
    const put = atDepth(9).put({ resource: "default", key: "deep" });
    await expect(put).rejects.toMatchObject(refused);
    const asked = atDepth(9).unary(listWatchService.Resources, { check_path: true });
    await expect(asked).rejects.toMatchObject(refused);
  });

  test.each([
    ["nine relays", Array.from({ length: 9 }, (_, i) => `relay-${i}`).join(",")],
    ["a very long path", `a,${"b".repeat(1_100)}`],
  ])("is what a call says that has passed %s", async (_what, via) => {
    const root = forThisTest(await Tier.start({}));
    const metadata = new Metadata();
    metadata.set(viaKey, via);
    const client = root.bare().withMetadata(metadata);
    const request = { resource: "default" };
    await expect(client.list(request)).rejects.toMatchObject({ field: viaKey });
    const watch = client.watch(request);
    expect(await watch.ended).toMatchObject({ reason: "INVALID_REQUEST", field: viaKey });
  });
});

describe("An upstream", () => {
  test("that does not have the call is too old", async () => {
    const server = new Server();
    const port = await new Promise<number>((resolve) => {
      server.bindAsync("127.0.0.1:0", ServerCredentials.createInsecure(), (_error, bound) =>
        resolve(bound),
      );
    });
    onTestFinished(() => server.forceShutdown());
    const root = forThisTest(await Tier.start({}));
    const toRoot = await network(root.port);
    const relay = forThisTest(await Tier.relay(`127.0.0.1:${toRoot.port}`));
    // In the place of the root, it is not used.
    toRoot.aimAt(port);
    toRoot.cut();
    await until(async () => (await relay.readyz()).includes("This relay can't follow 127.0.0.1"));
    await expect(Tier.relay(`127.0.0.1:${port}`)).rejects.toThrow(
      /^--upstream: The server at \S+ does not know the method .* A relay needs a watch-fanout that has the call Resources: update it first\.$/,
    );
  });

  test("that does not serve a resource is named, with what it serves", async () => {
    const root = forThisTest(await Tier.start({ resource: ["pods=/p/", "nodes=/n/"] }));
    await expect(Tier.relay(root.address, { resource: "pod" })).rejects.toThrow(
      `--resource: ${root.address} has no resource "pod" that this relay may read. Did you mean "pods"? ` +
        'It may read: "nodes", "pods".',
    );
  });

  test("may have another name for a resource, and further resources", async () => {
    const root = forThisTest(await Tier.start({ resource: ["pods=/p/", "nodes=/n/"] }));
    const relay = forThisTest(await Tier.relay(root.address, { resource: "mine=pods" }));
    const put = await relay.client().put("mine", "a", value);
    expect((await root.client().get("pods", "a")).object).toEqual(put.object);
    expect((await relay.client().resources()).map(({ name }) => name)).toEqual(["mine"]);
    await expect(relay.client().get("nodes", "a")).rejects.toMatchObject({
      reason: "UNKNOWN_RESOURCE",
    });
  });

  test("that no longer has a resource leaves the relay what it had, as stale", async () => {
    const root = forThisTest(await Tier.start({}));
    const other = forThisTest(await Tier.start({ resource: "pods=/p/" }));
    const toRoot = await network(root.port);
    const relay = forThisTest(await Tier.relay(`127.0.0.1:${toRoot.port}`));
    const client = relay.client({ maxAttempts: 1 });
    const { object } = await client.put("default", "a", value);
    await client.get("default", "a");
    toRoot.aimAt(other.port);
    toRoot.cut();
    const cached = () => client.get("default", "a", { at: { match: "ANY" } });
    await until(async () => (await cached()).staleForMs !== undefined);
    await until(async () => (await relay.readyz()).includes('There is no resource "default"'));
    expect((await cached()).object).toEqual(object);
    await expect(client.get("default", "a")).rejects.toMatchObject({
      reason: "UPSTREAM_UNAVAILABLE",
      message: expect.stringContaining('There is no resource "default"'),
    });
  });

  test("that has no cache of a resource is asked for every read of it", async () => {
    const { config } = temporaryFiles({
      config: "resources: [{name: large, prefix: /l/, cache: off}, {name: small, prefix: /s/}]",
    });
    const root = forThisTest(await Tier.start({ config }));
    const relay = forThisTest(await Tier.relay(root.address));
    const put = await relay.client().put("large", "a", value);
    expect(await relay.client().get("large", "a")).toEqual(put);
    const cached = (await relay.client().resources()).map(({ name, isCached }) => [name, isCached]);
    expect(cached).toEqual([
      ["large", false],
      ["small", true],
    ]);
    await expect(relay.client().watch("large").next()).rejects.toMatchObject({
      reason: "INVALID_REQUEST",
    });
  });

  test("that does not respond is waited for, not ready, with the reason", async () => {
    const root = forThisTest(await Tier.start({}));
    const toRoot = await network(root.port);
    toRoot.refuse();
    const lines: string[] = [];
    const { promise: logged, resolve } = Promise.withResolvers<void>();
    const logger = pino({}, { write: (line: string) => resolve(void lines.push(line)) });
    const starting = Tier.relay(`127.0.0.1:${toRoot.port}`, {}, logger);
    await logged;
    expect(lines[0]).toContain("the upstream does not respond");
    toRoot.heal();
    const relay = forThisTest(await starting);
    expect((await relay.client().resources()).map(({ name }) => name)).toEqual(["default"]);
    const ofUpstream = lines
      .map((line) => JSON.parse(line))
      .filter(({ msg }) => /upstream/.test(msg));
    expect(ofUpstream).toMatchObject([
      { level: 40, msg: "the upstream does not respond" },
      { level: 30, msg: "the upstream responds", outageMs: expect.any(Number) },
    ]);
  });
});

test("An upstream that fails for another reason than at first, before a relay has started, is logged at once", async () => {
  const root = forThisTest(await Tier.start({}));
  const proxy = createServer((_, response) => void response.writeHead(500).end());
  onTestFinished(() => void proxy.close());
  await once(proxy.listen(0, "127.0.0.1"), "listening");
  const toRoot = await network(root.port);
  toRoot.refuse();
  const reasons: unknown[] = [];
  const write = (line: string): void => {
    const { msg, err, outageMs = 0 } = JSON.parse(line);
    // Later ones may be the line of each minute.
    if (msg === "the upstream does not respond" && outageMs < 60_000) reasons.push(err);
  };
  const serializers = { err: ({ reason }: { readonly reason: string }) => reason };
  const logger = pino({ serializers }, { write });
  const starting = Tier.relay(`127.0.0.1:${toRoot.port}`, {}, logger);
  await until(async () => reasons.length > 0);
  toRoot.aimAt((proxy.address() as AddressInfo).port);
  toRoot.heal();
  await until(async () => reasons.length > 1);
  toRoot.aimAt(root.port);
  toRoot.cut();
  forThisTest(await starting);
  expect(reasons).toEqual(["UPSTREAM_UNAVAILABLE", "INTERNAL"]);
});

test("An outage of the upstream is logged when it begins and when it has ended, with the resource", async () => {
  const root = forThisTest(await Tier.start({}));
  const toRoot = await network(root.port);
  const lines: Record<string, unknown>[] = [];
  const logger = pino({}, { write: (line: string) => void lines.push(JSON.parse(line)) });
  const relay = forThisTest(await Tier.relay(`127.0.0.1:${toRoot.port}`, {}, logger));
  await until(async () => (await relay.readyz()).startsWith("ok"));
  toRoot.refuse();
  // Several attempts fail meanwhile.
  await until(async () => /stale: .* nothing for [2-9]/.test(await relay.readyz()));
  toRoot.heal();
  const ofWatch = (): Record<string, unknown>[] =>
    lines.filter(({ msg }) => /watch$|relisting|following/.test(String(msg)));
  await until(async () => ofWatch().some(({ level }) => level === 30));
  expect(ofWatch()).toMatchObject([
    { level: 40, resource: "default", msg: "resuming the watch", reason: "UPSTREAM_UNAVAILABLE" },
    { level: 30, resource: "default", msg: "following the store again" },
  ]);
  expect(ofWatch()[1]?.["attempts"]).toBeGreaterThan(2);
});

describe("A relay's own rights", () => {
  const rights = (things: string): string => `
roles:
  - name: relay
    rules:
      - { resources: [things], prefixes: ["*"], verbs: [${things}] }
      - { resources: [parts], prefixes: ["*"], verbs: [get, list] }
      - { resources: [parts], prefixes: ["a/"], verbs: [watch] }
  - name: all
    rules: [{ resources: ["*"], prefixes: ["*"], verbs: ["*"] }]
  - name: lister
    rules: [{ resources: [things], prefixes: ["*"], verbs: [list, watch] }]
bindings: [{ role: lister, subjects: [lister] }, { role: relay, subjects: [relay] }, { role: all, subjects: [admin] }]
`;
  let files: Record<"policy" | "tokens" | "relay-token" | "other-token", string>;
  let root: Tier;
  let removeFiles = (): void => {};

  beforeAll(async () => {
    const lines = ["relay", "admin", "stranger", "lister"].map(
      (name) => `sha256:${tokenDigest(`${name}-token`)} ${name}\n`,
    );
    files = temporaryFiles(
      {
        ...{ policy: rights("list, watch, get"), tokens: lines.join("") },
        ...{ "relay-token": "relay-token\n", "other-token": "other-token\n" },
      },
      (remove) => {
        removeFiles = remove;
      },
    );
    root = await Tier.start({
      resource: ["things=/t/", "parts=/p/", "secrets=/s/"],
      ...{ policy: files.policy, "token-file": files.tokens },
    });
  });

  afterAll(async () => {
    await root?.stop();
    removeFiles();
  });

  const relayWith = (options: Options = {}): Promise<Tier> =>
    Tier.relay(root.address, { "upstream-token-file": files["relay-token"], ...options });

  test("decide which resources it serves", async () => {
    const relay = forThisTest(await relayWith());
    expect((await relay.client().resources()).map(({ name }) => name)).toEqual(["things"]);
    const seen = await root.client({ token: "relay-token" }).resources();
    expect(seen.map(({ name, isReadableInFull }) => [name, isReadableInFull])).toEqual([
      ["parts", false],
      ["things", true],
    ]);
    expect(await root.client({ token: "stranger-token" }).resources()).toEqual([]);
  });

  test.each<[string, Options, string | RegExp]>([
    [
      "a resource that it may not read",
      { resource: "secrets" },
      /has no resource "secrets" that this relay may read\. It may read: "parts", "things"\. Check the name, and the rights/,
    ],
    [
      "a resource that it may read in part",
      { resource: "parts" },
      /^--resource: this relay may read only a part of "parts" at \S+, and it has to get, list and watch all keys\./,
    ],
  ])("are too few for %s, which it says at its start", async (_what, options, message) => {
    await expect(relayWith(options)).rejects.toThrow(message);
  });

  test("include get, which it needs to resume", async () => {
    const client = root.client({ token: "lister-token" });
    const [things] = await client.resources();
    expect([things?.name, things?.isReadableInFull]).toEqual(["things", false]);
  });

  test("need a valid token", async () => {
    const other = relayWith({ "upstream-token-file": files["other-token"] });
    await expect(other).rejects.toThrow(/^--upstream: .*token/i);
    await expect(Tier.relay(root.address)).rejects.toThrow(
      /^--upstream: \S+ serves no resource that this relay may get, list and watch completely\. Check the relay's token/,
    );
  });

  test("are not those of its clients: a denied write is UPSTREAM_DENIED", async () => {
    const relay = forThisTest(await relayWith());
    await expect(relay.client().put("things", "a", value)).rejects.toMatchObject({
      reason: "UPSTREAM_DENIED",
      message: expect.stringContaining("refuses the relay itself"),
    });
  });

  test("when lost, end its streams and its cached reads", async () => {
    const admin = root.client({ token: "admin-token" });
    await admin.put("things", "secret", value);
    const relay = forThisTest(await relayWith());
    const client = relay.client({ maxAttempts: 1 });
    await client.get("things", "secret");
    const watch = client.watch("things", { resume: false });
    await watch.next();
    replace(files.policy, rights("get"));
    await expect(watch.next()).rejects.toMatchObject({ reason: "UPSTREAM_DENIED" });
    const at = { match: "ANY" } as const;
    await expect(client.get("things", "secret", { at })).rejects.toMatchObject({
      reason: "NOT_READY",
    });
  });
});

/** Replaces a file at once. */
function replace(path: string, content: string): void {
  writeFileSync(`${path}.new`, content);
  renameSync(`${path}.new`, path);
}
