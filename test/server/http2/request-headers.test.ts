import { status } from "@grpc/grpc-js";
import { describe, expect, test } from "vitest";
import { dropDistantDeadline } from "../../../src/server/http2/request-headers.ts";
import { listWatchService } from "../../../src/wire/services.ts";
import { serveThings } from "../served.ts";
import { RawConnection } from "./raw-connection.ts";

const resource = "things";
const { Watch, Get } = listWatchService;

describe("A deadline", () => {
  test.each(["99999999H", "597H", "35792M", "2147484S"])(
    "that is too long for a timer does not end the call: %s",
    async (timeout) => {
      const { server, client } = await serveThings();
      const raw = new RawConnection(server.port);
      const call = raw.call(Watch.path, Watch.requestSerialize({ resource }), {
        "grpc-timeout": timeout,
      });
      expect((await call.drain().answered)["grpc-status"]).toBeUndefined();
      // If grpc-js ended it at once, it would have done so before the end of another call.
      await client.list({ resource });
      expect(server.openStreams).toBe(1);
      call.cancel();
    },
  );

  test.each([
    ["a second", "1S", 1_000],
    ["a minute", "1M", 60_000],
    ["a millisecond", "1m", 1],
  ])("of %s ends the call and the watch when it has passed", async (_name, timeout, ms) => {
    const { server, recorder, clock } = await serveThings();
    const raw = new RawConnection(server.port);
    const call = raw.call(Watch.path, Watch.requestSerialize({ resource }), {
      "grpc-timeout": timeout,
    });
    await call.drain().answered;
    clock.advance(ms - 1);
    expect(server.openStreams).toBe(1);
    clock.advance(1);
    expect(server.openStreams).toBe(0);
    expect((await call.ended).code).toBe(status.DEADLINE_EXCEEDED);
    await recorder.untilEnded(1);
    expect(recorder.calls[0]?.code).toBe("DEADLINE_EXCEEDED");
  });

  test("also ends a call whose request has not arrived", async () => {
    const { clock, recorder, server } = await serveThings();
    const raw = new RawConnection(server.port);
    const call = raw.open(Watch.path, { "grpc-timeout": "5S" });
    await recorder.untilStarted(1);
    clock.advance(5_000);
    expect((await call.drain().ended).code).toBe(status.DEADLINE_EXCEEDED);
  });

  test("that is invalid is refused by gRPC", async () => {
    const { server } = await serveThings();
    const raw = new RawConnection(server.port);
    const call = raw.call(Get.path, Get.requestSerialize({ resource }), { "grpc-timeout": "soon" });
    expect((await call.drain().ended).code).toBe(status.INTERNAL);
  });

  test.each([
    ["1S", "1S"],
    ["2147483S", "2147483S"],
    ["2147484S", undefined],
    ["99999999m", "99999999m"],
    ["99999999u", "99999999u"],
    ["99999999n", "99999999n"],
    ["596H", "596H"],
    ["597H", undefined],
    ["soon", "soon"],
  ])("%s reaches grpc-js as %s", (given, kept) => {
    const headers = { "grpc-timeout": given };
    dropDistantDeadline(headers);
    expect(headers["grpc-timeout"]).toBe(kept);
  });
});
