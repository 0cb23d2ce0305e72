import { once } from "node:events";
import { setImmediate as nextTurn } from "node:timers/promises";
import { type ServiceError, status } from "@grpc/grpc-js";
import { pino } from "pino";
import { describe, expect, test } from "vitest";
import { WatchFanoutError } from "../../../src/base/errors.ts";
import type { ServerLimits } from "../../../src/server/limits/server-limits.ts";
import type { ServerOptions } from "../../../src/server/server.ts";
import { retryDelayMs } from "../../../src/wire/call-error.ts";
import { healthService, listWatchService } from "../../../src/wire/services.ts";
import { RawConnection } from "../http2/raw-connection.ts";
import { ScriptedResource } from "../scripted-resource.ts";
import { type Served, serve, serveThings } from "../served.ts";
import type { TestClient } from "../test-client.ts";
import { ManualTimers } from "./manual-timers.ts";
import { as, tokensOf } from "./tokens.ts";

const resource = "things";
const { List } = listWatchService;
const kibibyte = 1024;

/** The calls of alice and of bob, on one connection. */
interface Callers {
  readonly alice: TestClient;
  readonly bob: TestClient;
}

function callersOf(client: TestClient): Callers {
  return { alice: as(client, "alice"), bob: as(client, "bob") };
}

async function serveLimited(
  limits: Partial<ServerLimits>,
  options: Partial<ServerOptions> = {},
): Promise<Served & Callers> {
  const authenticators = tokensOf("alice", "bob");
  const served = await serveThings({ server: { authenticators, limits, ...options } });
  return { ...served, ...callersOf(served.client) };
}

/** The error that a call is refused with. */
async function refusalOf(call: Promise<unknown>): Promise<WatchFanoutError> {
  const error = await call.then(
    () => undefined,
    (refused: unknown) => refused,
  );
  if (!(error instanceof WatchFanoutError)) throw new Error("The call was not refused.");
  return error;
}

/** Checks that a refusal says which limit was reached, and when to retry. */
function expectLimit(
  error: WatchFanoutError,
  option: string,
  limit: number,
  usage: number,
  title = 'The identity "alice"',
): void {
  expect(error).toMatchObject({
    reason: "TOO_MANY_STREAMS",
    metadata: { limit_name: option, limit: String(limit), usage: String(usage) },
  });
  expect(error.message).toContain(title);
  expect(error.message).toContain(`the maximum is ${limit} (--${option})`);
  const cause = error.cause as ServiceError;
  expect(cause.code).toBe(status.RESOURCE_EXHAUSTED);
  expect(retryDelayMs(cause)).toBeGreaterThan(0);
}

