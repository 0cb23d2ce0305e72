import { constants } from "node:http2";
import { connect } from "node:net";
import { setImmediate as nextTurn } from "node:timers/promises";
import { gzipSync } from "node:zlib";
import { status } from "@grpc/grpc-js";
import { describe, expect, onTestFinished, test } from "vitest";
import { listWatchService, writeService } from "../../../src/wire/services.ts";
import { type Served, serveThings } from "../served.ts";
import { framed, type RawCall, RawConnection } from "./raw-connection.ts";

const resource = "things";
const { Watch } = listWatchService;
const { Put } = writeService;
const put = framed(Put.requestSerialize({ resource, key: "a", value: Buffer.from("x") }));

/** A Put of which all but the last bytes have come. */
async function halfPut(headers: Record<string, string> = {}): Promise<Served & { call: RawCall }> {
  const served = await serveThings();
  const call = new RawConnection(served.server.port).open(Put.path, headers);
  call.stream.write(put.subarray(0, -3));
  await served.recorder.untilStarted(1);
  return { ...served, call };
}

/** What stands once everything that was sent has been dealt with. */
async function standing({ client, recorder }: Served): Promise<number> {
  const { items } = await client.list({ resource });
  while (recorder.open > 0) await new Promise((resolve) => setImmediate(resolve));
  return items.length;
}

describe("A write whose call has ended before its request had come", () => {
  test("is not carried out when the rest comes after the deadline", async () => {
    const served = await halfPut({ "grpc-timeout": "5S" });
    served.clock.advance(5_000);
    served.call.stream.end(put.subarray(-3));
    expect((await served.call.drain().ended).code).toBe(status.DEADLINE_EXCEEDED);
    expect(await standing(served)).toBe(0);
  });

  test("is not carried out when the rest comes to a server that has refused it to shut down", async () => {
    const served = await halfPut();
    const other = new RawConnection(served.server.port);
    const drained = served.server.drain(10_000);
    served.clock.advance(1_000);
    served.call.stream.end(put.subarray(-3));
    expect((await served.call.drain().ended).code).toBe(status.UNAVAILABLE);
    served.clock.advance(1_000);
    await drained;
    other.session.destroy();
    const { items } = await served.storage.list({ prefix: "", limit: 0, at: { match: "ANY" } });
    expect(items).toEqual([]);
  });

  test.each([constants.NGHTTP2_CANCEL, constants.NGHTTP2_NO_ERROR])(
    "is not carried out when its client has sent all of it and resets with %i instead of ending it",
    async (code) => {
      const served = await serveThings();
      const socket = connect(served.server.port, "127.0.0.1");
      onTestFinished(() => void socket.destroy());
      socket.resume().write(Buffer.concat([preface, http2Frame(4, 0, Buffer.alloc(0))]));
      socket.write(http2Frame(1, endHeaders, putHeaders, 1));
      socket.write(http2Frame(0, 0, put, 1));
      await served.recorder.untilStarted(1);
      const reset = Buffer.alloc(4);
      reset.writeUInt32BE(code);
      socket.write(http2Frame(3, 0, reset, 1));
      await served.recorder.untilEnded(1);
      expect(await standing(served)).toBe(0);
    },
  );
});

const preface = Buffer.from("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n");
const endHeaders = 4;

/** A frame as RFC 9113 has it: what Node.js's own client would never send can only be written by hand. */
function http2Frame(type: number, flags: number, payload: Buffer, stream = 0): Buffer {
  const head = Buffer.alloc(9);
  head.writeUIntBE(payload.length, 0, 3);
  head[3] = type;
  head[4] = flags;
  head.writeUInt32BE(stream, 5);
  return Buffer.concat([head, payload]);
}

const putHeaders = Buffer.concat(
  Object.entries({
    ":method": "POST",
    ":scheme": "http",
    ":authority": "x",
    ":path": Put.path,
    "content-type": "application/grpc",
    te: "trailers",
  }).map(([name, value]) => Buffer.concat([Buffer.of(0), text(name), text(value)])),
);

/** A literal of HPACK, not compressed. */
function text(literal: string): Buffer {
  return Buffer.concat([Buffer.of(literal.length), Buffer.from(literal)]);
}

describe("A request that does not come whole", () => {
  test("is not waited for longer than a minute", async () => {
    const { call, clock } = await halfPut();
    clock.advance(59_000);
    expect(call.stream.closed).toBe(false);
    // In steps, as the stream is reset if the client has not taken its end within a second.
    for (let step = 0; step < 20; step++) {
      clock.advance(500);
      await nextTurn();
    }
    expect((await call.drain().ended).code).toBe(status.DEADLINE_EXCEEDED);
  });

  test("does not hold up a server that shuts down, compressed or not", async () => {
    for (const headers of [{}, { "grpc-encoding": "gzip" }]) {
      const { server, clock, recorder } = await serveThings();
      const call = new RawConnection(server.port).open(Watch.path, headers);
      call.stream.write(gzipSync(put).subarray(0, 4));
      await recorder.untilStarted(1);
      const drained = server.drain(10_000);
      clock.advance(1_000);
      await call.drain().ended;
      clock.advance(1_000);
      await drained;
    }
  });

  test("is told the status at once, and that the rest is not wanted", async () => {
    const { server } = await serveThings();
    const call = new RawConnection(server.port).open(Put.path);
    call.stream.write(Buffer.from([0, 0xff, 0xff, 0xff, 0xff]));
    const { code, reset } = await call.drain().ended;
    expect([code, reset]).toEqual([status.RESOURCE_EXHAUSTED, constants.NGHTTP2_NO_ERROR]);
  });
});
