import { once } from "node:events";
import { createServer, type ServerHttp2Session } from "node:http2";
import { type AddressInfo, connect, type Socket } from "node:net";
import { pino } from "pino";
import { describe, expect, onTestFinished, test } from "vitest";
import { attackKinds, Http2Defences } from "../../../src/server/limits/http2-defences.ts";
import { listWatchService } from "../../../src/wire/services.ts";
import { FakeClock } from "../../fake-clock.ts";
import { Recorder, type Served, serveThings } from "../served.ts";
import { RawConnection } from "./raw-connection.ts";

const resource = "things";
const { Get } = listWatchService;

/** A frame of HTTP/2 (RFC 9113, 4.1). */
function frame(
  type: number,
  flags: number,
  stream: number,
  content: Uint8Array = Buffer.of(),
): Buffer {
  const head = Buffer.alloc(9);
  head.writeUIntBE(content.byteLength, 0, 3);
  head[3] = type;
  head[4] = flags;
  head.writeUInt32BE(stream, 5);
  return Buffer.concat([head, content]);
}

const [headers, resets, settings, ping, continuation] = [1, 3, 4, 6, 9];
const endOfHeaders = 4;
const preface = Buffer.concat([
  Buffer.from("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"),
  frame(settings, 0, 0),
]);

/** A header without a place in HPACK's table. The texts are shorter than 127. */
function literal(name: string, value: string): Buffer {
  return Buffer.concat([
    Buffer.of(0x10, name.length),
    Buffer.from(name),
    Buffer.of(value.length),
    Buffer.from(value),
  ]);
}

const request = Buffer.concat([
  literal(":method", "POST"),
  literal(":scheme", "http"),
  literal(":authority", "a"),
  literal(":path", Get.path),
  literal("content-type", "application/grpc"),
]);

function times(count: number, make: (i: number) => Buffer): Buffer {
  return Buffer.concat(Array.from({ length: count }, (_, i) => make(i)));
}

/** A TCP connection that reads all, and has sent the preface and `bytes`. */
function attack({ server }: Served, bytes: Uint8Array): { socket: Socket; closed: Promise<void> } {
  const socket = connect(server.port, "127.0.0.1")
    .on("error", () => {})
    .resume();
  onTestFinished(() => void socket.destroy());
  const closed = new Promise<void>((resolve) => socket.once("close", () => resolve()));
  socket.write(Buffer.concat([preface, bytes]));
  return { socket, closed };
}

/** The kinds with a count other than 0. */
function counted({ server }: Served): Record<string, number> {
  return Object.fromEntries([...server.stats().attacks].filter(([, count]) => count > 0));
}

/** The lines of the log: kind and host of the peer. */
function logged({ lines }: { readonly lines: Recorder }): unknown[] {
  return lines.logged.map((line) => {
    const { kind, peer } = JSON.parse(line);
    return [kind, String(peer).replace(/:\d+$/, "")];
  });
}

async function serve(limits: object = {}): Promise<Served & { readonly lines: Recorder }> {
  const lines = new Recorder();
  const logger = pino({ level: "warn" }, lines);
  return { ...(await serveThings({ server: { limits, logger } })), lines };
}

describe("A connection is closed, counted and logged with its peer if it", () => {
  test.each([
    [
      "sends 100,000 PING frames at once",
      "ping_flood",
      times(100_000, () => frame(ping, 0, 0, Buffer.alloc(8))),
    ],
    [
      "sends 100,000 SETTINGS frames at once",
      "settings_flood",
      times(100_000, () => frame(settings, 0, 0)),
    ],
    [
      "sends headers in 100,000 parts",
      "header_flood",
      Buffer.concat([
        frame(headers, 0, 1, request),
        times(100_000, () => frame(continuation, 0, 1)),
      ]),
    ],
    [
      "opens and resets 20,000 streams",
      "rapid_reset",
      times(20_000, (i) =>
        Buffer.concat([
          frame(headers, endOfHeaders, 2 * i + 1, request),
          frame(resets, 0, 2 * i + 1, Buffer.of(0, 0, 0, 8)),
        ]),
      ),
    ],
  ])("%s", async (_what, kind, bytes) => {
    const served = await serve({ maxStreamsPerConnection: 1_000, maxCancelsPerSecond: 1 });
    const { closed } = attack(served, bytes);
    await closed;
    expect(counted(served)).toEqual({ [kind]: 1 });
    expect(logged(served)).toEqual([[kind, "127.0.0.1"]]);
    // Others are served.
    expect((await served.client.list({ resource })).items).toEqual([]);
  });

  test.each([
    ["PING", "ping_flood", { maxPingsPerSecond: 500 }, frame(ping, 0, 0, Buffer.alloc(8))],
    ["SETTINGS", "settings_flood", { maxSettingsPerSecond: 500 }, frame(settings, 0, 0)],
  ])("sends %s frames faster than it may, although it reads the answers", async (...row) => {
    const [, kind, limits, bytes] = row;
    const served = await serve(limits);
    const { socket, closed } = attack(served, Buffer.of());
    let isClosed = false;
    void closed.then(() => {
      isClosed = true;
    });
    const answered = (): Promise<unknown> => new Promise((resolve) => socket.once("data", resolve));
    // Fewer than may be in flight at once, and as many in a second as are allowed.
    for (let second = 0; second < 3; second++) {
      for (let i = 0; i < 4; i++) {
        socket.write(times(120, () => bytes));
        await answered();
        await served.client.list({ resource });
      }
      served.clock.advance(1_000);
    }
    expect(isClosed).toBe(false);
    for (let i = 0; i < 6 && !isClosed; i++) {
      socket.write(times(120, () => bytes));
      await Promise.race([answered(), closed]);
      await served.client.list({ resource });
    }
    await closed;
    expect(counted(served)).toEqual({ [kind]: 1 });
  });

  test("does not answer a keepalive ping", async () => {
    const served = await serve({ keepaliveTimeMs: 10, keepaliveTimeoutMs: 10 });
    const { closed } = attack(served, Buffer.of());
    const advancing = setInterval(() => served.clock.advance(10), 1);
    onTestFinished(() => clearInterval(advancing));
    await closed;
    expect(counted(served)).toEqual({ half_open: 1 });
  });
});

