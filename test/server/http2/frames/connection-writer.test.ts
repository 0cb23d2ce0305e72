import type { Socket } from "node:net";
import { describe, expect, test } from "vitest";
import {
  ConnectionWriter,
  WriterContext,
} from "../../../../src/server/http2/frames/connection-writer.ts";
import type { FramedStream } from "../../../../src/server/http2/frames/framed-stream.ts";
import { FakeClock } from "../../../fake-clock.ts";

/** A connection's writer, and what it writes to the socket. */
class World {
  /** Size of each write, in bytes. */
  readonly writes: number[] = [];
  /** Bytes that the operating system has not taken. */
  unwritten = 0;
  readonly writer: ConnectionWriter;

  constructor() {
    const world = this;
    const socket = {
      get writableLength() {
        return world.unwritten;
      },
      write: (bytes: Buffer, onTaken?: () => void) => {
        world.writes.push(bytes.byteLength);
        onTaken?.();
      },
      cork: () => {},
      uncork: () => {},
    };
    const clock = new FakeClock();
    this.writer = new ConnectionWriter(socket as unknown as Socket, new WriterContext(clock, 10));
    this.writer.sender.windowUpdateReceived(0, 2 ** 30);
    this.writer.sender.settingsReceived({ initialWindow: 2 ** 30, maxFrameSize: undefined });
    this.writer.sender.settingsAcknowledged();
  }

  /** A stream whose headers are sent. */
  open(id: number): FramedStream {
    const { sender } = this.writer;
    sender.open(id);
    const stream = sender.stream(id);
    if (stream === undefined) throw new Error(`There is no stream ${id}.`);
    stream.headersSent();
    return stream;
  }
}

const head = 9;
const message = Buffer.alloc(1_024);
/** Each counts 256 bytes more. */
const perFlush = Math.floor((64 * 1_024) / (1_024 + 256));
const flushed = (): Promise<void> => new Promise((resolve) => process.nextTick(resolve));

/** How many messages the stream accepts one after another. */
function accepted(stream: FramedStream): number {
  for (let count = 0; ; count++) if (!stream.writeAtOnce(message)) return count;
}

describe("Small messages", () => {
  test("of the only stream of a connection are written at once, each in one write", () => {
    const { open, writes } = bound(new World());
    const stream = open(1);
    stream.writeAtOnce(message);
    stream.writeAtOnce(message);
    expect(writes).toEqual([head + 1_024, head + 1_024]);
  });

  test("of several streams are written together when the callback ends", async () => {
    const { open, writes } = bound(new World());
    for (const stream of [open(1), open(3)].flatMap((each) => [each, each])) {
      expect(stream.writeAtOnce(message)).toBe(true);
    }
    expect(writes).toEqual([]);
    await flushed();
    expect(writes).toEqual([4 * (head + 1_024)]);
  });

  test("of the only stream that others follow are written together, too", async () => {
    const { open, writes } = bound(new World());
    const stream = open(1);
    stream.writeAtOnce(message);
    stream.writeAtOnce(message, true);
    stream.writeAtOnce(message);
    expect(writes).toEqual([head + 1_024]);
    await flushed();
    stream.writeAtOnce(message);
    expect(writes).toEqual([head + 1_024, 2 * (head + 1_024), head + 1_024]);
  });

  test("of several streams are accepted up to 64 KiB until they are written", async () => {
    const { open, writes } = bound(new World());
    const [first, other] = [open(1), open(3)];
    expect(accepted(first)).toBe(perFlush);
    expect(other.writeAtOnce(message)).toBe(false);
    await flushed();
    expect(accepted(other)).toBe(perFlush);
    expect(writes).toEqual([perFlush * (head + 1_024)]);
  });

  test("of one stream are accepted up to 64 KiB; the next one waits for the end of the callback", async () => {
    const { open, writes } = bound(new World());
    const stream = open(1);
    expect(accepted(stream)).toBe(perFlush);
    let isAccepted = false;
    stream.write(message, () => {
      isAccepted = true;
    });
    expect([isAccepted, writes.length]).toEqual([false, perFlush]);
    await flushed();
    expect([isAccepted, writes.length]).toEqual([true, perFlush + 1]);
    expect(accepted(stream)).toBe(perFlush);
  });

  test("are not accepted at once while the operating system has not taken what was written", () => {
    const world = new World();
    const stream = world.open(1);
    world.unwritten = 1;
    expect(stream.writeAtOnce(message)).toBe(false);
    world.unwritten = 0;
    expect(stream.writeAtOnce(message)).toBe(true);
  });

  test("that were accepted are written ahead of what Node.js writes", () => {
    const world = new World();
    const stream = world.open(1);
    world.open(3);
    stream.writeAtOnce(message);
    world.writer.writeAccepted();
    expect(world.writes).toEqual([head + 1_024]);
  });

  test("are not written to a connection that was closed", async () => {
    const world = new World();
    const stream = world.open(1);
    world.open(3);
    stream.writeAtOnce(message);
    world.writer.close();
    await flushed();
    expect([world.writes, stream.writeAtOnce(message)]).toEqual([[], false]);
  });
});

function bound(world: World): { open: (id: number) => FramedStream; writes: number[] } {
  return { open: (id) => world.open(id), writes: world.writes };
}
