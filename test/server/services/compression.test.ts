import { afterEach, beforeEach, describe, expect, it } from "vitest";
import type { CompressionOptions } from "../../../src/server/server.ts";
import type { WatchRequest } from "../../../src/wire/generated/watchfanout/v1/WatchRequest.ts";
import type { WatchResponse__Output } from "../../../src/wire/generated/watchfanout/v1/WatchResponse.ts";
import { listWatchService } from "../../../src/wire/services.ts";
import { podValue } from "../../pod-value.ts";
import { EncodedClient, type Sent } from "../encoded-client.ts";
import { type Served, serveThings } from "../served.ts";

const { Get, List, Subscribe, Watch } = listWatchService;
const resource = "things";
const objects = 1_200;

let served: Served;
const clients: EncodedClient[] = [];

afterEach(() => {
  for (const client of clients.splice(0)) client.close();
});

/** Serves pods of about 1 KiB. */
async function servePods(compression: CompressionOptions | undefined): Promise<void> {
  served = await serveThings({ server: { compression } });
  await served.storage.txn(
    Array.from({ length: objects }, (_, i) => ({
      ...{ type: "put", key: `pods/${String(i).padStart(5, "0")}`, value: podValue(i) },
    })),
  );
  // By a client that accepts nothing, so that nothing is compressed for it.
  await clientOf(undefined).unary(List, { resource, page_size: 1 });
}

function clientOf(accepted: string | undefined): EncodedClient {
  const client = new EncodedClient(served.server.port, accepted);
  clients.push(client);
  return client;
}

async function initialStateOf(accepted: string | undefined, more: WatchRequest = {}) {
  const call = clientOf(accepted).open(Watch, { ...watchState, ...more });
  const all = await call.until(({ initial_events_end }) => initial_events_end);
  return { all, headers: await call.headers };
}

const watchState: WatchRequest = { resource, prefix: "", send_initial_events: true };

function eventsOf(all: readonly Sent<WatchResponse__Output>[]) {
  return all.flatMap(({ message }) => message.events);
}

function sizes(all: readonly Sent<unknown>[]): { sent: number; plain: number } {
  const sum = (sizeOf: (sent: Sent<unknown>) => number): number =>
    all.reduce((bytes, sent) => bytes + sizeOf(sent), 0);
  return { sent: sum(({ sentBytes }) => sentBytes), plain: sum(({ plainBytes }) => plainBytes) };
}

