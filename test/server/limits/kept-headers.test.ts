import { describe, expect, test } from "vitest";
import { healthService, listWatchService, reflectionServices } from "../../../src/wire/services.ts";
import { heldBytes } from "../../heap.ts";
import { RawConnection } from "../http2/raw-connection.ts";
import { serveThings } from "../served.ts";

const { Get, Watch } = listWatchService;
const Reflection = reflectionServices[0]?.ServerReflectionInfo ?? { path: "" };
const resource = "things";
const kibibyte = 1024;

/** One text for all calls: the client, which is in the same process, has it once. */
const long = "l".repeat(15_000);

describe("Of the headers of a call", () => {
  test.each([
    ["of an incomplete request", Get.path],
    ["of a stream of requests", Reflection.path],
  ])("none of 15 kB is retained %s", async (_what, path) => {
    const { server, recorder } = await serveThings();
    const raw = new RawConnection(server.port);
    const open = (): void => {
      const call = raw.open(path, { "grpc-encoding": long, metadata: long.slice(0, 500) });
      call.stream.write(Buffer.of(0));
    };
    for (let i = 0; i < 20; i++) open();
    await recorder.untilStarted(20);
    const before = heldBytes();
    for (let i = 0; i < 100; i++) open();
    await recorder.untilStarted(120);
    expect((heldBytes() - before) / 100).toBeLessThan(14 * kibibyte);
  });

  test.each([
    ["authority", ":authority", 513],
    ["scheme", ":scheme", 17],
  ])(
    "a long %s, which Node.js retains with the stream, is refused",
    async (_what, name, length) => {
      const { server } = await serveThings();
      const raw = new RawConnection(server.port);
      for (const [characters, reset] of [
        [length - 1, 8],
        [length, 11],
      ] as const) {
        const call = raw.open(healthService.Watch.path, { [name]: "h".repeat(characters) });
        if (reset === 8) {
          call.stream.end(Buffer.alloc(5));
          await call.answered;
          call.cancel();
        }
        expect((await call.drain().ended).reset).toBe(reset);
      }
    },
  );

  test("the authority counts as a retained part of the request", async () => {
    const { server } = await serveThings();
    const raw = new RawConnection(server.port);
    const open = async (authority: string): Promise<number> => {
      const request = Watch.requestSerialize({ resource, prefix: "p".repeat(700) });
      await raw.call(Watch.path, request, { ":authority": authority }).answered;
      return server.stats().retained.bytes;
    };
    expect(await open("a")).toBe(0);
    expect(await open("a".repeat(500))).toBeGreaterThan(1_200);
  });
});
