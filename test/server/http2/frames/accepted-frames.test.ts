import type { Socket } from "node:net";
import { describe, expect, test } from "vitest";
import {
  AcceptedFrames,
  SharedFrame,
  WriteBuffers,
  writeBufferBytes,
} from "../../../../src/server/http2/frames/data-frames.ts";

/** A socket that has taken what it was passed, unless it is blocked. */
class FakeSocket {
  readonly written: Buffer[] = [];
  readonly isBlocked: boolean;

  constructor(isBlocked = false) {
    this.isBlocked = isBlocked;
  }

  get writableLength(): number {
    return this.isBlocked ? 1 : 0;
  }

  write(bytes: Buffer): void {
    this.written.push(bytes);
  }
}

function write(frames: AcceptedFrames, socket: FakeSocket, buffers: WriteBuffers): void {
  frames.write(socket as unknown as Socket, buffers);
}

describe("Accepted frames", () => {
  test("are written together, and only once", () => {
    const frames = new AcceptedFrames();
    const socket = new FakeSocket();
    const buffers = new WriteBuffers();
    frames.add(1, Buffer.from("ab"));
    frames.add(0x7fffffff, Buffer.from("c"));
    write(frames, socket, buffers);
    expect(socket.written.map((bytes) => bytes.toString("hex"))).toEqual([
      "000002000000000001616200000100007fffffff63",
    ]);
    expect(frames.isEmpty).toBe(true);
    frames.add(3, Buffer.from("d"));
    write(frames, socket, buffers);
    expect(socket.written[1]?.toString("hex")).toBe("00000100000000000364");
  });

  test.each([
    ["share a buffer with those before, which the operating system has taken", false],
    ["do not overwrite those before, which it has not taken", true],
  ])("%s", (_, isBlocked) => {
    const frames = new AcceptedFrames();
    const socket = new FakeSocket(isBlocked);
    const buffers = new WriteBuffers();
    for (const text of ["first", "other"]) {
      frames.add(1, Buffer.from(text));
      write(frames, socket, buffers);
    }
    const [first, other] = socket.written;
    expect(first?.buffer === other?.buffer).toBe(!isBlocked);
    expect(first?.toString("latin1", 9)).toBe(isBlocked ? "first" : "other");
  });
});

describe("The buffers of writes", () => {
  test.each([
    [1, 4_096],
    [4_096, 4_096],
    [4_097, 16_384],
    [writeBufferBytes, writeBufferBytes],
  ])("have one of a few sizes: for %i bytes, %i", (bytes, size) => {
    expect(new WriteBuffers().acquire(bytes).byteLength).toBe(size);
  });

  test("are at most 32 of a size that are reused; further ones have the size that is needed", () => {
    const buffers = new WriteBuffers();
    const acquired = Array.from({ length: 33 }, () => buffers.acquire(100));
    expect(acquired.map(({ byteLength }) => byteLength)).toEqual([
      ...Array.from({ length: 32 }, () => 4_096),
      100,
    ]);
    for (const buffer of acquired) buffers.release(buffer);
    const again = Array.from({ length: 33 }, () => buffers.acquire(4_096));
    expect(again.filter((buffer) => acquired.includes(buffer))).toHaveLength(32);
    // As large as the others, and still not one of them.
    buffers.discard(again[32] as Buffer);
    expect(acquired.includes(buffers.acquire(200))).toBe(false);
  });

  test("are replaced where the operating system has not taken them", () => {
    const buffers = new WriteBuffers();
    const blocked = Array.from({ length: 32 }, () => buffers.acquire(100));
    for (const buffer of blocked) buffers.discard(buffer);
    const others = Array.from({ length: 32 }, () => buffers.acquire(100));
    expect(others.every(({ byteLength }) => byteLength === 4_096)).toBe(true);
    expect(others.some((buffer) => blocked.includes(buffer))).toBe(false);
  });
});

describe("A shared frame", () => {
  test("is one buffer for a message and a stream id", () => {
    const shared = new SharedFrame();
    const message = Buffer.from("ab");
    const frame = shared.of(1, message);
    expect(frame.toString("hex")).toBe("0000020000000000016162");
    expect(shared.of(1, message)).toBe(frame);
    expect(shared.of(3, message).toString("hex")).toBe("0000020000000000036162");
    expect(shared.of(3, Buffer.from("cd")).toString("hex")).toBe("0000020000000000036364");
    // What was written before is unchanged.
    expect(frame.toString("hex")).toBe("0000020000000000016162");
  });
});
