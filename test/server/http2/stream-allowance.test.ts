import { once } from "node:events";
import { createServer, type ServerHttp2Session } from "node:http2";
import { type AddressInfo, connect, type Socket } from "node:net";
import { describe, expect, onTestFinished, test, vi } from "vitest";
import {
  maxRefusedStreams,
  StreamAllowance,
  streamAllowance,
} from "../../../src/server/http2/stream-allowance.ts";
import { listWatchService } from "../../../src/wire/services.ts";
import { FakeClock } from "../../fake-clock.ts";
import { serveThings } from "../served.ts";
import { RawConnection } from "./raw-connection.ts";

const resource = "things";
const { Watch, List } = listWatchService;
const things = Watch.requestSerialize({ resource });

const [headers, reset, settings] = [1, 3, 4];
const acknowledged = 1;
const endOfHeaders = 4;

/** A frame of HTTP/2 (RFC 9113, 4.1). */
function frame(type: number, flags: number, stream: number, content: Buffer): Buffer {
  const head = Buffer.alloc(9);
  head.writeUIntBE(content.length, 0, 3);
  head[3] = type;
  head[4] = flags;
  head.writeUInt32BE(stream, 5);
  return Buffer.concat([head, content]);
}

/** :method POST, :scheme http, :path /, and :authority a, from HPACK's static table. */
const request = Buffer.of(0x83, 0x86, 0x84, 0x41, 1, 0x61);
const cancel = Buffer.of(0, 0, 0, 8);
const empty = Buffer.alloc(0);

/** A client that acknowledges the settings of the server as long as `client.isPolite`. */
async function connected(port: number): Promise<{ readonly socket: Socket; isPolite: boolean }> {
  const socket = connect(port, "127.0.0.1").on("error", () => {});
  onTestFinished(() => void socket.destroy());
  const client = { socket, isPolite: true };
  let rest = Buffer.alloc(0);
  socket.on("data", (chunk: Buffer) => {
    rest = Buffer.concat([rest, chunk]);
    while (rest.length >= 9 && rest.length >= 9 + rest.readUIntBE(0, 3)) {
      const isSetting = rest[3] === settings && rest[4] === 0;
      if (isSetting && client.isPolite) socket.write(frame(settings, acknowledged, 0, empty));
      rest = rest.subarray(9 + rest.readUIntBE(0, 3));
    }
  });
  const preface = Buffer.from("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n");
  socket.write(Buffer.concat([preface, frame(settings, 0, 0, empty)]));
  await once(socket, "data");
  return client;
}

/** Opens streams in one write, the first as number `from`, and resets each at once if `isReset`. */
function openAtOnce(socket: Socket, from: number, count: number, isReset: boolean): void {
  const frames = Array.from({ length: count }, (_, i) => {
    const id = 2 * (from + i) + 1;
    const opened = frame(headers, endOfHeaders, id, request);
    return isReset ? Buffer.concat([opened, frame(reset, 0, id, cancel)]) : opened;
  });
  socket.write(Buffer.concat(frames));
}

/** A server of Node.js with an allowance, and the streams that it has announced. */
async function allowing(maxStreamsPerConnection: number = 10_000) {
  const clock = new FakeClock();
  const open = new Map<ServerHttp2Session, number>();
  const unacknowledged: ServerHttp2Session[] = [];
  const allowance = new StreamAllowance({
    ...{ clock, maxStreamsPerConnection, acknowledgeMs: 1_000 },
    openStreams: (session) => open.get(session) ?? 0,
    onUnacknowledged: (session) => void unacknowledged.push(session),
  });
  const counts = { announced: 0 };
  const server = createServer({
    settings: { maxConcurrentStreams: streamAllowance },
    ...{ maxSessionRejectedStreams: maxRefusedStreams, streamResetBurst: 1e6 },
  });
  let limit: number | undefined;
  const isAcknowledged = new Promise<void>((resolve) => {
    server.once("session", (session) => {
      session.on("localSettings", ({ maxConcurrentStreams }) => {
        limit = maxConcurrentStreams;
        resolve();
      });
    });
  });
  server.on("sessionError", () => {});
  server.on("stream", (stream) => {
    const session = stream.session as ServerHttp2Session;
    counts.announced++;
    open.set(session, (open.get(session) ?? 0) + 1);
    stream.on("error", () => {});
    stream.on("close", () => {
      open.set(session, (open.get(session) ?? 0) - 1);
      allowance.adjust(session);
    });
    allowance.adjust(session);
  });
  server.listen(0, "127.0.0.1");
  await once(server, "listening");
  onTestFinished(() => void server.close());
  const { port } = server.address() as AddressInfo;
  return { clock, port, counts, limit: () => limit, unacknowledged, isAcknowledged };
}

