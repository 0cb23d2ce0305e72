import { describe, expect, test } from "vitest";
import { listWatchService } from "../../../src/wire/services.ts";
import { serveThings } from "../served.ts";
import { RawConnection } from "./raw-connection.ts";

const resource = "things";
const { Watch, List } = listWatchService;
const things = Watch.requestSerialize({ resource });

/** Opens watches on one connection, and cancels them all once each has sent a response. */
async function openAndCancel(raw: RawConnection, count: number): Promise<void> {
  const watches = Array.from({ length: count }, () => raw.call(Watch.path, things).drain());
  await Promise.all(watches.map((watch) => watch.answered));
  for (const watch of watches) watch.cancel();
  await Promise.all(watches.map((watch) => watch.ended));
}

describe("A connection", () => {
  test("may cancel as many calls as it may have open, and then make others", async () => {
    const { server, cacher, recorder } = await serveThings({
      server: { limits: { maxStreamsPerConnection: 3_000 } },
    });
    const raw = new RawConnection(server.port);
    await openAndCancel(raw, 2_500);
    const list = raw.call(List.path, List.requestSerialize({ resource })).drain();
    expect((await list.ended).code).toBe(0);
    await recorder.untilEnded(2_501);
    expect(server.openStreams).toBe(0);
    expect(Object.values(cacher.stats().watchers).every((count) => count === 0)).toBe(true);
  });

  test("is closed if it cancels far more at once", async () => {
    const limits = { maxStreamsPerConnection: 100, maxCancelsPerSecond: 1 };
    const { server, client } = await serveThings({ server: { limits } });
    const raw = new RawConnection(server.port);
    const closed = new Promise((resolve) => raw.session.once("close", resolve));
    await openAndCancel(raw, 90);
    void openAndCancel(raw, 90);
    await closed;
    await client.list({ resource });
  });
});
