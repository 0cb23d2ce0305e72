import { expect, test } from "vitest";
import { listWatchService } from "../../src/wire/services.ts";
import { RawConnection } from "../server/http2/raw-connection.ts";
import { serveThings } from "../server/served.ts";

const { Watch } = listWatchService;

test("Connections get a GOAWAY at their maximum age, and their open streams continue.", async () => {
  const limits = { maxStreamAgeMs: 1_000 };
  // The connection gets 90 % of it, and its watch 100 %.
  const shares = [0, 1];
  const random = () => shares.shift() ?? 1;
  const { server, storage, clock } = await serveThings({ server: { limits, random } });
  const raw = new RawConnection(server.port);
  const goaway = new Promise<number>((resolve) => raw.session.once("goaway", resolve));
  const watch = raw.call(Watch.path, Watch.requestSerialize({ resource: "things" }));
  await watch.answered;
  clock.advance(950);
  expect(await goaway).toBe(0);
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
