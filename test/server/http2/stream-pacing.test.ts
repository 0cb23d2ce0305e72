import { EventEmitter } from "node:events";
import type { ServerHttp2Session } from "node:http2";
import { connect, type Socket } from "node:net";
import { expect, onTestFinished, test } from "vitest";
import { systemClock } from "../../../src/base/clock.ts";
import { GroupedOwner } from "../../../src/base/fair-queue.ts";
import { framedConnectionOf } from "../../../src/server/http2/frames/framed-connection.ts";
import { StreamPacing } from "../../../src/server/http2/stream-pacing.ts";
import { FakeClock } from "../../fake-clock.ts";
import { WorkClock } from "../../work-clock.ts";
import { serveFramed } from "./frames/framed-server.ts";
import { RawConnection } from "./raw-connection.ts";

/** An HTTP/2 frame: of type 1, which opens a stream and says that nothing follows. */
function headersFrame(id: number, path = "/"): Buffer {
  const fields = [
    [":method", "GET"],
    [":scheme", "http"],
    [":path", path],
    [":authority", "a"],
    // So that a read of 64 KiB holds few streams.
    ["filling", "x".repeat(100)],
  ] as const;
  const literals = fields.map(([name, value]) =>
    Buffer.concat([
      Buffer.from([0, name.length]),
      Buffer.from(name),
      Buffer.from([value.length]),
      Buffer.from(value),
    ]),
  );
  const block = Buffer.concat(literals);
  return http2Frame(1, endOfStream | endOfHeaders, id, block);
}

const endOfStream = 1;
const endOfHeaders = 4;

function http2Frame(type: number, flags: number, id: number, content: Buffer): Buffer {
  const head = Buffer.alloc(9);
  head.writeUIntBE(content.length, 0, 3);
  head[3] = type;
  head[4] = flags;
  head.writeUInt32BE(id, 5);
  return Buffer.concat([head, content]);
}

const preface = Buffer.from("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n");

/** Frames that open all flow control windows of a client. */
function wideOpen(): Buffer {
  const settings = Buffer.alloc(6);
  settings.writeUInt16BE(4, 0);
  settings.writeUInt32BE(2 ** 31 - 1, 2);
  const update = Buffer.alloc(4);
  update.writeUInt32BE(2 ** 31 - 1 - 65_535, 0);
  return Buffer.concat([http2Frame(4, 0, 0, settings), http2Frame(8, 0, 0, update)]);
}

/** Larger than the socket buffers of a connection. */
const largeBytes = 32 * 1024 ** 2;

/** Number of streams in one read of Node.js. */
const perRead = Math.ceil((64 * 1024) / headersFrame(1).length);

/** A server with pacing that counts the streams of the connection that opens most. */
async function paced(waiting: { count: number }) {
  const clock = new FakeClock();
  const opened = new Map<object, number>();
  const isOther = (session: object): boolean => session === opened.keys().next().value;
  const pacing = new StreamPacing(clock, framedConnectionOf, (session) =>
    isOther(session) ? 0 : waiting.count,
  );
  const sockets: Socket[] = [];
  // Frames run on the machine's clock: only pacing waits for the turns of the test.
  const port = await serveFramed(systemClock, (session, { socket }) => {
    sockets.push(socket);
    session.on("stream", (stream, headers) => {
      opened.set(session, (opened.get(session) ?? 0) + 1);
      pacing.opened(session);
      stream.on("error", () => {});
      const body = Buffer.alloc(headers[":path"] === "/large" ? largeBytes : 1);
      stream.respond({ ":status": 200 }, { waitForTrailers: true });
      const response = framedConnectionOf(session).responseOf(Number(stream.id));
      response.write(body, () => {});
      response.end({}, () => {});
    });
  });
  const other = new RawConnection(port);
  await other.open("/").drain().ended;
  clock.runTurn();
  return {
    clock,
    port,
    /** Waits until the server is idle. Each response takes several turns of the event loop. */
    settle: async (): Promise<void> => {
      for (let asked = 0; asked < 20; asked++) await other.open("/").drain().ended;
    },
    /** Bytes that the server has read from the second connection. */
    bytesRead: () => sockets[1]?.bytesRead ?? 0,
    flood: (count: number): void => {
      const socket = connect(port, "127.0.0.1");
      onTestFinished(() => void socket.destroy());
      socket.resume();
      const frames = Array.from({ length: count }, (_, i) => headersFrame(2 * i + 1));
      socket.write(Buffer.concat([preface, http2Frame(4, 0, 0, Buffer.alloc(0)), ...frames]));
    },
    /** Number of streams that the flood has opened, once reading has paused. */
    floodOpened: async (): Promise<number> => {
      // Each response to another client takes several turns of the event loop.
      for (let asked = 0; asked < 5; asked++) await other.open("/").drain().ended;
      return [...opened.values()][1] ?? 0;
    },
    /** The same for several floods, once all have begun. */
    floodsOpened: async (floods: number): Promise<number[]> => {
      do for (let asked = 0; asked < 5; asked++) await other.open("/").drain().ended;
      while (opened.size < 1 + floods);
      return [...opened.values()].slice(1);
    },
  };
}