describe("Of streams that are opened and reset within one read", () => {
  test("no more are announced than may be opened", async () => {
    const { port, counts, isAcknowledged } = await allowing();
    const { socket } = await connected(port);
    await isAcknowledged;
    openAtOnce(socket, 0, 1_000, true);
    await vi.waitFor(() => expect(counts.announced).toBeGreaterThan(0));
    // What comes later is read later.
    const other = new RawConnection(port);
    other.open("/");
    await vi.waitFor(() => expect(counts.announced).toBe(streamAllowance + 1));
    expect(socket.destroyed).toBe(false);
  });

  test("far more close the connection, and are counted as rapid resets", async () => {
    const { server } = await serveThings();
    const { socket } = await connected(server.port);
    // Once it is acknowledged, the limit applies.
    const raw = new RawConnection(server.port);
    await raw.call(List.path, List.requestSerialize({ resource })).drain().ended;
    openAtOnce(socket, 0, streamAllowance + maxRefusedStreams + 1_000, true);
    await once(socket, "close");
    expect(server.stats().attacks.get("rapid_reset")).toBe(1);
  });
});

test("A lower limit that is not acknowledged in time is reported, and a higher one is not", async () => {
  const { clock, port, counts, limit, unacknowledged } = await allowing();
  const client = await connected(port);
  const [steps, each] = [8, streamAllowance / 2];
  for (let step = 0; step < steps; step++) {
    openAtOnce(client.socket, each * step, each, false);
    await vi.waitFor(() => expect(counts.announced).toBe(each * (step + 1)));
    // It applies from its acknowledgement.
    await vi.waitFor(() => expect(limit()).toBeGreaterThanOrEqual(each * (step + 2)));
  }
  clock.advance(10_000);
  expect(unacknowledged).toEqual([]);
  client.isPolite = false;
  const resets = Array.from({ length: each * steps }, (_, i) => frame(reset, 0, 2 * i + 1, cancel));
  client.socket.write(Buffer.concat(resets));
  await vi.waitFor(() => expect(clock.pendingTimers).toBe(1));
  clock.advance(999);
  expect(unacknowledged).toEqual([]);
  clock.advance(1);
  expect(unacknowledged).toHaveLength(1);
});

test("A client that keeps the limit opens as many streams as the service allows, and the limit follows", async () => {
  const limits = { maxStreamsPerConnection: 1_500 };
  const { server } = await serveThings({ server: { limits } });
  const raw = new RawConnection(server.port);
  const limit = () => raw.session.remoteSettings.maxConcurrentStreams;
  const open = (count: number) =>
    Array.from({ length: count }, () => raw.call(Watch.path, things).drain());
  const first = open(1);
  await first[0]?.answered;
  expect(limit()).toBe(streamAllowance);
  const watches = open(999);
  await Promise.all(watches.map((watch) => watch.answered));
  await vi.waitFor(() => expect(limit()).toBeGreaterThan(1_000));
  expect(limit()).toBeLessThanOrEqual(1_000 + streamAllowance);
  const last = open(500);
  await Promise.all(last.map((watch) => watch.answered));
  await vi.waitFor(() => expect(limit()).toBe(1_500));
  for (const watch of [...watches, ...last]) watch.cancel();
  await vi.waitFor(() => expect(limit()).toBeLessThan(4 * streamAllowance + 2));
  expect(server.openStreams).toBe(1);
});
