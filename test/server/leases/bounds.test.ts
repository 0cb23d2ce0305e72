import { setImmediate as nextTurn } from "node:timers/promises";
import { type ServiceError, status } from "@grpc/grpc-js";
import { describe, expect, onTestFinished, test } from "vitest";
import { upstreamUnavailable } from "../../../src/base/errors.ts";
import type { ServerLimits } from "../../../src/server/limits/server-limits.ts";
import { endedLease } from "../../../src/storage/lease-renewals.ts";
import type { MemoryLeases } from "../../../src/storage/memory/leases.ts";
import { MemoryStore } from "../../../src/storage/memory/memory-store.ts";
import type { Leases, Store } from "../../../src/storage/store.ts";
import { retryDelayMs } from "../../../src/wire/call-error.ts";
import { healthService, leaseService } from "../../../src/wire/services.ts";
import { ManualTimers } from "../limits/manual-timers.ts";
import { type Recorder, type ServedBy, serve, serveAdded } from "../served.ts";
import type { TestClient } from "../test-client.ts";

interface ServedLeases {
  readonly client: TestClient;
  readonly clock: ManualTimers;
  readonly leases: Leases;
  readonly recorder: Recorder;
}

function leasesWith(clock: ManualTimers): MemoryLeases {
  const { leases } = new MemoryStore({ clock });
  onTestFinished(() => leases.close());
  return leases;
}

/** A store with these leases, and nothing else. */
function storeWith(leases: Leases): Store {
  return Object.assign(new MemoryStore({ clock: new ManualTimers() }), { leases });
}

async function serveLeases(limits: Partial<ServerLimits> = {}, given?: Leases) {
  const clock = new ManualTimers();
  const leases = given ?? leasesWith(clock);
  return {
    ...(await serve(new Map(), clock, { store: storeWith(leases), limits })),
    clock,
    leases,
  };
}

async function addedLeases(): Promise<ServedLeases & { readonly server: ServedBy }> {
  const clock = new ManualTimers();
  const leases = leasesWith(clock);
  return { ...(await serveAdded(new Map(), clock, { store: storeWith(leases) })), clock, leases };
}

const invalid = { reason: "INVALID_REQUEST" };
const tooMany = (limit_name: string, limit: number, usage: number) => ({
  reason: "TOO_MANY_LEASES",
  metadata: { limit_name, limit: String(limit), usage: String(usage) },
});

/** Lets calls and time pass until it holds. */
async function until(holds: () => boolean): Promise<void> {
  while (!holds()) await nextTurn();
}