describe("An identity at its limit is refused, and others are not:", () => {
  test("connections; the one beyond the limit is closed, and health responds on it", async () => {
    const { server, alice, bob } = await serveLimited({ maxConnectionsPerIdentity: 1 });
    await alice.list({ resource });
    const headers = { authorization: "Bearer alice" };
    const request = List.requestSerialize({ resource });
    const second = new RawConnection(server.port);
    const check = healthService.Check;
    const health = second.call(check.path, check.requestSerialize({ service: "" }), headers);
    expect((await health.drain().ended).code).toBe(status.OK);
    const closed = once(second.session, "close");
    const refused = await second.call(List.path, request, headers).drain().ended;
    expect(refused).toMatchObject({
      code: status.RESOURCE_EXHAUSTED,
      message: expect.stringMatching(
        /^The identity "alice" has 1 connections; the maximum is 1 \(--max-connections-per-id/,
      ),
    });
    await closed;
    const other = new RawConnection(server.port);
    const bobs = other.call(List.path, request, { authorization: "Bearer bob" });
    expect((await bobs.drain().ended).code).toBe(status.OK);
    // A connection counts for the identity of its first call.
    await bob.list({ resource });
    expect(server.stats().callers.most.connections).toBe(1);
    expect(server.stats().callers.refused.get("connections")).toBe(1);
  });

  test("open streams, until one has ended", async () => {
    const logged: string[] = [];
    const logger = pino({ level: "warn" }, { write: (line: string) => void logged.push(line) });
    const { alice, bob, server, recorder } = await serveLimited(
      { maxStreamsPerIdentity: 2 },
      { logger },
    );
    const open = async (client: TestClient) => {
      const watch = client.watch({ resource });
      await watch.next();
      return watch;
    };
    const first = await open(alice);
    const health = alice.stream(healthService.Watch, { service: "" });
    await health.next();
    const option = "max-streams-per-identity";
    for (let i = 0; i < 2; i++) {
      expectLimit(await alice.watch({ resource }).ended, option, 2, 2);
    }
    // One line in 10 s.
    expect(logged.map((line) => JSON.parse(line) as unknown)).toMatchObject([
      { limit: "streams", caller: 'the identity "alice"' },
    ]);
    await open(bob);
    const endedBefore = recorder.calls.length;
    first.cancel();
    await recorder.untilEnded(endedBefore + 1);
    await open(alice);
    expect(server.stats().callers.most.streams).toBe(2);
    expect(server.stats().callers.refused.get("streams")).toBe(2);
  });

  test("requests in progress", async () => {
    const scripted = new ScriptedResource();
    const authenticators = tokensOf("alice", "bob");
    const limits = { maxRequestsPerIdentity: 2 };
    const served = await serve(new Map([[resource, scripted]]), new ManualTimers(), {
      ...{ authenticators, limits },
    });
    const { alice, bob } = callersOf(served.client);
    const get = (client: TestClient) => client.get({ resource, key: "a" });
    const waiting = [get(alice), get(alice)].map((call) => refusalOf(call));
    await served.recorder.untilStarted(2);
    while (served.server.stats().callers.most.requests < 2) await nextTurn();
    expectLimit(await refusalOf(get(alice)), "max-requests-per-identity", 2, 2);
    scripted.answer = () => Promise.reject(new WatchFanoutError("NOT_READY", "Not ready."));
    expect(await refusalOf(get(bob))).toMatchObject({ reason: "NOT_READY" });
    void waiting;
  });

  test("new watches per second, with the time until the next one", async () => {
    const { alice, bob, clock } = await serveLimited({ maxWatchRatePerIdentity: 2 });
    const opened = async (client: TestClient) => (await client.watch({ resource }).next()).revision;
    await opened(alice);
    await opened(alice);
    const error = await alice.watch({ resource }).ended;
    expectLimit(error, "max-watch-rate-per-identity", 2, 2);
    const delay = retryDelayMs(error.cause as ServiceError);
    expect(delay).toBeGreaterThanOrEqual(250);
    expect(delay).toBeLessThanOrEqual(750);
    await opened(bob);
    clock.advance(500);
    await opened(alice);
    expectLimit(await alice.watch({ resource }).ended, "max-watch-rate-per-identity", 2, 2);
  });
});

test("All identities together have a limit of new watches per second", async () => {
  const { alice, bob } = await serveLimited({ maxWatchRate: 1 });
  await alice.watch({ resource }).next();
  expectLimit(await bob.watch({ resource }).ended, "max-watch-rate", 1, 1, "This server");
});

describe("An identity that was sent more than its rate allows", () => {
  const limit = 64 * kibibyte;
  const large = { resource, key: "large", value: Buffer.alloc(128 * kibibyte) };

  test("gets no further reads until that is made up for, and writes still work", async () => {
    const { alice, bob, clock, server } = await serveLimited({ maxSendRatePerIdentity: limit });
    await bob.put({ ...large, value: Buffer.alloc(63 * kibibyte) });
    await alice.list({ resource });
    // Of a burst of one second 1 KiB is left.
    await alice.list({ resource });
    const option = "max-send-rate-per-identity";
    expectLimit(await refusalOf(alice.list({ resource })), option, limit, limit);
    expectLimit(await refusalOf(alice.get({ resource, key: "large" })), option, limit, limit);
    expectLimit(await alice.watch({ resource }).ended, option, limit, limit);
    await alice.put({ resource, key: "small", value: Buffer.of(1) });
    expect(server.stats().callers.refused.get("send_rate")).toBe(3);
    clock.advance(1_000);
    await alice.list({ resource });
  });

  test("gets the events of its streams later, and all of them; others get theirs at once", async () => {
    const { alice, bob, clock, storage, server } = await serveLimited({
      maxSendRatePerIdentity: limit,
    });
    const [slow, prompt] = [alice.watch({ resource }), bob.watch({ resource, prefix: "small" })];
    await Promise.all([slow.next(), prompt.next()]);
    await storage.put({ key: "large", value: large.value });
    expect((await slow.next()).events).toHaveLength(1);
    for (let i = 0; i < 3; i++) {
      await storage.put({ key: `small-${i}`, value: Buffer.of(i) });
      expect((await prompt.next()).events).toHaveLength(1);
    }
    while (server.stats().callers.pacedStreams < 1) await nextTurn();
    let later: string[] = [];
    const rest = (async () => {
      while (later.length < 3) {
        const { events } = await slow.next();
        later = [...later, ...events.map(({ object }) => object?.key ?? "")];
      }
    })();
    clock.advance(900);
    await storage.put({ key: "small-last", value: Buffer.of(9) });
    await prompt.next();
    expect(later).toEqual([]);
    clock.advance(200);
    await rest;
    expect(later.slice(0, 3)).toEqual(["small-0", "small-1", "small-2"]);
    expect(server.stats().callers.pacedStreams).toBe(0);
  });

  test("does not hold a stream that has ended", async () => {
    const { alice, storage, server, recorder } = await serveLimited({ maxSendRate: limit });
    const watch = alice.watch({ resource });
    await watch.next();
    await storage.put({ key: "large", value: large.value });
    await watch.next();
    await storage.put({ key: "a", value: Buffer.of(1) });
    while (server.stats().callers.pacedStreams < 1) await nextTurn();
    watch.cancel();
    await recorder.untilEnded(1);
    expect(server.stats().callers.pacedStreams).toBe(0);
  });
});
