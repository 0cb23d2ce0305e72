import { status } from "@grpc/grpc-js";
import { expect, onTestFinished, test } from "vitest";
import { startEtcd } from "../../etcd/etcd.ts";
import { encode, Message } from "../../foreign/protobuf.ts";
import fc from "../../property.ts";
import { type Front, metricOf } from "../front.ts";
import { RawGrpc, statusOf } from "../raw-grpc.ts";
import { WatchClient } from "../watch-client.ts";
import {
  foreignKey,
  foreignLease,
  type KeyRequest,
  keyRequest,
  storedKeys,
} from "./key-requests.ts";
import { callers, mayKey, type Verb } from "./limited-callers.ts";
import { startTier, type Tier } from "./limited-tiers.ts";

/** Number of requests for each tier. `npm run rights` makes 10,000. */
const requests = Number(process.env["RIGHTS_REQUESTS"] ?? 600);

/** Number of requests at once. */
const atOnce = 30;

const pathOf = (method: string): string =>
  `/etcdserverpb.${method === "Watch" ? "Watch/Watch" : `KV/${method}`}`;
const secretOf = (key: Buffer): string => `<secret ${key.toString("hex")}>`;

/** What a call has received, and the code of its status; undefined: it was cancelled. */
interface Received {
  readonly bytes: Buffer;
  readonly code: number | undefined;
  readonly isRefused: boolean;
}

class World {
  readonly #etcd: RawGrpc;
  readonly #limited: RawGrpc;
  readonly #front: Front;
  #revision = 0;

  constructor(etcdUrl: string, front: Front) {
    this.#front = front;
    this.#etcd = new RawGrpc(etcdUrl);
    this.#limited = new RawGrpc(front.url);
    onTestFinished(() => {
      this.#etcd.close();
      this.#limited.close();
    });
  }

  static async open(tier: Tier): Promise<World> {
    const etcd = await startEtcd();
    onTestFinished(() => etcd.stop());
    const world = new World(etcd.url, await startTier(tier, etcd.url));
    await world.#write("Lease/LeaseGrant", { 1: 10_000, 2: foreignLease });
    return world;
  }

  /** Gives all keys their secrets, and deletes all others. */
  async reset(): Promise<void> {
    for (const key of (await this.state()).keys()) {
      const isStored = storedKeys.some((stored) => stored.toString("latin1") === key);
      if (!isStored) await this.#write("KV/DeleteRange", { 1: Buffer.from(key, "latin1") });
    }
    await this.touch();
  }

  async touch(): Promise<void> {
    const puts = storedKeys.map((key) => {
      const lease = key.equals(foreignKey) ? foreignLease : undefined;
      return encode({ 2: encode({ 1: key, 2: secretOf(key), 3: lease }) });
    });
    await this.#write("KV/Txn", { 2: puts });
  }

  /** Values and modification revisions by key, of the keys that are not the service's own. */
  async state(): Promise<Map<string, string>> {
    const all = encode({ 1: Buffer.of(0), 2: Buffer.of(0) });
    const { body } = await this.#etcd.unary(pathOf("Range"), all);
    const kvs = new Message(body.subarray(5)).messages(2);
    return new Map(
      kvs
        .map((kv): [string, string] => [
          kv.bytes(1).toString("latin1"),
          `${kv.number(3)} ${kv.bytes(5).toString("latin1")}`,
        ])
        .filter(([key]) => !key.includes("watchfanout")),
    );
  }

  /** All of etcd's own keys of the service. */
  async markers(): Promise<number> {
    const all = encode({ 1: "/watchfanout/", 2: "/watchfanout0", 9: true });
    const { body } = await this.#etcd.unary(pathOf("Range"), all);
    return new Message(body.subarray(5)).number(4);
  }

  async call({ caller, method, message }: KeyRequest): Promise<() => Promise<Received>> {
    const metadata = { authorization: `Bearer ${caller}` };
    const call = this.#limited.open(pathOf(method), metadata);
    call.send(message);
    if (method !== "Watch") {
      call.halfClose();
      const response = await call.response;
      const code = Number(statusOf(response).code);
      return async () => ({
        bytes: response.body,
        code,
        isRefused: code === status.PERMISSION_DENIED,
      });
    }
    // Its first answer, or its end.
    const first = await call.untilMessages(1).catch(() => []);
    const answer = first[0] === undefined ? undefined : new Message(first[0]);
    return async () => {
      call.cancel();
      const response = await call.response;
      // A caller that may read nothing gets no stream.
      const hasNone = answer === undefined && statusOf(response).code === "7";
      const isRefused = hasNone || answer?.text(6).includes("may not") === true;
      return { bytes: response.body, code: undefined, isRefused };
    };
  }