describe("A caller's leases", () => {
  test("are bounded, until the server learns that some have ended", async () => {
    const { client, clock, leases, server } = await serveLeases({ maxLeasesPerIdentity: 3 });
    const [first = "", second = "", third = ""] = [
      await client.grant(10),
      await client.grant(20),
      await client.grant(60),
    ];
    const refusal = tooMany("max-leases-per-identity", 3, 3);
    await expect(client.grant(10)).rejects.toMatchObject(refusal);
    expect(server.stats()).toMatchObject({ grantedLeases: 3 });
    expect(server.stats().callers.most.leases).toBe(3);
    expect(server.stats().callers.refused.get("leases")).toBe(1);
    // Revoked here.
    await client.revoke(third);
    await client.grant(60);
    // Revoked elsewhere, of which each of these learns.
    await leases.revoke(BigInt(second));
    await expect(client.grant(10)).rejects.toMatchObject(refusal);
    await expect(client.timeToLive(second)).rejects.toMatchObject({ reason: "LEASE_NOT_FOUND" });
    const other = await client.grant(60);
    await leases.revoke(BigInt(other));
    const stream = client.keepAlive();
    await stream.renew(other);
    await client.grant(60);
    // Not renewed for its length, as far as is known here.
    clock.advance(9_000);
    await stream.renew(first);
    clock.advance(6_000);
    await expect(client.grant(10)).rejects.toMatchObject(refusal);
    clock.advance(5_000);
    await until(() => server.stats().grantedLeases === 2);
    await client.grant(60);
  });

  test("are looked at no longer once the server has ended", async () => {
    const { client, clock, server } = await serveLeases({}, leasesWith(new ManualTimers()));
    await client.grant(60);
    const timers = clock.pendingTimers;
    clock.advance(5_000);
    await until(() => clock.pendingTimers === timers);
    client.close();
    const drained = server.drain(0);
    clock.advance(0);
    await drained;
    expect(clock.pendingTimers).toBe(0);
  });

  test("are bounded together with those of others", async () => {
    const { client } = await serveLeases({ maxLeases: 2 });
    await client.grant(60);
    await client.grant(60);
    await expect(client.grant(60)).rejects.toMatchObject(tooMany("max-leases", 2, 2));
  });

  test("are granted at a rate, and the refusal says when the next one may be", async () => {
    const { client, clock } = await serveLeases({ maxLeaseGrantRatePerIdentity: 2 });
    await client.grant(60);
    await client.grant(60);
    const error = await client.grant(60).catch((failure: unknown) => failure as Error);
    expect(error).toMatchObject(tooMany("max-lease-grant-rate-per-identity", 2, 2));
    const delay = retryDelayMs((error as Error).cause as ServiceError);
    expect(delay).toBeGreaterThanOrEqual(250);
    expect(delay).toBeLessThanOrEqual(750);
    clock.advance(500);
    await client.grant(60);
  });

  test("do not count if none was granted", async () => {
    const failing = new MemoryStore({ clock: new ManualTimers() });
    await failing.close();
    const { client, server } = await serveLeases({ maxLeasesPerIdentity: 1 }, failing.leases);
    for (let i = 0; i < 2; i++) {
      await expect(client.grant(60)).rejects.toMatchObject({ reason: "UPSTREAM_UNAVAILABLE" });
    }
    expect(server.stats().callers.most.leases).toBe(0);
  });

  test("are renewed at a rate: further requests wait", async () => {
    const { client, clock } = await serveLeases({ maxLeaseRenewalRatePerIdentity: 2 });
    const stream = client.keepAlive();
    const lease = await client.grant(60);
    await stream.renew(lease, lease, lease, lease);
    let isAnswered = false;
    const next = stream.renew(lease).then(() => {
      isAnswered = true;
    });
    for (let turns = 0; turns < 50; turns++) await nextTurn();
    clock.advance(999);
    for (let turns = 0; turns < 50; turns++) await nextTurn();
    expect(isAnswered).toBe(false);
    clock.advance(1);
    await next;
  });

  test("are renewed at this rate also by the first requests of other streams", async () => {
    const { client, clock } = await serveLeases({ maxLeaseRenewalRatePerIdentity: 2 });
    const lease = await client.grant(60);
    await client.keepAlive().renew(lease, lease, lease, lease);
    let isAnswered = false;
    const first = client
      .keepAlive()
      .renew(lease)
      .then(() => {
        isAnswered = true;
      });
    for (let turns = 0; turns < 50; turns++) await nextTurn();
    expect(isAnswered).toBe(false);
    clock.advance(1_000);
    await first;
  });
});

test("Responses of a KeepAlive stream that wait for an earlier one count as not accepted, until it ends", async () => {
  const first = Promise.withResolvers<readonly number[]>();
  let asked = 0;
  const given = Object.assign(leasesWith(new ManualTimers()), {
    keepAlive: (leases: readonly bigint[]) =>
      asked++ === 0 ? first.promise : Promise.resolve(leases.map(() => endedLease)),
  });
  const { client, server } = await serveLeases({ maxLeaseRenewalRatePerIdentity: 0 }, given);
  const stream = client.keepAlive();
  stream.send(1n);
  // Each response says 1,000 times why a lease was not renewed.
  for (let i = 0; i < 5; i++) stream.send(...new Array<bigint>(1_000).fill(1n));
  await expect.poll(() => server.stats().unsent.bytes).toBeGreaterThan(5 * 100_000);
  stream.close();
  await expect.poll(() => server.stats().unsent.bytes).toBe(0);
});

