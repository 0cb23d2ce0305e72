import { expect, test } from "vitest";
import { listWatchService } from "../../src/wire/services.ts";
import { RawConnection } from "../server/http2/raw-connection.ts";
import { serveThings } from "../server/served.ts";

const { Watch } = listWatchService;

test("Connections get a GOAWAY at their maximum age, and their open streams continue.", async () => {
  const limits = { maxStreamAgeMs: 100 };
  const { server, storage } = await serveThings({ server: { limits } });
  const raw = new RawConnection(server.port);
  const goaway = new Promise<number>((resolve) => raw.session.once("goaway", resolve));
  const watch = raw.call(Watch.path, Watch.requestSerialize({ resource: "things" }));
  await watch.answered;
  expect(await goaway).toBe(0);
  // The watch itself ends by the clock, which stands still here.
  const heard = new Promise<void>((resolve) => {
    watch.stream.on("data", (chunk: Buffer) => {
      if (chunk.includes("written since")) resolve();
    });
  });
  await storage.put({ key: "a", value: Buffer.from("written since") });
  await heard;
  expect(watch.stream.closed).toBe(false);
  watch.cancel();
});
