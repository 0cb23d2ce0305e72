import { gzipSync } from "node:zlib";
import { type ServiceError, status } from "@grpc/grpc-js";
import { describe, expect, onTestFinished, test } from "vitest";
import { AttributeReader } from "../../../src/codec/attribute-reader.ts";
import { JsonCodec } from "../../../src/codec/json-codec.ts";
import { retryDelayMs } from "../../../src/wire/call-error.ts";
import type { WatchRequest } from "../../../src/wire/generated/watchfanout/v1/WatchRequest.ts";
import { healthService, listWatchService } from "../../../src/wire/services.ts";
import { silent } from "../../cacher/cached-store.ts";
import { heldBytes } from "../../heap.ts";
import { framed, type RawCall, RawConnection } from "../http2/raw-connection.ts";
import { type Served, serveThings } from "../served.ts";
import { TestClient } from "../test-client.ts";
import { ManualTimers } from "./manual-timers.ts";

const { Watch } = listWatchService;
const resource = "things";
const mebibyte = 1024 ** 2;
const kibibyte = 1024;

function serveSelectable(limits: object = {}): Promise<Served> {
  const attributes = new AttributeReader(new JsonCodec(), new ManualTimers(), silent);
  return serveThings({ cacher: { attributes }, server: { limits } });
}

/** A text of this length that is unique to the number. */
function long(length: number, i: number): string {
  return `${i}/`.padEnd(length, "x");
}

/** A shard of 1,024 ranges that is unique to the number. */
function manyRanges(i: number): { ranges: { first: string; last: string }[] } {
  const ranges = Array.from({ length: 1_024 }, (_, j) => {
    const first = (BigInt(j) << 54n) + BigInt(i);
    return { first: `${first}`, last: `${first + 9n}` };
  });
  return { ranges };
}

const compressed = (message: Uint8Array): Buffer => {
  const frame = framed(gzipSync(message));
  frame[0] = 1;
  return frame;
};

const ways = [
  ["plain", {}, framed],
  ["compressed", { "grpc-encoding": "gzip" }, compressed],
] as const;

describe.each(ways)("Of a request sent %s", (_name, headers, frame) => {
  /** Opens streams of one kind, one after another, and returns the memory that each makes the process retain. */
  async function keptBy(
    path: string,
    count: number,
    message: (i: number) => Uint8Array,
  ): Promise<number> {
    const served = await serveSelectable();
    const connection = new RawConnection(served.server.port);
    const open = async (i: number): Promise<RawCall> => {
      const call = connection.open(path, headers);
      call.stream.end(frame(message(i)));
      await call.messages().next();
      return call;
    };
    for (let i = 0; i < 3; i++) await open(count + i);
    const before = heldBytes();
    const calls: RawCall[] = [];
    for (let i = 0; i < count; i++) calls.push(await open(i));
    expect(served.server.openStreams).toBe(count + 3);
    return (heldBytes() - before) / calls.length;
  }

  test("only what the stream needs is retained, once", async () => {
    const ofPrefix = await keptBy(Watch.path, 8, (i) =>
      Watch.requestSerialize({ resource, prefix: long(mebibyte, i) }),
    );
    expect(ofPrefix).toBeLessThan(1.2 * mebibyte);
    const ofKey = await keptBy(Watch.path, 8, (i) =>
      Watch.requestSerialize({ resource, key: long(mebibyte, i) }),
    );
    expect(ofKey).toBeLessThan(1.2 * mebibyte);
    const label_selector = Array.from({ length: 1_000 }, (_, j) => `k${j}=`.padEnd(60, "v")).join();
    const ofSelector = await keptBy(Watch.path, 25, () =>
      Watch.requestSerialize({ resource, label_selector }),
    );
    expect(ofSelector).toBeLessThan(32 * kibibyte);
  });

  test("nothing is retained for a health watch, of a known or unknown service", async () => {
    const serialize = healthService.Watch.requestSerialize;
    const kept = await keptBy(healthService.Watch.path, 16, (i) =>
      serialize({ service: long(mebibyte, i) }),
    );
    expect(kept).toBeLessThan(256 * kibibyte);
  });
});

/** A client that opens one watch after another on one connection. */
class Opener {
  readonly #client: TestClient;
  /** The end of each watch, in the order of their opening. */
  readonly ended: Promise<Error>[] = [];

