import type { Socket } from "node:net";
import { describe, expect, test } from "vitest";
import { FrameBatch } from "../../../../src/server/http2/frames/data-frames.ts";
import { FrameSender } from "../../../../src/server/http2/frames/frame-sender.ts";
import type { FramedStream } from "../../../../src/server/http2/frames/framed-stream.ts";
import fc from "../../../property.ts";

/** A sender, and the writes that it makes. */
class World {
  readonly writes: Buffer[] = [];
  /** The buffers that were passed to the socket. */
  readonly passed: Buffer[] = [];
  readonly batch = new FrameBatch();
  ready = 0;
  /** What was sent at once: stream ids, and whether it is alone. */
  readonly atOnce: [number, boolean][] = [];
  /** Whether the connection can send at once. */
  isFree = true;
  readonly sender = new FrameSender(10, {
    ready: () => {
      this.ready++;
    },
    sendAtOnce: (id, _message, isAlone) => {
      if (this.isFree) this.atOnce.push([id, isAlone]);
      return this.isFree;
    },
  });
  readonly #socket = {
    cork: () => {},
    uncork: () => {},
    write: (bytes: Buffer) => {
      this.writes.push(Buffer.from(bytes));
      this.passed.push(bytes);
    },
  } as unknown as Socket;

  /** A stream whose headers are sent. */
  open(id: number): FramedStream {
    this.sender.open(id);
    const stream = this.sender.stream(id);
    if (stream === undefined) throw new Error(`There is no stream ${id}.`);
    stream.headersSent();
    return stream;
  }

  /** Sends one write. Returns its frames: stream id and payload. */
  flush(): [number, string][] {
    this.writes.length = 0;
    this.sender.collect(this.batch, []);
    if (!this.batch.isEmpty) this.batch.write(this.#socket, () => {});
    const bytes = Buffer.concat(this.writes);
    const frames: [number, string][] = [];
    for (let at = 0; at < bytes.length; ) {
      const end = at + 9 + bytes.readUIntBE(at, 3);
      frames.push([bytes.readUInt32BE(at + 5), bytes.toString("latin1", at + 9, end)]);
      at = end;
    }
    return frames;
  }
}

const ignore = (): void => {};