test("A connection that opens streams as fast as it can has a bounded number accepted per turn", async () => {
  const { clock, flood, floodOpened } = await paced({ count: 0 });
  const count = 5_000;
  flood(count);
  let before = 0;
  for (let turns = 0; before < count; turns++) {
    expect(turns).toBeLessThan(count / 100);
    const opened = await floodOpened();
    // Data that was read is still processed: 128 streams, and the rest of one read.
    expect(opened - before).toBeLessThanOrEqual(128 + 2 * perRead);
    before = opened;
    clock.runTurn();
  }
});

test("A connection with too many waiting streams is not read from until fewer wait", async () => {
  const waiting = { count: 1_000 };
  const { clock, flood, floodOpened } = await paced(waiting);
  flood(5_000);
  const opened = await floodOpened();
  expect(opened).toBeLessThanOrEqual(2 * perRead);
  for (let turns = 0; turns < 20; turns++) clock.runTurn();
  expect(await floodOpened()).toBe(opened);
  waiting.count = 0;
  clock.runTurn();
  expect(await floodOpened()).toBeGreaterThan(opened);
});

test("A few of many paused connections are resumed per turn", async () => {
  const waiting = { count: 1_000 };
  const { clock, flood, floodsOpened } = await paced(waiting);
  const floods = 4;
  for (let i = 0; i < floods; i++) flood(5_000);
  const before = await floodsOpened(floods);
  waiting.count = 0;
  const readOn: number[] = [];
  for (let turn = 0; readOn.length < 2; turn++) {
    expect(turn).toBeLessThan(50);
    clock.runTurn();
    const now = await floodsOpened(floods);
    const grown = now.filter((count, i) => count > (before[i] ?? 0)).length;
    if (grown > 0) readOn.push(grown);
  }
  // Each had opened 64 streams when it was paused, and a turn compensates for 128.
  expect(readOn).toEqual([2, 4]);
});

class Member extends GroupedOwner {}

interface FakeSession {
  readonly session: ServerHttp2Session;
  isReading: boolean;
}

/** Number of times that a fake session was paused. */
let holds = 0;

const readings = new WeakMap<ServerHttp2Session, FakeSession>();

function fakeSession(): FakeSession {
  const session = Object.assign(new EventEmitter(), { destroyed: false });
  const fake = { session: session as unknown as ServerHttp2Session, isReading: true };
  readings.set(fake.session, fake);
  return fake;
}

/** Whether a fake session is read from. */
function readingOf(session: ServerHttp2Session) {
  const fake = readings.get(session);
  if (fake === undefined) throw new Error("The session is not a fake.");
  return {
    hold: () => {
      holds++;
      fake.isReading = false;
    },
    release: () => {
      fake.isReading = true;
    },
  };
}