  constructor({ server }: Served) {
    this.#client = new TestClient(server.port);
    onTestFinished(() => this.#client.close());
  }

  /** Resolves when the watch is open or has ended. */
  async open(request: WatchRequest): Promise<void> {
    const watch = this.#client.watch({ resource, ...request });
    this.ended.push(watch.ended);
    await watch.next().catch(() => {});
    // Reads continuously, since a client gets the end of a stream only if it reads.
    watch.next().catch(() => {});
  }
}

describe("The requests that the streams of one connection retain", () => {
  test("are bounded in bytes; above the bound the stream that retains most is ended", async () => {
    const served = await serveSelectable({ maxRetainedRequestBytesPerConnection: 100_000 });
    const { server } = served;
    const opener = new Opener(served);
    await opener.open({ prefix: long(30_000, 0) });
    await opener.open({ prefix: long(50_000, 1) });
    expect(server.openStreams).toBe(2);
    await opener.open({ key: long(40_000, 2) });
    expect(server.openStreams).toBe(2);
    const error = await opener.ended[1];
    expect(error).toMatchObject({ reason: "TOO_MANY_STREAMS", metadata: { limit: "100000" } });
    const cause = error?.cause as ServiceError;
    expect(cause.code).toBe(status.RESOURCE_EXHAUSTED);
    expect(retryDelayMs(cause)).toBeGreaterThan(0);
  });

  test("never exceed the bound, in any field", async () => {
    const served = await serveSelectable({ maxRetainedRequestBytesPerConnection: mebibyte });
    const opener = new Opener(served);
    for (let i = 0; i < 40; i++) {
      const values = Array.from({ length: 2_000 }, (_, j) => `v${i}x${j}`);
      await opener.open({ label_selector: `a in (${values.join()})` });
    }
    expect(served.server.openStreams).toBeLessThan(20);
    expect(served.cacher.stats().filters).toBe(served.server.openStreams);
  });

  test("count the ranges of a shard, as they are retained", async () => {
    const served = await serveSelectable({ maxRetainedRequestBytesPerConnection: mebibyte });
    const opener = new Opener(served);
    const before = heldBytes();
    for (let i = 0; i < 40; i++) await opener.open({ shard: manyRanges(i) });
    expect(served.server.openStreams).toBeLessThan(10);
    expect(served.server.openStreams).toBeGreaterThan(5);
    expect(heldBytes() - before).toBeLessThan(2 * mebibyte);
  });

  test("are not counted after the streams have ended", async () => {
    const served = await serveSelectable({ maxRetainedRequestBytesPerConnection: 100_000 });
    const { client, recorder } = served;
    for (let i = 0; i < 5; i++) {
      const watch = client.watch({ resource, prefix: long(80_000, i) });
      await watch.next();
      watch.cancel();
      await recorder.untilEnded(i + 1);
    }
    expect(recorder.calls.map(({ code }) => code)).toEqual(Array(5).fill("CANCELLED"));
  });

  test("are not held after the streams have ended, nor those of streams that were refused", async () => {
    const maxRetainedRequestBytesPerConnection = 21 * mebibyte;
    const { server, recorder } = await serveSelectable({ maxRetainedRequestBytesPerConnection });
    let opened = 0;
    /** 20 streams with prefixes of 2 MiB, of which half are ended for what all retain; then the client goes. */
    const openAndClose = async (): Promise<void> => {
      const connection = new RawConnection(server.port);
      for (let i = 0; i < 20; i++) {
        const prefix = long(2 * mebibyte - 100, opened++);
        const call = connection.call(Watch.path, Watch.requestSerialize({ resource, prefix }));
        await call.answered;
        call.drain();
      }
      expect(server.openStreams).toBe(10);
      connection.drop();
      await recorder.untilEnded(opened);
    };
    await openAndClose();
    const before = heldBytes();
    await openAndClose();
    expect(server.openStreams).toBe(0);
    // The engine may still refer to the last one or two. All have 40 MiB.
    expect(heldBytes() - before).toBeLessThan(5 * mebibyte);
  });

  test("are refused at once if one exceeds the bound alone", async () => {
    const served = await serveSelectable({ maxRetainedRequestBytesPerConnection: 100_000 });
    const watch = served.client.watch({ resource, prefix: long(200_000, 0) });
    expect((await watch.ended).message).toMatch(/above the limit of this server, 100000 bytes/);
    expect(served.server.openStreams).toBe(0);
    expect(served.cacher.stats().filters).toBe(0);
  });

  test("count together with those of other connections; the one that retains most loses streams", async () => {
    const { server } = await serveSelectable({ maxRetainedRequestBytes: 200_000 });
    const [greedy, modest] = [new RawConnection(server.port), new RawConnection(server.port)];
    const ended: string[] = [];
    const open = async (connection: RawConnection, name: string, length: number): Promise<void> => {
      const prefix = long(length, ended.length);
      const call = connection.call(Watch.path, Watch.requestSerialize({ resource, prefix }));
      await call.answered;
      void call.drain().ended.then(({ code }) => ended.push(`${name} ${code}`));
    };
    await open(modest, "modest", 10_000);
    for (let i = 0; i < 4; i++) await open(greedy, "greedy", 40_000);
    expect(server.openStreams).toBe(5);
    await open(modest, "modest", 50_000);
    expect(server.openStreams).toBe(4);
    while (ended.length < 2) await new Promise((resolve) => setImmediate(resolve));
    expect(ended).toEqual(["greedy 8", "greedy 8"]);
  });
});

describe("The headers of a call", () => {
  test.each([
    ["a name that no host has", { ":authority": "a".repeat(1_000) }],
    ["more than any library sends", { metadata: "m".repeat(17_000) }],
  ])("are refused with %s, since the stream retains them", async (_, headers) => {
    const served = await serveThings();
    const connection = new RawConnection(served.server.port);
    for (const path of [Watch.path, healthService.Watch.path]) {
      const { reset } = await connection.open(path, headers).drain().ended;
      expect(reset).toBe(11);
    }
    // Other calls are not affected.
    expect((await served.client.list({ resource })).items).toEqual([]);
  });

  test("may be as large as a long token", async () => {
    const served = await serveThings();
    const headers = { authorization: `Bearer ${"t".repeat(12_000)}` };
    const call = new RawConnection(served.server.port).call(
      Watch.path,
      Watch.requestSerialize({ resource }),
      headers,
    );
    await call.messages().next();
    expect(served.server.openStreams).toBe(1);
  });
});
