import { describe, expect, onTestFinished, test } from "vitest";
import { systemClock } from "../../../src/base/clock.ts";
import type { Endpoint } from "../../../src/client/calls/endpoints.ts";
import type { ConnectOptions } from "../../../src/client/calls/options.ts";
import { type Client, connect } from "../../../src/client/connect.ts";
import { jsonValues } from "../../../src/client/values/value-codec.ts";
import { MemoryStorage } from "../../../src/storage/memory/memory-storage.ts";
import { Relay } from "../../faults/relay.ts";
import { put } from "../../storage/conformance/opened.ts";
import { until } from "../../testing/patient-until.ts";
import { CachedServer } from "../cached-server.ts";
import { keptOpen } from "../kept-open.ts";

/**
 * Two replicas over one store, each behind a relay, and a client of both. Keepalive pings are bytes, too, and a busy machine
 * may answer late: a client has frequent ones only to find out that a server does not respond.
 */
async function replicas({
  keepaliveIntervalMs = 60_000,
  ...options
}: Omit<Partial<ConnectOptions>, "address"> = {}) {
  const store = new MemoryStorage({ clock: systemClock });
  const servers = [
    await CachedServer.over(keptOpen(store)),
    await CachedServer.over(keptOpen(store)),
  ] as const;
  const relays = [await Relay.to(servers[0].port), await Relay.to(servers[1].port)] as const;
  const address = relays.map(({ port }) => `127.0.0.1:${port}`);
  const client = connect({ address, keepaliveIntervalMs, random: () => 0, ...options });
  onTestFinished(async () => {
    client.close();
    for (const relay of relays) await relay.close();
    for (const server of servers) await server.close();
  });
  return { store, servers, relays, client };
}

/** The keys in the events of a watch, up to the one called "last". */
async function watched(client: Client, interruptions: string[]): Promise<string[]> {
  const keys: string[] = [];
  const units = client.watch("things", {
    afterRevision: 1,
    onInterruption: ({ error }) => interruptions.push(error.reason),
  });
  for await (const { events } of units) {
    for (const { object } of events) keys.push(object.key);
    if (keys.at(-1) === "last") break;
  }
  return keys;
}

describe("A client of two replicas misses nothing, and receives nothing twice, when one of them", () => {
  const ways: readonly (readonly [
    string,
    number | undefined,
    (parts: Awaited<ReturnType<typeof replicas>>) => unknown,
  ])[] = [
    ["is drained", undefined, ({ servers }) => servers[0].close()],
    ["is cut off", undefined, ({ relays }) => relays[0].refuse()],
    ["stops responding", 1_000, ({ relays }) => relays[0].hold()],
  ];

  test.each(ways)("%s.", async (_, keepaliveIntervalMs, happen) => {
    const parts = await replicas({ keepaliveIntervalMs });
    const { store, client } = parts;
    const interruptions: string[] = [];
    const watches = Array.from({ length: 4 }, () => watched(client, interruptions));
    const expected: string[] = [];
    const write = async (key: string): Promise<void> => {
      await store.txn([put(key, "{}")]);
      expected.push(key);
    };
    for (let i = 0; i < 10; i++) await write(`before ${i}`);
    await happen(parts);
    const things = client.resource("things", jsonValues<object>());
    for (let i = 0; i < 10; i++) {
      await write(`after ${i}`);
      await things.get(`after ${i}`);
    }
    await write("last");
    expect(await Promise.all(watches)).toEqual(watches.map(() => expected));
    // Two of the four were there.
    expect(interruptions.length).toBeGreaterThanOrEqual(2);
  });
});

test("A call asks the preferred server first, and another one once that has failed.", async () => {
  // Without copies of calls that take a second on a busy machine.
  const { servers, relays, client } = await replicas({ hedgingDelayMs: Number.POSITIVE_INFINITY });
  let preferred: Endpoint | undefined;
  const watch = client.watch("things", {
    onOpened: (server) => {
      preferred = server;
    },
  });
  await watch.next();
  const at = preferred?.address.endsWith(`:${relays[0].port}`) === true ? 0 : 1;
  const others = relays[1 - at];
  const before = others?.passed ?? 0;
  for (let i = 0; i < 10; i++) await client.page("things", { preferredServer: preferred });
  expect(others?.passed).toBe(before);
  await watch.return();
  relays[at]?.refuse();
  await client.page("things", { preferredServer: preferred });
  expect(others?.passed).toBeGreaterThan(before);
  expect(servers).toHaveLength(2);
});

/** The servers of a client of two, in the order of their addresses. */
async function endpointsOf(client: Client): Promise<readonly [Endpoint, Endpoint]> {
  const found: Endpoint[] = [];
  const watches = [0, 1].map(() =>
    client.watch("things", { onOpened: (server) => found.push(server) }),
  );
  for (const watch of watches) await watch.next();
  for (const watch of watches) await watch.return();
  const [one, other] = found.sort((a, b) => (a.address < b.address ? -1 : 1));
  if (one === undefined || other === undefined) throw new Error("The client has one server.");
  return [one, other];
}

test.each(["write", "read"])(
  "A %s waits for the replica that is back if the other one is gone, and is made once.",
  async (kind) => {
    const { store, relays, servers } = await replicas();
    const address = relays.map(({ port }) => `127.0.0.1:${port}`);
    const client = connect({ address, maxAttempts: 2, random: () => 0 });
    onTestFinished(() => client.close());
    const at = await endpointsOf(client);
    const [first = 0, second = 1] = at.map((endpoint) => address.indexOf(endpoint.address));
    const port = relays[first]?.port ?? 0;
    await relays[first]?.close();
    await until("the end of a connection", () => !at[0].isReady);
    // One of them finds it gone.
    for (let i = 0; i < 2; i++) await client.put("things", "key", Buffer.from("one"));
    expect(at[0].isUnreachable).toBe(true);
    const back = await Relay.to(servers[first]?.port ?? 0, { port });
    onTestFinished(() => back.close());
    await relays[second]?.close();
    await until("the end of the other one", () => !at[1].isReady);
    if (kind === "read") {
      expect((await client.get("things", "key")).object.version).toBe(2);
      return;
    }
    const { revision } = await client.put("things", "key", Buffer.from("other"));
    expect(await store.currentRevision()).toBe(revision);
    const { object } = await store.get({ key: "key", at: { match: "ANY" } });
    expect(object?.version).toBe(3);
  },
);

test("A call waits no longer for replicas that have failed than for a new connection, and an abort ends the wait.", async () => {
  const { relays } = await replicas();
  const address = relays.map(({ port }) => `127.0.0.1:${port}`);
  const limits = { connectTimeoutMs: 50, maxAttempts: 2, timeoutMs: 60_000 };
  const client = connect({ address, ...limits, random: () => 0 });
  const patient = connect({ address, ...limits, connectTimeoutMs: 60_000, random: () => 0 });
  onTestFinished(() => client.close());
  onTestFinished(() => patient.close());
  for (const relay of relays) await relay.close();
  const failed = (message: RegExp) => ({
    ...{ reason: "UPSTREAM_UNAVAILABLE", message: expect.stringMatching(message) },
  });
  // On a busy machine it can take longer than that until a connection is refused.
  const either = failed(/REFUSED|no connection within 50 ms/);
  for (let i = 0; i < 2; i++) await expect(client.page("things")).rejects.toMatchObject(either);
  await expect(patient.page("things")).rejects.toMatchObject(failed(/REFUSED/));
  const signal = AbortSignal.timeout(50);
  const aborted = await patient.page("things", { signal }).catch((error: unknown) => error);
  expect(aborted).toBe(signal.reason);
});