test.each([1, 1_000])(
  "A client that accepts no responses is not read from until it does, here with %i streams",
  async (count) => {
    const { clock, port, settle, bytesRead, floodOpened } = await paced({ count: 0 });
    // What it sends behind the end of its request is a violation, once it is read.
    const socket = connect(port, "127.0.0.1").on("error", () => {});
    onTestFinished(() => void socket.destroy());
    socket.write(Buffer.concat([preface, wideOpen(), headersFrame(1, "/large")]));
    await settle();
    // The response fills the socket: Node.js does not read more until the client accepts some of it.
    const opening = Array.from({ length: count }, (_, i) => headersFrame(2 * i + 3));
    const unheeded = http2Frame(200, 0, 0, Buffer.alloc(16_000));
    const data = http2Frame(0, 0, 1, Buffer.alloc(1));
    const filling = Array.from({ length: 500 }, () => Buffer.concat([data, unheeded]));
    socket.write(Buffer.concat(opening));
    for (let turn = 0; turn < 20; turn++) {
      await settle();
      clock.runTurn();
    }
    const read = bytesRead();
    socket.write(Buffer.concat(filling));
    for (let turn = 0; turn < 20; turn++) {
      await settle();
      clock.runTurn();
    }
    expect(bytesRead() - read).toBeLessThan(256 * 1024);
    socket.resume();
    while ((await floodOpened()) < count + 1) clock.runTurn();
  },
);

test("The connections of a caller are paced together, and those of another are not paused", () => {
  const clock = new WorkClock();
  const sessions = Array.from({ length: 21 }, () => fakeSession());
  const other = sessions[20] as FakeSession;
  const flooding = sessions.slice(0, 20);
  const caller = {};
  const owners = new Map(flooding.map(({ session }) => [session, new Member(caller)]));
  const ownerOf = (session: ServerHttp2Session): object => owners.get(session) ?? session;
  const pacing = new StreamPacing(
    clock,
    readingOf,
    () => 0,
    ownerOf,
    () => true,
  );
  for (const { session } of flooding) for (let i = 0; i < 64; i++) pacing.opened(session);
  for (let i = 0; i < 32; i++) pacing.opened(other.session);
  expect(other.isReading).toBe(true);
  expect(flooding.filter(({ isReading }) => isReading)).toEqual([]);
  // The hold after a read of 64 streams is over, and what follows is due to the number of all.
  clock.spend(11);
  // 20 times 64, at 32 a turn.
  const turns = (20 * 64) / 32;
  for (let turn = 1; turn < turns - 1; turn++) clock.runTurn();
  expect(flooding.filter(({ isReading }) => isReading)).toEqual([]);
  clock.runTurn();
  expect(flooding.filter(({ isReading }) => isReading)).toHaveLength(1);
});

test("A resumed connection is paused again once it exceeds what one turn has compensated for", () => {
  const clock = new FakeClock();
  const pacing = new StreamPacing(clock, readingOf, () => 0);
  const fake = fakeSession();
  const { session } = fake;
  const open = (count: number): void => {
    for (let i = 0; i < count; i++) pacing.opened(session);
  };
  open(300);
  expect(fake.isReading).toBe(false);
  clock.runTurn();
  expect(fake.isReading).toBe(false);
  clock.runTurn();
  expect(fake.isReading).toBe(true);
  // 300 less twice 128 are left.
  open(128 - 44);
  expect(fake.isReading).toBe(true);
  open(1);
  expect(fake.isReading).toBe(false);
});

