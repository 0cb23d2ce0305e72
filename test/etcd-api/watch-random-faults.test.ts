import { generateKeyPairSync } from "node:crypto";
import type { IncomingHttpHeaders } from "node:http2";
import { expect, onTestFinished, test } from "vitest";
import { EtcdCluster } from "../faults/etcd-cluster.ts";
import { Changing, inTime } from "../faults/patience.ts";
import { ReorderingProxy } from "../faults/reordering-proxy.ts";
import { Seeded, seedOr } from "../faults/seeded.ts";
import { temporaryFiles } from "../relay/tiers.ts";
import { rounds } from "../thorough.ts";
import { type Front, metricOf, startFront, until, untilReady } from "./front.ts";
import { RawGrpc } from "./raw-grpc.ts";
import { expectedOf, ResumingStream } from "./resuming-stream.ts";
import { WatchClient } from "./watch-client.ts";

/** As latin1. Those that clients of ListWatchService can't name: the prefix itself, and what is not UTF-8. */
const rawKeys = ["/a/", "/a/\u00ff", "/a/2\u00c3", "/b/", "/b/\u00fe"];
const textKeys = ["/a/1", "/a/2", "/a/2/3", "/b/1", "/b/2", "/c/1"];
const keys = [...textKeys, ...rawKeys];
/** Empty: one key. */
const ends = ["", "", "/a0", "/a/2", "/a/3", "/b0", "/c0"];

let cluster: EtcdCluster;
let proxies: readonly ReorderingProxy[];
const random = new Seeded(seedOr(21));
const password = "password";

/** The arguments of etcd with which every member takes the tokens of every other, also after a restart. */
function jwtArgs(): readonly string[] {
  const { publicKey, privateKey } = generateKeyPairSync("rsa", {
    modulusLength: 2_048,
    publicKeyEncoding: { type: "spki", format: "pem" },
    privateKeyEncoding: { type: "pkcs8", format: "pem" },
  });
  const files = temporaryFiles({ publicKey, privateKey });
  const keys = `pub-key=${files.publicKey},priv-key=${files.privateKey}`;
  return ["--auth-token", `jwt,${keys},sign-method=RS256,ttl=1h`, "--bcrypt-cost=4"];
}

interface Started {
  readonly front: Front;
  readonly grpc: RawGrpc;
  /** The metadata of all calls. */
  readonly token: IncomingHttpHeaders;
}

/** Starts the cluster and a front of it, until the end of the test. */
async function start(hasUsers: boolean): Promise<Started> {
  const users = { rootPassword: password, args: hasUsers ? jwtArgs() : [] };
  cluster = await EtcdCluster.start({ size: 3, ...(hasUsers && users) });
  onTestFinished(() => cluster.stop());
  proxies = await Promise.all(
    cluster.members.map(({ url }) => ReorderingProxy.to(url, random.fork())),
  );
  onTestFinished(async () => {
    for (const proxy of proxies) await proxy.close();
  });
  const front = await startFront(
    proxies.map(({ url }) => url),
    {
      resource: ["a=/a/", "b=/b/"],
      "event-window-max-events": ["40"],
      "event-window-min-events": ["1"],
      ...(hasUsers && {
        "etcd-username": ["root"],
        "etcd-password": [password],
        "watch-fanout-api": ["off"],
      }),
    },
  );
  onTestFinished(() => front.stop());
  const grpc = new RawGrpc(front.url);
  onTestFinished(() => grpc.close());
  await untilReady(front);
  return {
    front,
    grpc,
    token: hasUsers ? { token: await cluster.members[0]?.authenticate() } : {},
  };
}

const base64 = (key: string): string => Buffer.from(key, "latin1").toString("base64");

/** Writes random keys, one write after the other. */
class Writer {
  #isOver = false;
  #count = 0;
  readonly #changing = new Changing();
  readonly #done: Promise<void>;
  readonly #random = random.fork();

  constructor() {
    this.#done = this.#write();
  }

  async after(writes: number): Promise<void> {
    const until = this.#count + writes;
    await inTime(
      () => `${writes} writes`,
      this.#changing.until(() => this.#count >= until),
    );
  }