describe("The messages of a connection", () => {
  test("leave in one write, each in its frame", () => {
    const world = new World();
    for (const id of [1, 3, 5]) world.open(id).write(Buffer.from(`to ${id}`), ignore);
    expect(world.flush()).toEqual([
      [1, "to 1"],
      [3, "to 3"],
      [5, "to 5"],
    ]);
    expect(world.writes).toHaveLength(1);
    expect(world.flush()).toEqual([]);
  });

  test("leave nothing behind when their streams end before the connection has a window for them", () => {
    const world = new World();
    world.open(1).write(Buffer.alloc(65_535), ignore);
    for (let write = 0; write < 8; write++) world.flush();
    for (let id = 3; id < 2_003; id += 2) {
      world.open(id).write(Buffer.from(`to ${id}`), ignore);
      if (id !== 1_003) world.sender.close(id);
    }
    world.open(2_003).write(Buffer.from("last"), ignore);
    const kept = world.sender.stream(1_003);
    // Linked to each other alone.
    expect([kept?.previous, kept?.next?.id, kept?.next?.next]).toEqual([
      undefined,
      2_003,
      undefined,
    ]);
    world.sender.windowUpdateReceived(0, 1_000);
    expect(world.flush()).toEqual([
      [1_003, "to 1003"],
      [2_003, "last"],
    ]);
    expect(world.sender.canSend).toBe(false);
  });

  test("wait for their headers", () => {
    const world = new World();
    world.sender.open(1);
    const stream = world.sender.stream(1);
    stream?.write(Buffer.from("x"), ignore);
    expect(world.flush()).toEqual([]);
    stream?.headersSent();
    expect(world.flush()).toEqual([[1, "x"]]);
  });

  test("take turns, a frame each, up to 256 KiB a write", () => {
    const world = new World();
    world.sender.windowUpdateReceived(0, 2 ** 24);
    for (const id of [1, 3]) {
      const stream = world.open(id);
      world.sender.windowUpdateReceived(id, 2 ** 24);
      stream.write(Buffer.alloc(200_000, id), ignore);
    }
    const frames = world.flush();
    expect(frames.slice(0, 4).map(([id, { length }]) => [id, length])).toEqual([
      [1, 16_384],
      [3, 16_384],
      [1, 16_384],
      [3, 16_384],
    ]);
    expect(frames.reduce((sum, [, { length }]) => sum + length, 0)).toBe(16 * 16_384);
  });

  test("have parts, which frames do not cut without need", () => {
    const world = new World();
    world.sender.settingsReceived({ initialWindow: undefined, maxFrameSize: 20_000 });
    world.sender.settingsAcknowledged();
    const stream = world.open(1);
    const parts = [1, 0, 5_000, 30_000, 2_500, 0].map((size, i) => Buffer.alloc(size, 65 + i));
    stream.writeParts(parts);
    const sent = world.flush();
    expect(sent.map(([, { length }]) => length)).toEqual([5_001, 20_000, 12_500]);
    expect(sent.map(([, text]) => text).join("")).toBe(Buffer.concat(parts).toString("latin1"));
    // A whole part needs no view.
    expect(world.passed).toContain(parts[4]);
  });

  test("have parts of any size, and windows as well", () => {
    const sizes = fc.array(fc.oneof(fc.nat(40_000), fc.constant(16_384)), { maxLength: 8 });
    const windows = fc.array(fc.integer({ min: 1, max: 40_000 }), { minLength: 1, maxLength: 8 });
    // A message in parts, or one of this size.
    const messages = fc.array(fc.oneof(sizes, fc.integer({ min: 1, max: 40_000 })), {
      maxLength: 3,
    });
    fc.assert(
      fc.property(
        messages,
        windows,
        fc.constantFrom(16_384, 20_000, 65_536),
        (sent, updates, maxFrameSize) => {
          const world = new World();
          world.sender.settingsReceived({ initialWindow: 0, maxFrameSize });
          world.sender.settingsAcknowledged();
          world.sender.windowUpdateReceived(0, 2 ** 24);
          const stream = world.open(1);
          let update = 0;
          let granted = 0;
          for (const message of sent) {
            const parts = [message].flat().map((size, i) => Buffer.alloc(size, 65 + i));
            const whole = Buffer.concat(parts).toString("latin1");
            if (Array.isArray(message)) stream.writeParts(parts, ignore);
            else stream.write(parts[0] ?? Buffer.of(), ignore);
            let text = "";
            while (text.length < whole.length) {
              const window = updates[update++ % updates.length] as number;
              world.sender.windowUpdateReceived(1, window);
              granted += window;
              const payloads = world.flush().map(([, payload]) => payload);
              for (const { length } of payloads) expect(length).toBeLessThanOrEqual(maxFrameSize);
              const flushed = payloads.join("");
              // What the last message left of the window is used as well.
              expect(flushed.length).toBe(Math.min(granted, whole.length - text.length));
              granted -= flushed.length;
              for (let next = 1; next < payloads.length - 1; next++) {
                const [first = "", second = ""] = payloads.slice(next - 1);
                // The second begins with a part that did not fit the first.
                expect(first.length + second.length).toBeGreaterThanOrEqual(maxFrameSize);
              }
              text += flushed;
            }
            expect(text).toBe(whole);
            expect(stream.remaining).toBe(0);
          }
        },
      ),
    );
  });

  test("wait for the window of the connection, and those of their streams", () => {
    const world = new World();
    world.sender.settingsReceived({ initialWindow: 3, maxFrameSize: undefined });
    world.open(1).write(Buffer.alloc(65_533, "a"), ignore);
    world.flush();
    world.flush();
    expect(world.sender.canSend).toBe(false);
    world.open(3).write(Buffer.from("bcdefg"), ignore);
    // 2 bytes are left of the connection's window.
    expect(world.flush()).toEqual([[3, "bc"]]);
    world.sender.settingsAcknowledged();
    const before = world.ready;
    expect(world.sender.windowUpdateReceived(0, 100)).toBe("taken");
    expect(world.ready).toBe(before + 1);
    expect(world.flush()).toEqual([[3, "d"]]);
    expect(world.sender.windowUpdateReceived(3, 2)).toBe("taken");
    expect(world.flush()).toEqual([[3, "ef"]]);
    world.sender.settingsReceived({ initialWindow: 4, maxFrameSize: undefined });
    expect(world.flush()).toEqual([]);
    // New settings apply when they are acknowledged.
    world.sender.settingsAcknowledged();
    expect(world.flush()).toEqual([[3, "g"]]);
  });

  test("are withdrawn whole, or not at all once a part is sent", () => {
    const world = new World();
    const [waiting, begun] = [world.open(1), world.open(3)];
    waiting.write(Buffer.from("withdrawn"), () => {
      throw new Error("It was neither accepted nor refused.");
    });
    begun.write(Buffer.alloc(100_000, "x"), ignore);
    expect(waiting.withdraw()).toBe(true);
    expect(world.flush().map(([id]) => id)).not.toContain(1);
    expect([begun.withdraw(), waiting.withdraw()]).toEqual([false, false]);
    world.sender.windowUpdateReceived(0, 100_000);
    waiting.write(Buffer.from("next"), ignore);
    expect(world.flush()).toContainEqual([1, "next"]);
  });

  test("are dropped with their stream, and their sender learns of it once it is closed", () => {
    const world = new World();
    const stream = world.open(1);
    let failure: Error | null | undefined;
    stream.write(Buffer.from("x"), (error) => {
      failure = error;
    });
    world.sender.close(1);
    expect(world.flush()).toEqual([]);
    expect(failure).toBeUndefined();
    // Once Node.js has closed it.
    stream.close();
    expect(failure).toBeInstanceOf(Error);
    expect(world.sender.size).toBe(0);
  });
});