describe.each(["gzip", "zstd"] as const)("With %s, for a client that accepts it", (encoding) => {
  beforeEach(() => servePods({ encodings: [encoding] }));

  it("an initial state is the same as without, at a fifth of the bytes", async () => {
    const plain = await initialStateOf(undefined);
    const { all, headers } = await initialStateOf(encoding);
    expect(headers["grpc-encoding"]).toBe(encoding);
    expect(eventsOf(all)).toEqual(eventsOf(plain.all));
    expect(all[0]?.message.history_id).toBe(plain.all[0]?.message.history_id);
    expect(all.at(-1)?.message.revision).toBe(plain.all.at(-1)?.message.revision);
    const { sent, plain: before } = sizes(all);
    expect(before).toBe(sizes(plain.all).sent);
    expect(sent).toBeLessThan(before / 5);
    expect(plain.headers["grpc-encoding"]).toBe("identity");
    expect(plain.all.some(({ isCompressed }) => isCompressed)).toBe(false);
  });

  it("a List is the same, at a fifth of the bytes, also a page of it", async () => {
    for (const page_size of [0, 700]) {
      const [plain, compressed] = await Promise.all(
        [undefined, encoding].map((accepted) =>
          clientOf(accepted).unary(List, { resource, page_size }),
        ),
      );
      expect(compressed?.message).toEqual(plain?.message);
      expect([plain?.isCompressed, compressed?.isCompressed]).toEqual([false, true]);
      expect(compressed?.sentBytes).toBeLessThan((plain?.sentBytes ?? 0) / 5);
    }
  });

  it("a watch of a Subscribe stream is the same, at a fifth of the bytes", async () => {
    const [plain, compressed] = await Promise.all(
      [undefined, encoding].map(async (accepted) => {
        const call = clientOf(accepted).open(Subscribe, { add: { id: 7, watch: watchState } });
        return call.until(({ watch }) => watch?.initial_events_end === true);
      }),
    );
    const messagesOf = (all = plain) => all?.map(({ message }) => message);
    expect(messagesOf(compressed)).toEqual(messagesOf(plain));
    expect(sizes(compressed ?? []).sent).toBeLessThan(sizes(plain ?? []).sent / 5);
  });

  it("a batch of events of 4 KiB or more is compressed, a smaller one is not", async () => {
    const call = clientOf(encoding).open(Watch, { resource, prefix: "new/" });
    await call.next();
    await served.storage.put({ key: "new/small", value: Buffer.alloc(4_000, "a") });
    const small = await call.next();
    expect([small.isCompressed, small.plainBytes < 4_096]).toEqual([false, true]);
    await served.storage.put({ key: "new/large", value: Buffer.alloc(4_100, "a") });
    const large = await call.next();
    expect([large.isCompressed, large.sentBytes < 200]).toEqual([true, true]);
    expect(large.message.events[0]?.object?.value).toEqual(Buffer.alloc(4_100, "a"));
    expect(large.message.revision).toBe(large.message.events[0]?.object?.mod_revision);
  });

  it("what many clients share is compressed once; each view is compressed for itself", async () => {
    await Promise.all(Array.from({ length: 20 }, () => initialStateOf(encoding)));
    const once = served.server.stats().compression;
    // The state has chunks of 256 KiB, and ends in a smaller one.
    expect(once?.results.compressed).toBeLessThan(10);
    expect(once?.sentPlainBytes).toBeGreaterThan(20 * objects * 900);
    const keys = { view: "VIEW_KEYS" } as const;
    const views = await Promise.all(
      Array.from({ length: 20 }, () => initialStateOf(encoding, keys)),
    );
    const both = served.server.stats().compression;
    expect(both?.results.compressed).toBe((once?.results.compressed ?? 0) + 1);
    const plain = await initialStateOf(undefined, keys);
    for (const { all } of views) expect(eventsOf(all)).toEqual(eventsOf(plain.all));
  });
});

describe("A client that accepts no encoding of the server", () => {
  it.each(["identity", "deflate", undefined])("gets nothing compressed: %s", async (accepted) => {
    await servePods({ encodings: ["gzip", "zstd"] });
    const { all, headers } = await initialStateOf(accepted);
    expect(headers["grpc-encoding"]).toBe("identity");
    expect(all.some(({ isCompressed }) => isCompressed)).toBe(false);
    expect((await clientOf(accepted).unary(List, { resource })).isCompressed).toBe(false);
    expect(served.server.stats().compression?.results.compressed).toBe(0);
  });
});

it("Without the option nothing is compressed", async () => {
  await servePods(undefined);
  const { all, headers } = await initialStateOf("gzip");
  expect(headers["grpc-encoding"]).toBe("identity");
  expect(all.some(({ isCompressed }) => isCompressed)).toBe(false);
  expect(served.server.stats().compression).toBeUndefined();
});

it("grpc-js, which accepts gzip, reads all of it", async () => {
  await servePods({ encodings: ["gzip"] });
  const plain = await clientOf(undefined).unary(List, { resource });
  expect(await served.client.list({ resource })).toEqual(plain.message);
  const watching = served.client.watch(watchState);
  const responses = await watching.until(({ initial_events_end }) => initial_events_end);
  const { all } = await initialStateOf(undefined);
  expect(responses.flatMap(({ events }) => events)).toEqual(eventsOf(all));
  expect(served.server.stats().compression?.sentBytes).toBeGreaterThan(0);
  const key = "pods/00001";
  expect((await served.client.get({ resource, key })).object?.value).toEqual(podValue(1));
  expect((await clientOf("gzip").unary(Get, { resource, key })).isCompressed).toBe(false);
  watching.cancel();
});

it("A response is sent as it is if compression takes too long, and nothing is lost or repeated", async () => {
  await servePods({ encodings: ["gzip"] });
  const call = clientOf("gzip").open(Watch, watchState);
  const reading = call.until(({ initial_events_end }) => initial_events_end);
  // As if each compression took 100 ms.
  const timer = setInterval(() => served.clock.advance(100), 0);
  const all = await reading.finally(() => clearInterval(timer));
  expect(eventsOf(all)).toHaveLength(objects);
  expect(eventsOf(all)).toEqual(eventsOf((await initialStateOf(undefined)).all));
});
