import { join } from "node:path";
import { expect, onTestFinished, test } from "vitest";
import { systemClock } from "../../src/base/clock.ts";
import { type Askable, UpstreamCall } from "../../src/etcd/client/upstream-call.ts";
import type { UpstreamStream } from "../../src/etcd/client/upstream-connection.ts";
import { SqliteJournal } from "../../src/storage/journal/sqlite-journal.ts";
import { MemoryStore } from "../../src/storage/memory/memory-store.ts";
import { frameOf } from "../../src/wire/encode.ts";
import { startEmbedded, untilReady } from "../etcd-api/front.ts";
import { RawGrpc, statusOf } from "../etcd-api/raw-grpc.ts";
import { WatchClient } from "../etcd-api/watch-client.ts";
import { encode } from "../foreign/protobuf.ts";
import { testFolder } from "../storage/journal/opened.ts";
import { type Served, serveStore } from "./served-store.ts";

const mib = 1024 ** 2;
const watchPath = "/etcdserverpb.Watch/Watch";
const putPath = "/etcdserverpb.KV/Put";
const everything = { 1: Buffer.of(0), 2: Buffer.of(0) };
const fromTheBeginning = encode({ 1: encode({ ...everything, 3: 1 }) });

/** What a stream may hold: what there is no room behind, a batch, and a response within it. */
const maxUnreadBytes = 64 * 1024 + 2 * 256 * 1024;

function open({ connection }: Served, path: string, message: Buffer): UpstreamStream {
  const call = connection.request({ ":path": path });
  call.write(framed(message));
  return call;
}

function framed(message: Buffer): Buffer {
  return Buffer.concat(frameOf(message));
}

/** Reads a call. Returns what has arrived. */
function read(call: UpstreamStream): { bytes: number; hasEnded: boolean } {
  const received = { bytes: 0, hasEnded: false };
  call.on("data", ({ length }) => {
    received.bytes += length;
  });
  call.on("close", () => {
    received.hasEnded = true;
  });
  return received;
}

function nextTurn(): Promise<void> {
  return new Promise((resolve) => setImmediate(resolve));
}

async function writeHistory({ store }: Served, bytes: number): Promise<void> {
  const value = Buffer.alloc(64 * 1024);
  for (let i = 0; i * value.length < bytes; i++) {
    await store.update((draft) => draft.put(`a${i % 16}`, value, 0n));
  }
}

test("200 unread watches of the past delay no put and no other watch, and hold little", async () => {
  const served = await serveStore({ maxLogBytes: 256 * mib });
  onTestFinished(() => served.close());
  await writeHistory(served, 64 * mib);
  const watch = read(open(served, watchPath, encode({ 1: encode({ 1: "b" }) })));
  while (watch.bytes === 0) await nextTurn();
  const created = watch.bytes;

  const unread = Array.from({ length: 200 }, () => open(served, watchPath, fromTheBeginning));
  const held = (): number => unread.reduce((sum, each) => sum + each.readableLength, 0);
  let [before, most] = [0, 0];
  const turn = async (): Promise<number> => {
    await nextTurn();
    const now = held();
    most = Math.max(most, now - before);
    const more = now - before;
    before = now;
    expect(now).toBeLessThanOrEqual(unread.length * maxUnreadBytes);
    return more;
  };
  // While they are being filled.
  while (held() < mib) await turn();
  const put = read(open(served, putPath, encode({ 1: "b", 2: "v" })));
  let turns = 0;
  for (; !put.hasEnded || watch.bytes === created; turns++) await turn();
  expect(turns).toBeLessThanOrEqual(5);
  expect(held()).toBeLessThan(40 * mib);

  while (held() < unread.length * 64 * 1024) await turn();
  for (let idle = 0; idle < 100; idle++) if ((await turn()) > 0) idle = 0;
  // All of them at once would be 50 MiB.
  expect(most).toBeLessThan(25 * mib);
  const full = held();
  await writeHistory(served, mib);
  for (let i = 0; i < 10; i++) await turn();
  expect(held()).toBe(full);
});