describe.each<[string, () => Promise<ServedLeases & { readonly server: ServedBy }>]>([
  ["the service's own server", () => serveLeases()],
  ["a grpc-js server", () => addedLeases()],
])("On %s LeaseService", (_, open) => {
  test("refuses a length or an id that no lease has", async () => {
    const { client } = await open();
    await expect(client.unary(leaseService.Grant, {})).rejects.toMatchObject(invalid);
    for (const ttl of [{}, { seconds: -1 }, { seconds: 9_000_000_001 }]) {
      await expect(client.unary(leaseService.Grant, { ttl })).rejects.toMatchObject(invalid);
    }
    const { ttl } = await client.unary(leaseService.Grant, { ttl: { nanos: 1 } });
    expect(ttl).toMatchObject({ seconds: "1", nanos: 0 });
    for (const lease of ["0", "-1"]) {
      await expect(client.revoke(lease)).rejects.toMatchObject(invalid);
      await expect(client.timeToLive(lease)).rejects.toMatchObject(invalid);
      const stream = client.keepAlive();
      stream.send(lease);
      expect(await stream.ended).toMatchObject(invalid);
    }
  });

  test("renews up to 10,000 leases with a request", async () => {
    const { client } = await open();
    const lease = await client.grant(60);
    const [stream, other] = [client.keepAlive(), client.keepAlive()];
    const renewed = await stream.renew(...new Array<string>(10_000).fill(lease));
    expect(new Set(renewed)).toEqual(new Set([60_000]));
    expect(renewed).toHaveLength(10_000);
    stream.send(...new Array<string>(10_001).fill(lease));
    expect(await stream.ended).toMatchObject({
      ...invalid,
      message: expect.stringContaining("more than 10000 elements"),
    });
    other.send();
    expect(await other.ended).toMatchObject(invalid);
  });

  test("answers the requests of a stream in their order, and ends it behind the last", async () => {
    const { client, server } = await open();
    const leases = [await client.grant(10), await client.grant(20), await client.grant(30)];
    const stream = client.keepAlive();
    for (let i = 0; i < 40; i++) stream.send(leases[i % 3] as string);
    stream.halfClose();
    for (let i = 0; i < 40; i++) expect(await stream.next()).toEqual([10_000 * ((i % 3) + 1)]);
    expect((await stream.status).code).toBe(status.OK);
    await until(() => server.openStreams === 0);
  });
});

test("TimeToLive does not name more objects than a response holds, and still has the rest", async () => {
  const clock = new ManualTimers();
  const objects = Array.from({ length: 2_000 }, () => ({ resource: "r", key: "k".repeat(1_000) }));
  const given = Object.assign(leasesWith(clock), {
    timeToLive: async (_: bigint, hasObjects: boolean) => ({
      ...{ ttlMs: 1_500, grantedTtlSeconds: 2, others: 0, objects: hasObjects ? objects : [] },
    }),
  });
  const { client } = await serveLeases({}, given);
  await expect(client.timeToLive("1")).rejects.toMatchObject({ reason: "LIST_TOO_LARGE" });
  expect(await client.unary(leaseService.TimeToLive, { lease: "1" })).toMatchObject({
    ttl: { seconds: "1", nanos: 500_000_000 },
    objects: [],
  });
});

