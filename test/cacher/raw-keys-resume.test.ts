import { describe, expect, onTestFinished, test } from "vitest";
import { systemClock } from "../../src/base/clock.ts";
import { Cacher } from "../../src/cacher/cacher.ts";
import { EtcdStorage } from "../../src/storage/etcd/etcd-storage.ts";
import { etcdOfFile } from "../etcd/etcd-of-file.ts";
import { Relay } from "../faults/relay.ts";
import { StreamReader } from "../storage/conformance/stream-reader.ts";
import { clientOf, newPrefix, Source } from "../storage/etcd/source.ts";
import { silent } from "./cached-store.ts";
import { startReady } from "./ready.ts";

const etcdOf = etcdOfFile();
const otherEtcdOf = etcdOfFile();

/** A ready cache with raw keys, its network to etcd, and what writes below its prefix. */
async function cached() {
  const etcd = await etcdOf();
  const relay = await Relay.to(Number(new URL(etcd.url).port));
  const prefix = newPrefix();
  const source = new Source(etcd);
  await source.putBytes(Buffer.from(`${prefix}a`));
  const client = clientOf(relay);
  const cacher = new Cacher({
    storage: new EtcdStorage(client, { prefix }),
    ...{ rawKeys: true, clock: systemClock, logger: silent, name: "things" },
  });
  onTestFinished(async () => {
    await cacher.close();
    await client.close();
    await relay.close();
  });
  await startReady(cacher);
  /** The key in etcd, one character per byte. */
  const inEtcd = (key: string): Buffer => Buffer.from(prefix + key, "latin1");
  return { relay, source, cacher, inEtcd };
}

describe("A cache whose last change is of a raw key", () => {
  test.each([
    ["the prefix", "", ""],
    ["a key that is not UTF-8", "\xff", "\udcff"],
    ["a key that begins as one of UTF-8", "a\xe2\x98", "a\udce2\udc98"],
  ])("resumes its watch after a lost connection: %s", async (_what, key, text) => {
    const { relay, source, cacher, inEtcd } = await cached();
    const afterRevision = await source.revision();
    const request = { scope: { prefix: "" }, rawKeys: true, afterRevision, withPrevious: true };
    const reader = new StreamReader(cacher, request);
    await reader.through(await source.putBytes(inEtcd(key), "1"));
    relay.cut();
    await reader.through(await source.putBytes(inEtcd("b")));
    await source.call("kv/deleterange", { key: inEtcd(key).toString("base64") });
    await reader.through(await source.revision());
    relay.cut();
    const events = await reader.through(await source.putBytes(inEtcd("c")));
    expect(events.map(({ type, key }) => `${type} ${key}`)).toEqual([
      ...[`ADDED ${text}`, "ADDED b", `DELETED ${text}`, "ADDED c"],
    ]);
    expect(cacher.stats()).toMatchObject({ relists: 0 });
    expect(cacher.stats().reconnects).toBeGreaterThanOrEqual(2);
    reader.stream.close();
  });

  test("detects that the store no longer has that change", async () => {
    const { relay, source, cacher, inEtcd } = await cached();
    const afterRevision = await source.revision();
    const request = { scope: { prefix: "" }, rawKeys: true, afterRevision, withPrevious: true };
    const reader = new StreamReader(cacher, request);
    const revision = await source.putBytes(inEtcd("\xff"), "1");
    await reader.through(revision);
    // A store with the same history's id that has grown past that revision.
    const restored = new Source(await otherEtcdOf());
    await restored.putBytes(Buffer.from("/watchfanout/history"), cacher.currentHistoryId);
    while ((await restored.putBytes(inEtcd("a"))) <= revision);
    relay.aimAt(Number(new URL((await otherEtcdOf()).url).port));
    relay.cut();
    expect(await reader.end()).toMatchObject({ reason: "HISTORY_CHANGED" });
  });
});