  async stop(): Promise<void> {
    this.#isOver = true;
    await this.#done;
  }

  async #write(): Promise<void> {
    while (!this.#isOver) {
      const key = this.#random.pick(keys);
      const kind = this.#random.pickWeighted({ put: 6, remove: 2, several: 1 });
      const value = base64(`${this.#count}`);
      if (kind === "put") await cluster.call("kv/put", { key: base64(key), value });
      else if (kind === "remove") await cluster.call("kv/deleterange", { key: base64(key) });
      else {
        const success = [...new Set([key, this.#random.pick(keys)])].map((each) => ({
          requestPut: { key: base64(each), value },
        }));
        await cluster.call("kv/txn", { success });
      }
      this.#count++;
      this.#changing.changed();
    }
  }
}

/** Creates a watch of any keys, from now on or from any revision up to the newest. */
function createAny(stream: ResumingStream, newest: number): void {
  const key = random.pick(keys);
  stream.create({
    key,
    end: random.pick(ends.filter((end) => end === "" || end > key)),
    start: random.chance(0.4) ? 0 : random.between(2, newest),
    filters: random.pick([[], [], [], [0], [1]]),
    previous: random.chance(0.5),
  });
}

const faults: Readonly<Record<string, (writer: Writer) => Promise<void>>> = {
  "a member killed and restarted": async (writer) => {
    await cluster.kill(random.pick(cluster.members));
    await writer.after(15);
    await cluster.heal();
  },
  "the leader moved": () => cluster.moveLeader(),
  "the leader killed and restarted": async (writer) => {
    await cluster.kill(await cluster.leader());
    await writer.after(15);
    await cluster.heal();
  },
  "connections to etcd cut": async () => {
    for (const proxy of proxies) proxy.cut();
  },
};

test.each([
  ["", false],
  [" with users of etcd", true],
] as const)(
  "Random watches that are resumed%s deliver each event once, while members restart, the leader moves and etcd reorders responses",
  {
    timeout: 300_000,
  },
  async (_, hasUsers) => {
    const { front, grpc, token } = await start(hasUsers);
    const writer = new Writer();
    const opening = { open: (path: string) => grpc.open(path, token) };
    const streams = Array.from({ length: 6 }, () => new ResumingStream(opening));
    const requesting = setInterval(() => {
      for (const stream of streams) if (random.chance(0.5)) stream.requestProgress();
    }, 20);
    try {
      const names = Object.keys(faults);
      for (const name of Array.from({ length: rounds(2, 1) }, () => names).flat()) {
        const newest = await cluster.revision();
        for (const stream of streams) {
          createAny(stream, newest);
          stream.requestProgress();
          createAny(stream, newest);
        }
        await writer.after(30);
        await faults[name]?.(writer);
        await writer.after(15);
      }
      await writer.stop();
      await cluster.call("kv/put", { key: base64("/d"), value: "" });
      const last = await cluster.revision();
      const isDone = (): boolean =>
        streams.every(({ watches }) => watches.every(({ next }) => next > last));
      await inTime(() => "all watches to have progress", until(isDone));
      const direct = new RawGrpc(cluster.members[0]?.url ?? "");
      const truth = new WatchClient(direct, token);
      truth.create({ 1: Buffer.of(0), 2: Buffer.of(0), 3: 1, 6: true });
      await truth.until(() => Number(truth.eventsOf().at(-1)?.kv.mod ?? 0) >= last);
      const all = truth.eventsOf();
      direct.close();
      for (const { watches, wrong } of streams) {
        expect(wrong).toEqual([]);
        for (const watch of watches) {
          expect(watch.events, JSON.stringify(watch.wish)).toEqual(expectedOf(watch, all));
        }
      }
      expect(streams.some(({ resumed }) => resumed > 0)).toBe(true);
      expect(await metricOf(front, "watch_fanout_etcd_api_watches", "cache")).toBeGreaterThan(10);
    } finally {
      clearInterval(requesting);
      await writer.stop();
      for (const stream of streams) stream.close();
    }
  },
);
