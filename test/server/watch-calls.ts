import { gzipSync } from "node:zlib";
import { status } from "@grpc/grpc-js";
import { describe, expect, test } from "vitest";
import { listWatchService } from "../../src/wire/services.ts";
import { framed, type RawCall, RawConnection } from "./http2/raw-connection.ts";
import { type Served, type ServedBy, serveThings } from "./served.ts";

const { Watch } = listWatchService;
const request = Watch.requestSerialize({ resource: "things" });
const maxRequestBytes = 2 * 1024 ** 2;

/** A compressed message in gRPC's framing. */
export function compressed(message: Uint8Array): Buffer {
  const frame = framed(gzipSync(message));
  frame[0] = 1;
  return frame;
}

/** The same call twice, compressed and not. */
const ways = [
  ["plain", {}, framed],
  ["compressed", { "grpc-encoding": "gzip" }, compressed],
] as const;

/** Tests for a call of Watch, for each way in which it is served. */
export function describeWatchCalls(
  servedHow: string,
  serveIt: () => Promise<Omit<Served, "server"> & { readonly server: ServedBy }> = serveThings,
): void {
  describe.each(ways)(`A call of Watch that is %s, ${servedHow},`, (_name, headers, frame) => {
    async function open(): Promise<
      Awaited<ReturnType<typeof serveIt>> & { call: RawCall; raw: RawConnection }
    > {
      const served = await serveIt();
      const raw = new RawConnection(served.server.port);
      return { ...served, raw, call: raw.open(Watch.path, headers) };
    }

    test("gets a bookmark, then the changes", async () => {
      const { call, storage } = await open();
      call.stream.end(frame(request));
      const messages = call.messages();
      const { value: bookmark } = await messages.next();
      expect(Watch.responseDeserialize(bookmark)).toMatchObject({ events: [], revision: "1" });
      await storage.put({ key: "a", value: Buffer.from("x") });
      const { value: news } = await messages.next();
      const { events, revision } = Watch.responseDeserialize(news);
      expect([events.map((event) => event.object?.key), revision]).toEqual([["a"], "2"]);
    });

    test("may arrive byte by byte", async () => {
      const { call } = await open();
      for (const byte of frame(request)) call.stream.write(Buffer.of(byte));
      call.stream.end();
      const { value } = await call.messages().next();
      expect(Watch.responseDeserialize(value).revision).toBe("1");
    });

    test("gets the reason why its request is refused", async () => {
      const { call, server } = await open();
      call.stream.end(frame(Watch.requestSerialize({ resource: "others" })));
      const { code, message } = await call.drain().ended;
      expect([code, message]).toEqual([status.NOT_FOUND, expect.stringContaining('"others"')]);
      expect(server.openStreams).toBe(0);
    });

    test("is refused without a message", async () => {
      const { call } = await open();
      call.stream.end();
      expect((await call.drain().ended).code).toBe(status.UNIMPLEMENTED);
    });

    test("is refused with two messages", async () => {
      const { call } = await open();
      call.stream.end(Buffer.concat([frame(request), frame(request)]));
      expect((await call.drain().ended).code).toBe(status.UNIMPLEMENTED);
    });

    test("is refused above the largest request", async () => {
      const { call } = await open();
      const large = Watch.requestSerialize({ resource: "x".repeat(maxRequestBytes) });
      call.stream.end(frame(large));
      expect((await call.drain().ended).code).toBe(status.RESOURCE_EXHAUSTED);
    });

    test("counts as open until its client disconnects", async () => {
      const { call, server } = await open();
      call.stream.end(frame(request));
      await call.messages().next();
      expect(server.openStreams).toBe(1);
      call.cancel();
      while (server.openStreams > 0) await new Promise((resolve) => setImmediate(resolve));
    });

    test("ends with the status after the responses", async () => {
      const { call, cacher } = await open();
      call.stream.end(frame(request));
      const messages = call.messages();
      await messages.next();
      cacher.drain();
      const { value: bookmark } = await messages.next();
      expect(Watch.responseDeserialize(bookmark).revision).toBe("1");
      await expect(messages.next()).rejects.toThrow("ended");
      const { code, message } = await call.ended;
      expect([code, message]).toEqual([status.UNAVAILABLE, expect.stringMatching(/[Rr]esume/)]);
    });
  });
}
