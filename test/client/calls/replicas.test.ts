import { describe, expect, onTestFinished, test } from "vitest";
import { systemClock } from "../../../src/base/clock.ts";
import type { Endpoint } from "../../../src/client/calls/endpoints.ts";
import { type Client, connect } from "../../../src/client/connect.ts";
import { jsonValues } from "../../../src/client/values/value-codec.ts";
import { MemoryStorage } from "../../../src/storage/memory/memory-storage.ts";
import { Relay } from "../../faults/relay.ts";
import { put } from "../../storage/conformance/opened.ts";
import { CachedServer } from "../cached-server.ts";
import { keptOpen } from "../kept-open.ts";

/** Two replicas over one store, each behind a relay, and a client of both. */
async function replicas() {
  const store = new MemoryStorage({ clock: systemClock });
  const servers = [
    await CachedServer.over(keptOpen(store)),
    await CachedServer.over(keptOpen(store)),
  ] as const;
  const relays = [await Relay.to(servers[0].port), await Relay.to(servers[1].port)] as const;
  const address = relays.map(({ port }) => `127.0.0.1:${port}`);
  const client = connect({ address, keepaliveIntervalMs: 100, random: () => 0 });
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
    (parts: Awaited<ReturnType<typeof replicas>>) => unknown,
  ])[] = [
    ["is drained", ({ servers }) => servers[0].close()],
    ["is cut off", ({ relays }) => relays[0].refuse()],
    ["stops responding", ({ relays }) => relays[0].hold()],
  ];

  test.each(ways)("%s.", async (_, happen) => {
    const parts = await replicas();
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
  const { servers, relays, client } = await replicas();
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
