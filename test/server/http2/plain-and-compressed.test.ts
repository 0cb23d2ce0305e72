import { status } from "@grpc/grpc-js";
import { describe, expect, test } from "vitest";
import { listWatchService } from "../../../src/wire/services.ts";
import { serveThings } from "../served.ts";
import { compressed, describeWatchCalls } from "../watch-calls.ts";
import { framed, RawConnection } from "./raw-connection.ts";

const { Watch } = listWatchService;
const request = Watch.requestSerialize({ resource: "things" });

describeWatchCalls("straight on its HTTP/2 stream");

describe("A call of Watch", () => {
  test.each([
    [
      "has a prefix above the largest request",
      Buffer.from([0, 0xff, 0xff, 0xff, 0xff]),
      status.RESOURCE_EXHAUSTED,
    ],
    [
      "sends less than its prefix announces",
      framed(request).subarray(0, -1),
      status.INVALID_ARGUMENT,
    ],
    ["ends within the prefix", Buffer.from([0, 0, 0]), status.INVALID_ARGUMENT],
    ["is compressed without an encoding", compressed(request), status.INTERNAL],
  ])("that %s is refused", async (_name, bytes, code) => {
    const { server } = await serveThings();
    const call = new RawConnection(server.port).open(Watch.path);
    call.stream.end(bytes);
    expect((await call.drain().ended).code).toBe(code);
    expect(server.openStreams).toBe(0);
  });

  test("whose client disconnects is counted as cancelled", async () => {
    const { server, recorder } = await serveThings();
    const call = new RawConnection(server.port).call(Watch.path, request);
    await call.messages().next();
    call.cancel();
    await recorder.untilEnded(1);
    expect(recorder.calls[0]?.code).toBe("CANCELLED");
  });

  test("that is not gRPC is refused with an HTTP status", async () => {
    const { server } = await serveThings();
    const call = new RawConnection(server.port).open(Watch.path, { "content-type": "text/plain" });
    call.stream.end();
    expect((await call.drain().answered)[":status"]).toBe(415);
  });
});