test("An unread stream has one chunk of the journal read, however many watches of the past it has", async () => {
  const journal = await SqliteJournal.open(join(testFolder(), "data"), { clock: systemClock });
  let reads = 0;
  const changesAfter = journal.changesAfter.bind(journal);
  journal.changesAfter = (request) => {
    reads++;
    return changesAfter(request);
  };
  const options = { clock: systemClock, journal, maxLogBytes: 64 * 1024 };
  const store = await MemoryStore.open({
    ...options,
    onFault: (error) => {
      throw error;
    },
  });
  const served = await serveStore({}, undefined, store);
  onTestFinished(() => served.close());
  await writeHistory(served, 1.5 * mib);

  const unread = open(served, watchPath, fromTheBeginning);
  for (let i = 1; i < 30; i++) unread.write(framed(fromTheBeginning));
  while (unread.readableLength < 64 * 1024) await nextTurn();
  // Reads take turns by watch, so the others would be done as well.
  const other = read(open(served, watchPath, fromTheBeginning));
  while (other.bytes < 1.5 * mib) await nextTurn();
  expect(reads).toBeGreaterThan(5);
  expect(reads).toBeLessThan(15);
  expect(unread.readableLength).toBeLessThanOrEqual(maxUnreadBytes);
  // All of them are read once there is room.
  const rest = read(unread);
  while (rest.bytes < 30 * 1.5 * mib) await nextTurn();
});

test("A watch of the past without events lets the next one of its stream read the journal", async () => {
  const journal = await SqliteJournal.open(join(testFolder(), "data"), { clock: systemClock });
  const onFault = (error: Error): never => {
    throw error;
  };
  const options = { clock: systemClock, journal, onFault, maxLogBytes: 64 * 1024 };
  const served = await serveStore({}, undefined, await MemoryStore.open(options));
  onTestFinished(() => served.close());
  await writeHistory(served, mib);
  const call = open(served, watchPath, encode({ 1: encode({ 1: "b", 3: 1 }) }));
  call.write(framed(fromTheBeginning));
  const received = read(call);
  while (received.bytes < mib) await nextTurn();
});

test("What has come for a caller that does not read it is counted with the call", async () => {
  const served = await serveStore();
  onTestFinished(() => served.close());
  await writeHistory(served, mib);
  const upstream: Askable = { whenAvailable: ({ open }) => open(served.connection) };
  const call = new UpstreamCall(
    upstream,
    { ":path": watchPath },
    {
      onMessage: () => call.pause(),
      onEnd: () => {},
    },
  );
  call.send(fromTheBeginning);
  while (call.receivedBytes <= 64 * 1024) await nextTurn();
  for (let turns = 0; turns < 100; turns++) await nextTurn();
  expect(call.receivedBytes).toBeLessThanOrEqual(maxUnreadBytes);
});

test("200 streams of clients that read nothing delay no put and no watch of another client", async () => {
  const front = await startEmbedded({ resource: ["others=/others/"] });
  onTestFinished(() => front.stop());
  await untilReady(front);
  const clientOf = (): RawGrpc => {
    const client = new RawGrpc(front.url);
    onTestFinished(() => client.close());
    return client;
  };
  const client = clientOf();
  const put = async (key: string, value: Buffer): Promise<void> => {
    const response = await client.unary(putPath, encode({ 1: key, 2: value }));
    expect(statusOf(response)).toEqual({ code: "0", message: "" });
  };
  for (let i = 0; i < 64; i++) await put("a", Buffer.alloc(mib));
  const watch = new WatchClient(client);
  watch.create({ 1: "b" });
  await watch.until((responses) => responses.length === 1);
  const others = Array.from({ length: 4 }, clientOf);
  for (let i = 0; i < 200; i++) {
    const unread = new WatchClient(others[i % others.length] as RawGrpc);
    unread.call.stream.pause();
    unread.create({ ...everything, 3: 1 });
  }
  for (let i = 1; i <= 10; i++) {
    await put("b", Buffer.from("v"));
    await watch.until(() => watch.eventsOf().length === i);
  }
});
