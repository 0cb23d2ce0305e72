import { pino } from "pino";
import { describe, expect, test, vi } from "vitest";
import { listWatchService } from "../../../src/wire/services.ts";
import { patienceMs } from "../../faults/patience.ts";
import { RawConnection } from "../http2/raw-connection.ts";
import { Recorder, serveThings } from "../served.ts";
import { behindProxy, forwarded } from "./tokens.ts";

const resource = "things";
const { Get, List, Watch } = listWatchService;
const get = Get.requestSerialize({ resource, key: "a" });
const list = List.requestSerialize({ resource });
const watch = Watch.requestSerialize({ resource });

/** Serves callers behind a proxy on this machine, or others with `isTrusted` false. */
async function serveProxy(limits: object, isTrusted = true) {
  const lines = new Recorder();
  const logger = pino({ level: "warn" }, lines);
  const authenticators = isTrusted ? behindProxy() : trustingAnother();
  const served = await serveThings({ server: { authenticators, limits, logger } });
  return { ...served, lines };
}

/** Trusts a proxy by its certificate, so none that connects without one. */
function trustingAnother() {
  return behindProxy({ loopback: false, names: new Set(["another proxy"]) });
}

async function cancel(raw: RawConnection, count: number, fields: Record<string, string>) {
  const calls = Array.from({ length: count }, () => raw.open(Get.path, fields).drain());
  // Node.js sends the headers before it sends a reset.
  await new Promise((resolve) => setImmediate(resolve));
  for (const call of calls) call.cancel();
  await Promise.all(calls.map(({ ended }) => ended));
}

describe("On a connection that a trusted proxy shares between identities", () => {
  test("one may cancel calls as it likes: its own are refused then, and the connection stays", async () => {
    const limits = { maxStreamsPerConnection: 500, maxCancelsPerSecond: 10 };
    const { server, storage, lines, clock } = await serveProxy(limits);
    const raw = new RawConnection(server.port);
    const honest = raw.call(Watch.path, watch, forwarded("honest"));
    const events = honest.messages();
    await events.next();
    for (let i = 0; i < 6; i++) await cancel(raw, 100, forwarded("hostile"));

    const refused = await raw.call(Get.path, get, forwarded("hostile")).drain().ended;
    expect(refused).toMatchObject({ code: 8 });
    expect(refused.message).toContain(
      'The identity "hostile" cancels more than 10 calls per second',
    );
    expect((await raw.call(List.path, list, forwarded("honest")).drain().ended).code).toBe(0);
    await storage.put({ key: "a", value: Buffer.from("1") });
    expect((await events.next()).done).toBe(false);
    expect(lines.logged.map((line) => JSON.parse(line))).toMatchObject([
      { limit: "cancel_rate", caller: 'the identity "hostile"' },
    ]);
    expect(server.stats().callers.refused.get("cancel_rate")).toBe(1);
    clock.advance(1_000);
    expect((await raw.call(Get.path, get, forwarded("hostile")).drain().ended).code).toBe(0);
  });

  test("one has cancelled none of the calls that end with the connection", async () => {
    const limits = { maxStreamsPerConnection: 200, maxCancelsPerSecond: 1 };
    const { server, clock } = await serveProxy(limits);
    for (let i = 0; i < 3; i++) {
      const raw = new RawConnection(server.port);
      const calls = Array.from({ length: 180 }, () =>
        raw.call(Watch.path, watch, forwarded("one")).drain(),
      );
      await Promise.all(calls.map(({ answered }) => answered));
      raw.drop();
      await vi.waitFor(() => {
        clock.runImmediates();
        expect(server.openStreams).toBe(0);
      }, 60_000);
    }
    const raw = new RawConnection(server.port);
    expect((await raw.call(List.path, list, forwarded("one")).drain().ended).code).toBe(0);
  });

  test("one may replace all of the calls that the connection may have: it stays open", async () => {
    const limits = { maxStreamsPerConnection: 500 };
    const { server } = await serveProxy(limits);
    const raw = new RawConnection(server.port);
    const open = () =>
      Array.from({ length: limits.maxStreamsPerConnection }, () =>
        raw.call(Watch.path, watch, forwarded("hostile")).drain(),
      );
    const first = open();
    await Promise.all(first.map(({ answered }) => answered));
    for (const call of first) call.cancel();
    // Those that are read in the same turn are refused, one by one.
    const second = open();
    await Promise.all(second.map(({ answered, ended }) => Promise.race([answered, ended])));
    for (const call of second) call.cancel();
    await vi.waitFor(() => expect(server.openStreams).toBe(0), patienceMs);
    expect((await raw.call(List.path, list, forwarded("honest")).drain().ended).code).toBe(0);
  });

  test("none of them makes a connection count for it, or closes it", async () => {
    const { server } = await serveProxy({ maxConnectionsPerIdentity: 1 });
    for (let i = 0; i < 3; i++) {
      const raw = new RawConnection(server.port);
      for (const name of ["alice", "bob"]) {
        expect((await raw.call(List.path, list, forwarded(name)).drain().ended).code).toBe(0);
      }
    }
    expect(server.connections).toBe(3);
    expect(server.stats().callers.most.connections).toBe(0);
  });
});

test("A connection of another client is closed if it cancels far more calls than it may", async () => {
  const limits = { maxStreamsPerConnection: 500, maxCancelsPerSecond: 10 };
  const { server } = await serveProxy(limits, false);
  const raw = new RawConnection(server.port);
  const closed = new Promise((resolve) => raw.session.once("close", resolve));
  for (let i = 0; i < 5; i++) await cancel(raw, 90, forwarded("hostile"));
  expect(server.connections).toBe(1);
  void cancel(raw, 90, forwarded("hostile"));
  await closed;
  await vi.waitFor(() => expect(server.stats().attacks.get("rapid_reset")).toBe(1), patienceMs);
});