describe("A KeepAlive stream", () => {
  test("stays open while the store can't be reached, which each renewal says", async () => {
    const clock = new ManualTimers();
    const leases = leasesWith(clock);
    let isReachable = false;
    const given: Leases = {
      grant: (...call) => leases.grant(...call),
      revoke: (...call) => leases.revoke(...call),
      timeToLive: (...call) => leases.timeToLive(...call),
      keepAlive: async (asked, signal) =>
        isReachable
          ? leases.keepAlive(asked, signal)
          : asked.map(() => upstreamUnavailable("The store is away.")),
    };
    const { client } = await serveLeases({}, given);
    const lease = await client.grant(60);
    const stream = client.keepAlive();
    expect(await stream.renew(lease, lease)).toEqual(["The store is away.", "The store is away."]);
    isReachable = true;
    expect(await stream.renew(lease)).toEqual([60_000]);
  });

  test("reads no further requests while sixteen are not answered", async () => {
    const answers: PromiseWithResolvers<readonly number[]>[] = [];
    const given = Object.assign(leasesWith(new ManualTimers()), {
      keepAlive: () => {
        const answer = Promise.withResolvers<readonly number[]>();
        answers.push(answer);
        return answer.promise;
      },
    });
    const { client } = await serveLeases({}, given);
    const stream = client.keepAlive();
    for (let i = 0; i < 30; i++) stream.send(1n);
    await until(() => answers.length === 16);
    for (let turns = 0; turns < 50; turns++) await nextTurn();
    expect(answers).toHaveLength(16);
    // In their order, so the second one waits for the first.
    answers[1]?.resolve([2]);
    for (let turns = 0; turns < 50; turns++) await nextTurn();
    expect(answers).toHaveLength(16);
    answers[0]?.resolve([1]);
    expect([await stream.next(), await stream.next()]).toEqual([[1], [2]]);
    await until(() => answers.length === 18);
    stream.close();
  });

  test("counts as a stream, and one above the limit is refused", async () => {
    const { client, server } = await serveLeases({ maxStreamsPerIdentity: 1 });
    const lease = await client.grant(60);
    const stream = client.keepAlive();
    await stream.renew(lease);
    expect(server.openStreams).toBe(1);
    const further = client.keepAlive();
    further.send(lease);
    expect(await further.ended).toMatchObject({ reason: "TOO_MANY_STREAMS" });
    stream.close();
    await until(() => server.openStreams === 0);
  });

  test("ends with DRAINING when the server drains, behind the answers to its requests, and at its maximum age", async () => {
    const asked = Promise.withResolvers<readonly number[]>();
    const clock = new ManualTimers();
    const leases = leasesWith(clock);
    const given = Object.assign(leases, { keepAlive: () => asked.promise });
    const { client, server, clock: time } = await serveLeases({ maxStreamAgeMs: 60_000 }, given);
    const old = client.keepAlive();
    old.send(1n);
    await until(() => server.openStreams === 1);
    time.advance(61_000);
    // Its request is not answered yet.
    await until(() => server.openStreams === 1);
    const stream = client.keepAlive();
    stream.send(1n);
    await until(() => server.openStreams === 2);
    const drained = server.drain(10_000);
    for (let turns = 0; turns < 20; turns++) await nextTurn();
    asked.resolve([5_000]);
    expect(await stream.next()).toEqual([5_000]);
    expect(await old.next()).toEqual([5_000]);
    for (const each of [stream, old]) {
      expect(await each.ended).toMatchObject({ reason: "DRAINING" });
    }
    time.advance(10_000);
    await drained;
  });
});

test("A server without leases has no LeaseService, which health and its calls say", async () => {
  const { client } = await serve(new Map(), new ManualTimers());
  await expect(client.grant(60)).rejects.toMatchObject({
    cause: { code: status.UNIMPLEMENTED },
  });
  const stream = client.keepAlive();
  stream.send(1n);
  expect(await stream.ended).toMatchObject({ cause: { code: status.UNIMPLEMENTED } });
  const service = "watchfanout.v1.LeaseService";
  const check = client.unary(healthService.Check, { service });
  await expect(check).rejects.toMatchObject({ cause: { code: status.NOT_FOUND } });
  const { client: other } = await serveLeases();
  expect(await other.unary(healthService.Check, { service })).toMatchObject({ status: "SERVING" });
});
