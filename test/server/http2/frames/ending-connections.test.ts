import { once } from "node:events";
import { constants, type ServerHttp2Session } from "node:http2";
import { connect, type Socket } from "node:net";
import { setImmediate as nextTurn } from "node:timers/promises";
import { describe, expect, onTestFinished, test } from "vitest";
import {
  closedPerTurn,
  EndingConnections,
  type FramedConnection,
  isEnding,
} from "../../../../src/server/http2/frames/framed-connection.ts";
import { FakeClock } from "../../../fake-clock.ts";
import { FrameClient } from "./frame-client.ts";
import { serveFramed } from "./framed-server.ts";

const preface = Buffer.from("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n");
const endOfHeaders = 4;

function frame(type: number, flags: number, id: number, content: Uint8Array = Buffer.of()): Buffer {
  const head = Buffer.alloc(9);
  head.writeUIntBE(content.length, 0, 3);
  head.set([type, flags], 3);
  head.writeUInt32BE(id, 5);
  return Buffer.concat([head, content]);
}

/** Node.js announces what it has closed later in the same turn of the event loop, or in the next one. */
async function turn(): Promise<void> {
  await nextTurn();
  await nextTurn();
}

/** HEADERS that open a stream and leave its request open: `:method POST`, `:scheme http`, `:path /`, `:authority a`. */
function opening(id: number): Buffer {
  return frame(1, endOfHeaders, id, Buffer.of(0x83, 0x86, 0x84, 1, 1, 97));
}

/** A server that counts the streams of its connections that are open. */
async function serving() {
  const clock = new FakeClock();
  const sessions: ServerHttp2Session[] = [];
  const counts = { open: 0, sessions: 0, opened: 0 };
  const codes = new Set<number>();
  const port = await serveFramed(clock, (session) => {
    sessions.push(session);
    counts.sessions++;
    session.on("close", () => counts.sessions--);
    session.on("stream", (stream) => {
      counts.open++;
      counts.opened++;
      stream.on("error", () => {});
      stream.on("close", () => {
        counts.open--;
        codes.add(stream.rstCode);
      });
    });
  });

  /** A connection of a client with this many open streams. */
  async function connected(streams: number): Promise<Socket> {
    const socket = connect(port, "127.0.0.1").resume();
    socket.on("error", () => {});
    onTestFinished(() => void socket.destroy());
    const before = counts.open;
    const opened = Array.from({ length: streams }, (_, i) => opening(2 * i + 1));
    socket.write(Buffer.concat([preface, frame(4, 0, 0), ...opened]));
    while (counts.open < before + streams) {
      clock.runTurn();
      await turn();
    }
    return socket;
  }

  /** Runs turns until everything is closed. Returns the most streams of `open` that were closed in one of them. */
  async function mostClosedPerTurn(open: number): Promise<number> {
    while (counts.open === open) await turn();
    let most = open - counts.open;
    for (let before = counts.open; counts.open > 0 || counts.sessions > 0; before = counts.open) {
      clock.runTurn();
      await turn();
      most = Math.max(most, before - counts.open);
    }
    return most;
  }
  return { clock, sessions, counts, codes, connected, mostClosedPerTurn };
}

const streams = 1_000;

/** How a connection ends, with the HTTP/2 error code that its streams are closed with. */
const ends: readonly (readonly [
  what: string,
  end: (socket: Socket, session: ServerHttp2Session) => void,
  code: number,
])[] = [
  ["its client has closed", (socket) => socket.end(), constants.NGHTTP2_CANCEL],
  ["its client has reset", (socket) => socket.resetAndDestroy(), constants.NGHTTP2_CANCEL],
  [
    "its client ends with a GOAWAY for an error",
    (socket) => socket.write(frame(7, 0, 0, Buffer.of(0, 0, 0, 0, 0, 0, 0, 2))),
    constants.NGHTTP2_CANCEL,
  ],
  [
    "violates the protocol",
    // DATA of stream 0.
    (socket) => socket.write(frame(0, 0, 0, Buffer.alloc(5))),
    constants.NGHTTP2_CANCEL,
  ],
  [
    "the server destroys",
    (_socket, session) => session.destroy(undefined, constants.NGHTTP2_ENHANCE_YOUR_CALM),
    constants.NGHTTP2_ENHANCE_YOUR_CALM,
  ],
];

describe.each(ends)("The streams of a connection that %s", (_what, end, code) => {
  test("are closed a few in each turn of the event loop, and then the connection", async () => {
    const { sessions, codes, connected, mostClosedPerTurn } = await serving();
    const socket = await connected(streams);
    const [session] = sessions;
    if (session === undefined) throw new Error("There is no session.");
    expect(isEnding(session)).toBe(false);
    end(socket, session);
    expect(await mostClosedPerTurn(streams)).toBe(closedPerTurn);
    expect(isEnding(session)).toBe(true);
    expect([...codes]).toEqual([code]);
  });
});