describe("A small message", () => {
  const small = Buffer.alloc(2_048);

  test("of the only stream is not alone if another one follows", () => {
    const world = new World();
    const stream = world.open(1);
    for (const isFollowed of [true, false]) stream.writeAtOnce(small, isFollowed);
    expect(world.atOnce).toEqual([
      [1, false],
      [1, true],
    ]);
  });

  test("is sent at once, from its stream's window and the connection's", () => {
    const world = new World();
    const stream = world.open(1);
    expect(stream.writeAtOnce(small)).toBe(true);
    world.open(3);
    expect(stream.writeAtOnce(small)).toBe(true);
    expect(world.atOnce).toEqual([
      [1, true],
      [1, false],
    ]);
    // 65,535 less two of 2,048.
    stream.write(Buffer.alloc(65_535), ignore);
    const sent = [...world.flush(), ...world.flush()];
    expect(sent.reduce((sum, [, { length }]) => sum + length, 0)).toBe(61_439);
  });

  test.each<[string, (world: World, stream: FramedStream) => void]>([
    ["another message waits", (world) => world.open(3).write(Buffer.from("x"), ignore)],
    ["its stream has one that is not sent", (_, stream) => stream.write(small, ignore)],
    ["its stream's window is too small", (world) => world.sender.dataSent(1, 65_535 - 2_047)],
    [
      "the connection's window is too small",
      (world) => {
        world.sender.dataSent(99, 65_535 - 2_047);
      },
    ],
    ["its stream has ended", (world) => world.sender.close(1)],
    [
      "the connection is not free",
      (world) => {
        world.isFree = false;
      },
    ],
  ])("is not sent at once if %s", (_, prepare) => {
    const world = new World();
    const stream = world.open(1);
    prepare(world, stream);
    expect(stream.writeAtOnce(small)).toBe(false);
    expect(world.atOnce).toEqual([]);
  });

  test("is not sent at once ahead of its headers", () => {
    const world = new World();
    world.sender.open(1);
    expect(world.sender.stream(1)?.writeAtOnce(small)).toBe(false);
  });

  test("is one of at most 2 KiB", () => {
    expect(new World().open(1).writeAtOnce(Buffer.alloc(2_049))).toBe(false);
  });
});

describe("A connection", () => {
  test("knows a stream from its first HEADERS until its end, and no id twice", () => {
    const { sender } = new World();
    sender.open(1);
    sender.close(1);
    sender.open(1);
    expect(sender.size).toBe(0);
    expect(sender.windowUpdateReceived(1, 1)).toBe("passed");
  });

  test("opens no streams above the last one that a GOAWAY names", () => {
    const { sender } = new World();
    sender.open(1);
    sender.serveUpTo(1);
    sender.open(3);
    expect(sender.size).toBe(1);
  });

  test("has at most twice as many streams as it may", () => {
    const { sender } = new World();
    const opened = Array.from({ length: 21 }, (_, i) => sender.open(2 * i + 1));
    expect(opened.indexOf(false)).toBe(20);
  });

  test("has at most 2,000 settings that are not acknowledged", () => {
    const { sender } = new World();
    const settings = { initialWindow: 1, maxFrameSize: undefined };
    const taken = Array.from({ length: 2_001 }, () => sender.settingsReceived(settings));
    expect(taken.indexOf(false)).toBe(2_000);
  });
});