test("The longer a read of a caller took, the longer its connections are held while there are others", () => {
  const clock = new WorkClock();
  const [first, second, other] = [fakeSession(), fakeSession(), fakeSession()];
  const caller = {};
  const owners = new Map([first, second].map(({ session }) => [session, new Member(caller)]));
  const ownerOf = (session: ServerHttp2Session): object => owners.get(session) ?? session;
  let hasSeveral = true;
  const pacing = new StreamPacing(
    clock,
    readingOf,
    () => 0,
    ownerOf,
    () => hasSeveral,
  );
  const open = ({ session }: FakeSession, count: number): void => {
    for (let i = 0; i < count; i++) pacing.opened(session);
  };
  const runTurns = (count: number): void => {
    for (let turn = 0; turn < count; turn++) clock.runTurn();
  };
  open(first, 1_000);
  open(second, 1);
  runTurns(100);
  expect([first.isReading, second.isReading]).toEqual([false, false]);
  // Others are not affected.
  open(other, 40);
  expect(other.isReading).toBe(false);
  runTurns(2);
  expect(other.isReading).toBe(true);
  // 1,000 squared by 400.
  clock.advance(2_490);
  expect(first.isReading).toBe(false);
  clock.advance(10);
  runTurns(2);
  expect([first.isReading, second.isReading]).toEqual([true, true]);
  // A read of one of them pauses it, and the other when that is read, and never for longer than ten seconds.
  open(first, 10_000);
  runTurns(400);
  expect([first.isReading, second.isReading]).toEqual([false, true]);
  pacing.received(second.session);
  pacing.received(other.session);
  expect([second.isReading, other.isReading]).toEqual([false, true]);
  clock.advance(10_000);
  runTurns(2);
  expect(first.isReading).toBe(true);
  // A caller that is alone delays no other.
  hasSeveral = false;
  open(first, 1_000);
  runTurns(10);
  expect(first.isReading).toBe(true);
});

test("A hold costs the same however many connections its caller has: each is paused when it is read", () => {
  const clock = new WorkClock();
  const sessions = Array.from({ length: 10_000 }, () => fakeSession());
  const caller = {};
  const owners = new Map(sessions.map(({ session }) => [session, new Member(caller)]));
  const ownerOf = (session: ServerHttp2Session): object => owners.get(session) ?? session;
  const pacing = new StreamPacing(
    clock,
    readingOf,
    () => 0,
    ownerOf,
    () => true,
  );
  for (const { session } of sessions) {
    pacing.opened(session);
    clock.runTurn();
  }
  holds = 0;
  const [first, ...others] = sessions;
  for (let i = 0; i < 1_000; i++) pacing.opened((first as FakeSession).session);
  expect(holds).toBe(1);
  const read = others.slice(0, 3);
  for (const { session } of read) {
    pacing.received(session);
    pacing.received(session);
  }
  expect([holds, read.some(({ isReading }) => isReading)]).toEqual([4, false]);
  // 1,000 squared by 400, and then one of them per turn.
  clock.advance(2_500);
  for (let turn = 0; turn < 40; turn++) clock.runTurn();
  expect(sessions.every(({ isReading }) => isReading)).toBe(true);
});

test("A connection whose calls turn out to be another caller's is not held with those of its host", () => {
  const clock = new WorkClock();
  const [honest, flooding] = [fakeSession(), fakeSession()];
  const [host, identity] = [{}, {}];
  const owners = new Map([honest, flooding].map(({ session }) => [session, new Member(host)]));
  const ownerOf = (session: ServerHttp2Session): object => owners.get(session) ?? session;
  const pacing = new StreamPacing(
    clock,
    readingOf,
    () => 0,
    ownerOf,
    () => true,
  );
  pacing.opened(honest.session);
  // Its first call was authenticated.
  owners.set(honest.session, new Member(identity));
  pacing.opened(honest.session);
  clock.runTurn();
  for (let i = 0; i < 1_000; i++) pacing.opened(flooding.session);
  clock.runTurn();
  pacing.received(honest.session);
  expect([honest.isReading, flooding.isReading]).toEqual([true, false]);
  // One that is known only as one of its host may have its first call recognised.
  const later = fakeSession();
  owners.set(later.session, new Member(host));
  pacing.received(later.session);
  expect(later.isReading).toBe(true);
  pacing.opened(later.session);
  expect(later.isReading).toBe(false);
});
