import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, beforeAll, describe, expect, onTestFinished, test } from "vitest";
import type { KeyRange } from "../../src/client/calls/options.ts";
import { type Client, connect } from "../../src/client/connect.ts";
import { tokenDigest } from "../../src/identity/token-file.ts";
import { startServe, untilStatus } from "../cli/serve/serve-process.ts";
import { type Etcd, startEtcd } from "../etcd/etcd.ts";
import { BareGrpc } from "../foreign/bare-grpc.ts";
import { encode } from "../foreign/protobuf.ts";
import { Source } from "../storage/etcd/source.ts";
import { type Options, sumOf, Tier, temporaryFiles, until } from "./tiers.ts";

const resource = "things";
/** A window of two events. */
const tiny: Options = { "event-window-max-events": "2", "event-window-min-events": "0" };

describe("A watch that resumes from before every event window", () => {
  let etcd: Etcd;
  let source: Source;
  let prefixes = 0;

  beforeAll(async () => {
    etcd = await startEtcd();
    source = new Source(etcd);
  });

  afterAll(() => etcd?.stop());

  /** Writes `a` and `b` in turn, `count` times, and returns the revisions. */
  async function write(prefix: string, count: number): Promise<number[]> {
    const revisions: number[] = [];
    for (let i = 0; i < count; i++) {
      const value = Buffer.from(`${i}`);
      const key = i % 2 === 0 ? "a" : "b";
      revisions.push(await source.write(prefix, [{ type: "put", key, value }]));
    }
    return revisions;
  }

  const newPrefix = (): string => `/deep-${prefixes++}/`;

  /** The revisions after `after` that a client gets, up to `last`, with the value before each. */
  async function follow(
    client: Pick<Client, "watch">,
    after: number,
    last: number,
    range?: KeyRange,
  ): Promise<string[]> {
    const seen: string[] = [];
    const watch = client.watch(resource, {
      ...{ range, afterRevision: after },
      includePrevious: true,
      resume: false,
    });
    for await (const { events, revision } of watch) {
      for (const { object, previous } of events)
        seen.push(
          `${object.key}@${object.modRevision} before ${Buffer.from(previous?.value ?? [])}`,
        );
      if (revision >= last) break;
    }
    return seen;
  }

  /** What `follow` gets of `revisions`, from the third on. */
  function expected(revisions: readonly number[]): string[] {
    return revisions
      .map((revision, i) => `${i % 2 === 0 ? "a" : "b"}@${revision} before ${i - 2}`)
      .slice(2);
  }

  async function chain(prefix: string, options: Options = {}): Promise<readonly Tier[]> {
    const root = await Tier.start({
      ...{ ...tiny, etcd: etcd.url, resource: `${resource}=${prefix}`, ...options },
    });
    const relay = await Tier.relay(root.address, tiny);
    const leaf = await Tier.relay(relay.address, tiny);
    onTestFinished(async () => {
      for (const tier of [leaf, relay, root]) await tier.stop();
    });
    return [root, relay, leaf];
  }

  async function untilCached(tiers: readonly Tier[], revision: number): Promise<void> {
    for (const tier of tiers) {
      const client = tier.client();
      const options = { pageSize: 1, at: { match: "ANY" } } as const;
      await until(async () => (await client.page(resource, options)).revision >= revision);
    }
  }

  test("gets every event at each tier", async () => {
    const prefix = newPrefix();
    const tiers = await chain(prefix);
    const revisions = await write(prefix, 40);
    const [after = 0, last = 0] = [revisions[1], revisions.at(-1)];
    await untilCached(tiers, last);
    for (const tier of tiers) {
      expect(await follow(tier.client(), after, last)).toEqual(expected(revisions));
      expect(await tier.metric("watch_fanout_deep_reads_begun_total")).toBeGreaterThan(0);
      await until(async () => (await tier.metric("watch_fanout_deep_reads")) === 0);
    }
  });

  test("gets the events of a range of keys at each tier, also over one stream for several watches", async () => {
    const prefix = newPrefix();
    const tiers = await chain(prefix);
    const revisions = await write(prefix, 40);
    const [after = 0, last = 0] = [revisions[1], revisions.at(-1)];
    await untilCached(tiers, last);
    const all = expected(revisions);
    const lower = all.filter((event) => event.startsWith("a"));
    const upper = all.filter((event) => event.startsWith("b"));
    for (const tier of tiers) {
      const client = tier.client();
      expect(await follow(client, after, last, { endKey: "b" })).toEqual(lower);
      expect(await follow(client, after, last, { startKey: "aa" })).toEqual(upper);
      const begun = await tier.metric("watch_fanout_deep_reads_begun_total");
      const subscription = client.subscribe();
      const seen = await Promise.all([
        follow(subscription, after, last),
        follow(subscription, after, last, { startKey: "a", endKey: "aa" }),
        follow(subscription, after, last, { startKey: "b" }),
      ]);
      subscription.close();
      expect(seen).toEqual([all, lower, upper]);
      expect(await tier.metric("watch_fanout_deep_reads_begun_total")).toBe(begun + 3);
    }
  });

  test("is REVISION_TOO_OLD at each tier once etcd has compacted what comes next", async () => {
    const prefix = newPrefix();
    const tiers = await chain(prefix);
    const revisions = await write(prefix, 10);
    const [after = 0, compacted = 0, last = 0] = [revisions[1], revisions[5], revisions.at(-1)];
    await untilCached(tiers, last);
    await source.compact(compacted);
    for (const tier of tiers) {
      const client = tier.client();
      await expect(follow(client, after, last)).rejects.toMatchObject({
        reason: "REVISION_TOO_OLD",
        metadata: { oldest_revision: String(compacted) },
      });
      expect(await follow(client, compacted, last)).toEqual(expected(revisions).slice(4));
    }
  });

  test("is RESUME_LIMITED at each tier if the root has no turn for it", async () => {
    const prefix = newPrefix();
    const tiers = await chain(prefix, { "deep-reads": "1" });
    const [root, , leaf] = tiers;
    if (root === undefined || leaf === undefined) throw new Error("There are no tiers.");
    const value = Buffer.alloc(64 * 1024);
    const revisions: number[] = [];
    for (let i = 0; i < 100; i++)
      revisions.push(await source.write(prefix, [{ type: "put", key: "a", value }]));
    const [after = 0, last = 0] = [revisions[0], revisions.at(-1)];
    await untilCached(tiers, last);
    // It reads nothing, so the root's only turn is its.
    const grpc = new BareGrpc(`http://${root.address}`, 16 * 1024);
    onTestFinished(() => grpc.close());
    const request = encode({ 1: resource, 6: after });
    const held = grpc.call("/watchfanout.v1.ListWatchService/Watch", request);
    await until(async () => (await root.metric("watch_fanout_deep_reads")) === 1);
    const client = leaf.client();
    await expect(follow(client, after, last)).rejects.toMatchObject({
      reason: "RESUME_LIMITED",
      metadata: { limit_name: "deep-reads", limit: "1" },
    });
    expect(await root.metric("watch_fanout_deep_reads_refused_total")).toBe(1);
    held.cancel();
    expect(await follow(client, after, last)).toHaveLength(99);
  });

  test("shows a limited caller what its rights allow, and nothing else", async () => {
    const prefix = newPrefix();
    const files = temporaryFiles({
      policy: `
roles:
  - name: all
    rules: [{ resources: ["*"], prefixes: ["*"], verbs: ["*"] }]
  - name: some
    rules: [{ resources: ["*"], prefixes: ["a"], verbs: [watch] }]
bindings: [{ role: all, subjects: [admin] }, { role: some, subjects: [limited] }]
`,
      tokens: ["admin", "limited"].map((name) => `sha256:${tokenDigest(name)} ${name}\n`).join(""),
    });
    const tier = await Tier.start({
      ...{ ...tiny, etcd: etcd.url, resource: `${resource}=${prefix}` },
      ...{ policy: files.policy, "token-file": files.tokens },
    });
    onTestFinished(() => tier.stop());
    const revisions = await write(prefix, 20);
    const [after = 0, last = 0] = [revisions[1], revisions.at(-1)];
    const admin = tier.client({ token: "admin" });
    await admin.page(resource, { pageSize: 1, at: { match: "NOT_OLDER_THAN", revision: last } });
    const limited = tier.client({ token: "limited" });
    await expect(follow(limited, after, last)).rejects.toMatchObject({
      reason: "PERMISSION_DENIED",
    });
    const scope = { prefix: "a" };
    const watch = limited.watch(resource, { scope, afterRevision: after, resume: false });
    const keys: string[] = [];
    for await (const { events, revision } of watch) {
      keys.push(...events.map(({ object }) => object.key));
      if (revision >= last) break;
    }
    expect(keys).toEqual(Array.from({ length: 9 }, () => "a"));
  });

  test("gets every event from a service with workers, of which all callers share the main process", async () => {
    const prefix = newPrefix();
    const folder = mkdtempSync(join(tmpdir(), "deep-"));
    const served = await startServe(
      [
        ...["--workers", "2", "--etcd", etcd.url, "--resource", `${resource}=${prefix}`],
        ...["--event-window-max-events", "2", "--event-window-min-events", "0"],
        ...["--deep-reads-per-identity", "1", "--shutdown-timeout", "1s"],
      ],
      { XDG_RUNTIME_DIR: folder },
    );
    onTestFinished(async () => {
      await served.process[Symbol.asyncDispose]();
      rmSync(folder, { recursive: true });
    });
    await untilStatus(`${served.admin}/readyz`, 200);
    const revisions = await write(prefix, 40);
    const [after = 0, last = 0] = [revisions[1], revisions.at(-1)];
    // Several connections, so that both workers have some.
    const clients = [0, 1, 2, 3].map((i) =>
      connect({ address: served.grpc, keepaliveIntervalMs: 30_000 + i }),
    );
    onTestFinished(() => {
      for (const client of clients) client.close();
    });
    const seen = await Promise.all(
      clients.map(async (client) => {
        await client.page(resource, {
          pageSize: 1,
          at: { match: "NOT_OLDER_THAN", revision: last },
        });
        return follow(client, after, last);
      }),
    );
    for (const each of seen) expect(each).toEqual(expected(revisions));
    const metrics = await untilStatus(`${served.admin}/metrics`, 200);
    expect(sumOf(metrics, "watch_fanout_deep_reads_begun_total")).toBeGreaterThanOrEqual(8);
  });
});
