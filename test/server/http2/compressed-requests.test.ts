import { deflateSync, gzipSync } from "node:zlib";
import { status } from "@grpc/grpc-js";
import { describe, expect, test } from "vitest";
import { listWatchService, writeService } from "../../../src/wire/services.ts";
import { ManualTimers } from "../limits/manual-timers.ts";
import { ScriptedResource } from "../scripted-resource.ts";
import { serve, serveThings } from "../served.ts";
import { framed, RawConnection } from "./raw-connection.ts";

const resource = "things";
const { Get, Subscribe } = listWatchService;
const { Put } = writeService;

function compressed(message: Uint8Array, compress: (bytes: Uint8Array) => Buffer): Buffer {
  const frame = framed(compress(message));
  frame[0] = 1;
  return frame;
}

const large = Put.requestSerialize({ resource, key: "a", value: Buffer.alloc(1_900_000) });

describe("Compressed requests", () => {
  test.each([
    ["gzip", gzipSync],
    ["deflate", deflateSync],
  ] as const)("are read: %s", async (encoding, compress) => {
    const { server } = await serveThings();
    const call = new RawConnection(server.port).open(Put.path, { "grpc-encoding": encoding });
    const message = Put.requestSerialize({ resource, key: "a", value: Buffer.from("x") });
    call.stream.end(compressed(message, compress));
    const { value } = await call.messages().next();
    expect(Put.responseDeserialize(value).object?.value.toString()).toBe("x");
  });

  test("may contain uncompressed messages", async () => {
    const { server } = await serveThings();
    const call = new RawConnection(server.port).open(Get.path, { "grpc-encoding": "snappy" });
    call.stream.end(framed(Get.requestSerialize({ resource, key: "a" })));
    expect((await call.drain().ended).code).toBe(status.NOT_FOUND);
  });

  test.each([
    ["with an unknown encoding", "snappy", gzipSync(large), status.UNIMPLEMENTED],
    ["and are damaged", "gzip", Buffer.alloc(100, 7), status.INTERNAL],
    ["and are truncated", "gzip", gzipSync(large).subarray(0, -20), status.INTERNAL],
    ["with another encoding than they state", "gzip", deflateSync(large), status.INTERNAL],
    [
      "and inflate to more than the largest request",
      "gzip",
      gzipSync(Buffer.alloc(3_000_000)),
      status.RESOURCE_EXHAUSTED,
    ],
  ])("that are compressed %s are refused", async (_what, encoding, bytes, code) => {
    const { server } = await serveThings();
    const call = new RawConnection(server.port).open(Put.path, { "grpc-encoding": encoding });
    const frame = framed(bytes);
    frame[0] = 1;
    call.stream.end(frame);
    expect((await call.drain().ended).code).toBe(code);
  });

  test("on a stream of requests are refused as well if they inflate to more than the largest", async () => {
    const { server } = await serveThings();
    const call = new RawConnection(server.port).open(Subscribe.path, { "grpc-encoding": "gzip" });
    call.stream.write(compressed(Buffer.alloc(3_000_000), gzipSync));
    expect((await call.drain().ended).code).toBe(status.RESOURCE_EXHAUSTED);
  });

  test("of a few bytes do not all inflate at once: the bytes in progress are bounded per connection", async () => {
    const scripted = new ScriptedResource();
    const { server, client } = await serve(new Map([[resource, scripted]]), new ManualTimers());
    let underWay = 0;
    scripted.answer = () => {
      underWay++;
      return new Promise(() => {});
    };
    const raw = new RawConnection(server.port);
    const bomb = compressed(large, gzipSync);
    expect(bomb.length).toBeLessThan(2_500);
    let open = 60;
    for (let i = 0; i < 60; i++) {
      const call = raw.open(Put.path, { "grpc-encoding": "gzip" });
      call.stream.end(bomb);
      void call.drain().ended.then(() => open--);
    }
    // The others wait, up to 16 MiB, or were refused.
    while (open > 16 || underWay < 8) await new Promise((resolve) => setImmediate(resolve));
    expect(underWay).toBe(8);
    raw.session.destroy();
    expect(client).toBeDefined();
  });
});