  /** Resolves when a watch of all resources has got what was written last. */
  async delivered(): Promise<void> {
    const watch = new WatchClient(this.#limited, { authorization: "Bearer root" });
    watch.create({ 1: "/r/raw/", 2: "/r/raw0", 3: this.#revision });
    await watch.until(() => watch.eventsOf().length > 0);
  }

  cached(): Promise<number> {
    return metricOf(this.#front, "watch_fanout_etcd_api_ranges_total", "cache");
  }

  async #write(method: string, fields: Parameters<typeof encode>[0]): Promise<void> {
    const response = await this.#etcd.unary(`/etcdserverpb.${method}`, encode(fields));
    expect(statusOf(response).code).toBe("0");
    const { body } = response;
    this.#revision = new Message(body.subarray(5)).message(1)?.number(3) ?? 0;
  }
}

/** The keys whose secrets are in the bytes, and which the caller may not read by any of these verbs. */
function escaped(bytes: Buffer, caller: string, shows: readonly Verb[]): string[] {
  const text = bytes.toString("latin1");
  return storedKeys
    .filter((key) => text.includes(secretOf(key)))
    .filter((key) => !shows.some((verb) => mayKey(caller, verb, key)))
    .map((key) => key.toString("latin1"));
}

/** The keys that have changed, and that none of the callers may write. */
function overwritten(before: Map<string, string>, after: Map<string, string>): string[] {
  return [...new Set([...before.keys(), ...after.keys()])].filter((key) => {
    if (before.get(key) === after.get(key)) return false;
    const bytes = Buffer.from(key, "latin1");
    const verbs: readonly Verb[] = after.has(key) ? ["put"] : ["delete"];
    return !callers.some((caller) => verbs.some((verb) => mayKey(caller, verb, bytes)));
  });
}

test.each(["root", "relay"] as const)(
  "At a %s no request of a limited caller reads or writes a key outside of its rights",
  async (tier) => {
    const world = await World.open(tier);
    const seen = { allowed: 0, refused: 0, shown: 0, written: 0, events: 0 };
    const markers = await world.markers();
    const check = async (batch: readonly KeyRequest[]): Promise<void> => {
      await world.reset();
      const before = await world.state();
      const calls = await Promise.all(batch.map((request) => world.call(request)));
      const after = await world.state();
      expect(overwritten(before, after)).toEqual([]);
      if ([...after].some(([key, value]) => before.get(key) !== value)) seen.written++;
      await world.touch();
      await world.delivered();
      const all = await Promise.all(calls.map((finish) => finish()));
      for (const [index, { bytes, code, isRefused }] of all.entries()) {
        const { caller, method, message, isAllowed, shows } = batch[index] as KeyRequest;
        const what = `${caller} ${method} ${message.toString("latin1")} ended with ${code}`;
        expect(escaped(bytes, caller, shows), what).toEqual([]);
        const hasShown = bytes.includes("<secret ");
        if (hasShown) seen.shown++;
        if (hasShown && method === "Watch") seen.events++;
        if (isRefused) expect(hasShown, what).toBe(false);
        if (isAllowed === undefined) continue;
        expect(isRefused, what).toBe(!isAllowed);
        if (isAllowed) seen.allowed++;
        else seen.refused++;
      }
    };
    await fc.assert(
      fc.asyncProperty(fc.array(keyRequest, { minLength: atOnce, maxLength: atOnce }), check),
      { numRuns: Math.ceil(requests / atOnce), endOnFailure: true },
    );
    expect(await world.markers()).toBe(markers);
    if (process.env["RIGHTS_REQUESTS"] !== undefined)
      process.stderr.write(`${JSON.stringify(seen)}\n`);
    // The test is worth nothing if no call gets anything.
    expect(seen.refused).toBeGreaterThan(requests / 5);
    expect(seen.allowed).toBeGreaterThan(requests / 50);
    expect(seen.shown).toBeGreaterThan(requests / 100);
    expect(seen.events).toBeGreaterThan(0);
    expect(seen.written).toBeGreaterThan(0);
    expect(await world.cached()).toBeGreaterThan(0);
  },
  900_000,
);