test("Connections that end together close as many streams in each turn as one does", async () => {
  const { connected, mostClosedPerTurn, counts } = await serving();
  const sockets = [await connected(streams), await connected(streams), await connected(streams)];
  for (const socket of sockets) socket.resetAndDestroy();
  expect(await mostClosedPerTurn(3 * streams)).toBe(closedPerTurn);
  expect(counts).toEqual({ open: 0, sessions: 0, opened: 3 * streams });
});

test("A connection that ends takes no stream more, also from a client that still sends", async () => {
  const { sessions, counts, connected, mostClosedPerTurn } = await serving();
  const socket = await connected(streams);
  sessions[0]?.destroy();
  sessions[0]?.destroy();
  socket.write(opening(2 * streams + 1));
  await mostClosedPerTurn(streams);
  expect(counts).toEqual({ open: 0, sessions: 0, opened: streams });
});

describe("A connection whose client reads nothing", () => {
  /** Its socket takes no more of a response. */
  async function stuck() {
    const clock = new FakeClock();
    const begun = Promise.withResolvers<readonly [ServerHttp2Session, FramedConnection]>();
    const port = await serveFramed(clock, (session, connection) => {
      session.on("stream", (stream) => {
        stream.on("error", () => {});
        stream.respond({ ":status": 200 }, { waitForTrailers: true });
        // More than the operating system holds for a socket.
        connection.responseOf(Number(stream.id)).write(Buffer.alloc(20_000_000), () => {});
      });
      begun.resolve([session, connection]);
    });
    const client = await FrameClient.to(port);
    client.socket.pause();
    client.greet(2 ** 30);
    client.grant(0, 2 ** 30);
    client.call("/a/b", Buffer.of());
    const [session, { socket }] = await begun.promise;
    while (socket.writableLength === 0) {
      clock.runTurn();
      await turn();
    }
    return { clock, client, session, socket };
  }

  test("is closed a while after its session was destroyed", async () => {
    const { clock, session, socket } = await stuck();
    const closed = once(session, "close");
    session.destroy();
    for (let i = 0; i < 10; i++) await turn();
    clock.advance(4_999);
    expect([session.destroyed, socket.destroyed]).toEqual([true, false]);
    clock.advance(1);
    expect(socket.destroyed).toBe(true);
    await closed;
    expect(clock.pendingTimers).toBe(0);
  });

  test("is closed at once, and holds no timer, if it reads after that", async () => {
    const { clock, client, session, socket } = await stuck();
    const closed = once(session, "close");
    session.destroy();
    for (let i = 0; i < 10; i++) await turn();
    expect(clock.pendingTimers).toBe(1);
    client.socket.resume();
    await closed;
    expect([socket.destroyed, clock.pendingTimers]).toEqual([true, 0]);
  });
});

test("A connection that ends gracefully waits for its client's side, however long that takes", async () => {
  const { clock, sessions, counts, connected } = await serving();
  const socket = await connected(0);
  socket.allowHalfOpen = true;
  while (sessions.length === 0) await turn();
  const ended = once(socket, "end");
  sessions[0]?.close();
  await ended;
  clock.advance(60_000);
  for (let i = 0; i < 10; i++) await turn();
  expect(counts.sessions).toBe(1);
  socket.end();
  while (counts.sessions > 0) await turn();
});

describe("EndingConnections", () => {
  /** A connection with this many streams. `onEnded` is called once, as it ends. */
  function ending(name: string, streamCount: number, closed: string[], onEnded?: () => void) {
    let left = streamCount;
    let hasEnded = false;
    const closeNext = (): boolean => {
      if (left > 0) {
        left--;
        closed.push(name);
        return true;
      }
      closed.push(`${name} ended`);
      if (!hasEnded) {
        hasEnded = true;
        onEnded?.();
      }
      return false;
    };
    return { closeNext };
  }

  test("closes the streams of small connections at once, and the rest in later turns", () => {
    const clock = new FakeClock();
    const connections = new EndingConnections(clock);
    const closed: string[] = [];
    connections.add(ending("a", 2, closed));
    expect(closed).toEqual(["a", "a", "a ended"]);
    connections.add(ending("b", closedPerTurn - 1, closed));
    expect(closed.length).toBe(3 + closedPerTurn - 2);
    clock.runTurn();
    expect(closed.slice(-2)).toEqual(["b", "b ended"]);
    clock.runImmediates();
    expect(clock.pendingImmediates).toBe(0);
  });

  test("serves connections in rotation: those with many streams do not delay the ends of others", () => {
    const clock = new FakeClock();
    const connections = new EndingConnections(clock);
    const closed: string[] = [];
    for (let i = 0; i < 5; i++) connections.add(ending("large", 10_000, closed));
    connections.add(ending("small", 10, closed));
    clock.runTurn();
    expect(closed).toContain("small ended");
  });

  test("ends each connection once, also one that begins to end within the end of another", () => {
    const clock = new FakeClock();
    const connections = new EndingConnections(clock);
    const closed: string[] = [];
    connections.add(
      ending("a", 2, closed, () => connections.add(ending("b", closedPerTurn, closed))),
    );
    clock.runImmediates();
    expect(closed.filter((each) => each.endsWith("ended"))).toEqual(["a ended", "b ended"]);
    expect(closed.length).toBe(closedPerTurn + 4);
  });
});