describe("A connection that ends with grpc-go's GOAWAY is counted, and not logged as an attack,", () => {
  const call = Buffer.concat([
    frame(headers, endOfHeaders, 1, request),
    frame(resets, 0, 1, Buffer.of(0, 0, 0, 8)),
  ]);
  test.each([
    ["after a call", call, [0, 0, 0, 1]],
    // 2^31 - 1: the id before the first one.
    ["without a call", Buffer.of(), [127, 255, 255, 255]],
  ])("%s", async (_when, before, lastId) => {
    const served = await serve();
    const goaway = frame(7, 0, 0, Buffer.from([...lastId, 0, 0, 0, 0]));
    await attack(served, Buffer.concat([before, goaway])).closed;
    expect(counted(served)).toEqual({ protocol_error: 1 });
    expect(logged(served)).toEqual([]);
  });
});

test("A frame that HTTP/2 does not allow in place of the first SETTINGS is counted as invalid", async () => {
  const served = await serve();
  const socket = connect(served.server.port, "127.0.0.1").on("error", () => {});
  const closed = once(socket.resume(), "close");
  socket.write(Buffer.concat([preface.subarray(0, 24), frame(0, 0, 1)]));
  await closed;
  expect(counted(served)).toEqual({ invalid_frames: 1 });
  expect(logged(served)).toEqual([["invalid_frames", "127.0.0.1"]]);
});

describe("A call is ended, counted and logged with its peer if", () => {
  test("its headers are too large", async () => {
    const served = await serve();
    const raw = new RawConnection(served.server.port);
    const call = raw.open(Get.path, { metadata: "m".repeat(17_000) });
    expect((await call.drain().ended).reset).toBe(11);
    expect(counted(served)).toEqual({ header_flood: 1 });
    expect(logged(served)).toEqual([["header_flood", "127.0.0.1"]]);
  });

  test("its request does not arrive", async () => {
    const served = await serve();
    const call = new RawConnection(served.server.port).open(Get.path);
    call.drain();
    await served.recorder.untilStarted(1);
    while (!call.stream.closed) {
      served.clock.advance(5_000);
      await served.client.list({ resource });
    }
    expect((await call.ended).code).toBe(4);
    expect(counted(served)).toEqual({ slow_request: 1 });
  });
});

const bounds = {
  ...{ maxPingsPerSecond: 1, maxSettingsPerSecond: 1 },
  maxStreamsPerConnection: 1,
};

const handshakes = { count: (): void => {} };

test("A client that goes away while it is sent something is not counted", async () => {
  const defences = new Http2Defences(
    new FakeClock(),
    pino({ level: "silent" }),
    bounds,
    handshakes,
  );
  const server = createServer().listen(0, "127.0.0.1");
  onTestFinished(() => void server.close());
  await once(server, "listening");
  const { port } = server.address() as AddressInfo;
  const socket = connect(port, "127.0.0.1");
  socket.write(preface);
  const [session] = (await once(server, "session")) as [ServerHttp2Session];
  defences.watch(session, "127.0.0.1:1");
  const closed = new Promise((resolve) => session.once("close", resolve));
  // What Node.js reports if it writes to a socket that the client has closed.
  session.destroy(Object.assign(new Error("write EPIPE"), { code: "EPIPE", syscall: "write" }));
  await closed;
  expect([...defences.counts.values()].filter((count) => count > 0)).toEqual([]);
});

test("One line for each kind is written in ten seconds, with the number of the others", () => {
  const clock = new FakeClock();
  const lines: Record<string, unknown>[] = [];
  const logger = pino({}, { write: (line) => void lines.push(JSON.parse(line)) });
  const defences = new Http2Defences(clock, logger, bounds, handshakes);
  for (let i = 0; i < 1_000; i++) for (const kind of attackKinds) defences.count(kind, `peer ${i}`);
  expect(lines.map(({ kind, peer }) => [kind, peer])).toEqual(
    attackKinds.filter((kind) => kind !== "protocol_error").map((kind) => [kind, "peer 0"]),
  );
  clock.advance(10_000);
  defences.count("ping_flood", "another peer");
  expect(lines.at(-1)).toMatchObject({ peer: "another peer", suppressedOfKind: 999 });
  expect(defences.counts.get("ping_flood")).toBe(1_001);
});
