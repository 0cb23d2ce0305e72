import { setImmediate as nextTurn } from "node:timers/promises";
import { pino } from "pino";
import { describe, expect, onTestFinished, test } from "vitest";
import { Flood } from "../../../bench/flood-load.ts";
import { resource } from "../../../bench/servers.ts";
import { systemClock } from "../../../src/base/clock.ts";
import { Cacher } from "../../../src/cacher/cacher.ts";
import { callerOf } from "../../../src/server/limits/callers.ts";
import {
  type RunningServer,
  type ServedResource,
  startServer,
} from "../../../src/server/server.ts";
import { MemoryStorage } from "../../../src/storage/memory/memory-storage.ts";
import { listWatchService } from "../../../src/wire/services.ts";
import { RawConnection } from "../http2/raw-connection.ts";
import { TestClient } from "../test-client.ts";
import { as, behindProxy, forwarded, tokensOf } from "./tokens.ts";

const { Get, List, Watch } = listWatchService;
const connections = 20;

/** A Cacher whose reads and watches are counted by their caller, in the order in which they are begun. */
class Counted {
  readonly order: string[] = [];

  note({ owner }: { readonly owner?: object | undefined }): void {
    this.order.push(owner === undefined ? "" : (callerOf(owner)?.title ?? ""));
  }

  /** Number of calls of an identity that were begun after the first `from` of all. */
  countOf(name: string, from = 0): number {
    return this.order.slice(from).filter((title) => title === `the identity "${name}"`).length;
  }
}

interface Flooded {
  readonly server: RunningServer;
  readonly counted: Counted;
}

/** Serves with the system's clock, since time slices depend on it. */
async function serveCounted(authenticators = tokensOf("flooder", "honest")): Promise<Flooded> {
  const logger = pino({ level: "silent" });
  const storage = new MemoryStorage({ clock: systemClock });
  const cacher = new Cacher({ storage, clock: systemClock, logger, name: resource });
  cacher.start();
  while (!cacher.ready) await nextTurn();
  const counted = new Counted();
  const served: ServedResource = {
    get currentHistoryId() {
      return cacher.currentHistoryId;
    },
    get ready() {
      return cacher.ready;
    },
    select: (labels, fields) => cacher.select(labels, fields),
    reach: (request) => {
      counted.note(request);
      return cacher.reach(request);
    },
    get: (request, reached) => cacher.get(request, reached),
    list: (request, reached) => cacher.list(request, reached),
    watch: (request) => {
      counted.note(request);
      return cacher.watch(request);
    },
    put: (request) => cacher.put(request),
    delete: (request) => cacher.delete(request),
    onReadyChange: (listener) => cacher.onReadyChange(listener),
    drain: () => cacher.drain(),
  };
  const server = await startServer({
    resources: new Map([[resource, served]]),
    listen: { host: "127.0.0.1", port: 0 },
    authenticators,
    clock: systemClock,
    logger,
  });
  onTestFinished(async () => {
    await server.drain(0);
    await cacher.close();
  });
  return { server, counted };
}

const bearer = (name: string) => ({ authorization: `Bearer ${name}` });

describe("While one identity floods the server from 20 connections", () => {
  test.each([
    ["Gets", Get.path, Get.requestSerialize({ resource, key: "a" })],
    ["Lists", List.path, List.requestSerialize({ resource })],
    ["watches", Watch.path, Watch.requestSerialize({ resource })],
  ])("the %s of another are begun as often as its own, in turns", async (_what, path, request) => {
    const { server, counted } = await serveCounted();
    const greet = Get.requestSerialize({ resource, key: "a" });
    const connect = async (name: string): Promise<RawConnection> => {
      const connection = new RawConnection(server.port);
      await connection.call(Get.path, greet, bearer(name)).drain().ended;
      return connection;
    };
    const flooding: RawConnection[] = [];
    for (let i = 0; i < connections; i++) flooding.push(await connect("flooder"));
    const honest = await connect("honest");
    const from = counted.order.length;
    const each = 40;
    for (const connection of flooding) {
      for (let i = 0; i < each; i++) connection.call(path, request, bearer("flooder")).drain();
    }
    for (let i = 0; i < each; i++) honest.call(path, request, bearer("honest")).drain();
    while (counted.countOf("honest", from) < each) await nextTurn();
    // Of 800. A few begin before those of the other have been read.
    expect(counted.countOf("flooder", from)).toBeLessThan(each + 60);
  });

  test("in another process, each call of another waits for a bounded number of its own", async () => {
    const { server, counted } = await serveCounted();
    const flood = new Flood();
    const client = new TestClient(server.port);
    const honest = as(client, "honest");
    onTestFinished(async () => {
      client.close();
      await flood.stop();
    });
    const watch = honest.watch({ resource });
    await watch.next();
    const fields = Object.entries(bearer("flooder"));
    await flood.start(`http://127.0.0.1:${server.port}`, fields, connections);
    while (counted.countOf("flooder") < 100) await nextTurn();
    const waited: number[] = [];
    const timed = async (call: Promise<unknown>): Promise<void> => {
      const before = counted.order.length;
      await call;
      waited.push(counted.countOf("flooder", before));
    };
    for (let i = 0; i < 8; i++) {
      await timed(honest.list({ resource }));
      const put = honest.put({ resource, key: `${i}`, value: Buffer.of(i) });
      await timed(Promise.all([put, watch.next()]));
    }
    const median = waited.toSorted((a, b) => a - b)[waited.length / 2];
    // A call takes about ten turns of the event loop, in each of which at most 12 calls of the other begin.
    expect(median).toBeLessThan(100);
    const { lost } = await flood.count();
    expect(lost).toBeLessThan(connections * 100);
    watch.cancel();
  });
});

test.each([
  ["Gets", Get.path, Get.requestSerialize({ resource, key: "a" })],
  ["watches", Watch.path, Watch.requestSerialize({ resource })],
])(
  "While one identity floods the connection of a proxy, the %s of another on it are begun in turns",
  async (...row) => {
    const [, path, request] = row;
    const { server, counted } = await serveCounted(behindProxy());
    const proxy = new RawConnection(server.port);
    const greet = Get.requestSerialize({ resource, key: "a" });
    for (const name of ["flooder", "honest"]) {
      await proxy.call(Get.path, greet, forwarded(name)).drain().ended;
    }
    const from = counted.order.length;
    // In one write, and few enough to be read in one turn, whatever writes the responses.
    const [many, few] = [48, 16];
    for (let i = 0; i < many; i++) proxy.call(path, request, forwarded("flooder")).drain();
    for (let i = 0; i < few; i++) proxy.call(path, request, forwarded("honest")).drain();
    while (counted.countOf("honest", from) < few) await nextTurn();
    // At most 16 start as they arrive, and then as many as of the other.
    expect(counted.countOf("flooder", from)).toBeLessThanOrEqual(16 + few);
  },
);
