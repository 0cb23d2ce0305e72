import { describe, expect, it } from "vitest";
import { upstreamUnavailable, WatchFanoutError } from "../../../src/base/errors.ts";
import { CallFailure } from "../../../src/client/calls/call-failure.ts";
import { countingSuspension, type Lease } from "../../../src/client/coordination/lease.ts";
import { Leases } from "../../../src/client/coordination/leases.ts";
import { leaseService } from "../../../src/wire/services.ts";
import { FakeClock } from "../../fake-clock.ts";
import { type FakeTransport, wireStatus } from "./simulated-client.ts";

interface Request {
  readonly at: number;
  readonly leases: readonly string[];
  /** Which stream it came on. */
  readonly stream: number;
}

/** Servers that answer requests of one client as a test says. */
class ScriptedServers {
  readonly clock = new FakeClock();
  readonly requests: Request[] = [];
  readonly revoked: string[] = [];
  readonly closing = new AbortController();
  readonly leases: Leases;
  /** Number of failures that servers were reported with. */
  failures = 0;
  /** Number of streams so far, and of those that are open. */
  streams = 0;
  open = 0;
  /** What is answered; undefined: nothing. */
  answer: (lease: string) => number | WatchFanoutError | undefined = () => 9_000;
  /** Length of granted leases, in milliseconds. */
  ttlMs = 9_000;
  #lastLease = 0;
  #failOpen: (error: Error) => void = () => {};

  constructor() {
    const { clock, closing } = this;
    const connection = {
      write: async (method: { path: string }, request: { lease: string }) => {
        if (method.path === leaseService.Revoke.path) {
          this.revoked.push(request.lease);
          return {};
        }
        this.#lastLease++;
        return { lease: String(this.#lastLease), ttl: durationOf(this.ttlMs) };
      },
      stream: this.#stream.bind(this),
      closing: closing.signal,
      hasRequestStreams: true,
      reachability: { hasAlternative: true, onReady: () => () => {} },
    };
    this.leases = new Leases({ connection: connection as never, clock, random: () => 0.5 });
  }

  /** Breaks the open stream. */
  cut(): void {
    this.#failOpen(new CallFailure(upstreamUnavailable("It was cut.")));
  }

  async *#stream(
    begin: (transport: FakeTransport) => void,
    signal: AbortSignal,
    onServer: (server: object) => void,
  ): AsyncGenerator<unknown> {
    if (signal.aborted) return;
    this.streams++;
    this.open++;
    const stream = this.streams;
    const responses: unknown[] = [];
    let wake = (): void => {};
    let failure: Error | undefined;
    onServer({ incidents: 0, failed: () => this.failures++ });
    this.#failOpen = (error) => {
      failure = error;
      wake();
    };
    signal.addEventListener("abort", () => wake());
    const write = ({ leases }: { leases: string[] }): void => {
      this.requests.push({ at: this.clock.now(), leases, stream });
      const outcomes = leases.map((lease) => ({ lease, outcome: this.answer(lease) }));
      if (outcomes.some(({ outcome }) => outcome === undefined)) return;
      responses.push({
        renewals: outcomes.map(({ lease, outcome }) =>
          typeof outcome === "number"
            ? { lease, ttl: durationOf(outcome), error: null }
            : { lease, ttl: null, error: wireStatus(outcome as WatchFanoutError) },
        ),
      });
      wake();
    };
    begin({ bidiStream: (_, onBegun) => onBegun({ write }) });
    try {
      while (!signal.aborted) {
        if (failure !== undefined) throw failure;
        if (responses.length > 0) yield responses.shift();
        else await new Promise<void>((resolve) => (wake = resolve));
      }
    } finally {
      this.open--;
    }
  }

  /** The leases of each request, and when it came. */
  get sent(): (readonly (number | string)[])[] {
    return this.requests.map(({ at, leases }) => [at, ...leases]);
  }
}

function durationOf(ms: number): { seconds: string; nanos: number } {
  return { seconds: String(Math.trunc(ms / 1_000)), nanos: (ms % 1_000) * 1e6 };
}

const notFound = new WatchFanoutError("LEASE_NOT_FOUND", "There is no such lease.");

describe("A lease of a client", () => {
  it("is renewed each time that a third of its length has passed, and held", async () => {
    const servers = new ScriptedServers();
    const lease = await servers.leases.grant(9_000);
    await servers.clock.elapse(30_000);
    expect(servers.requests.map(({ at }) => at)).toEqual(
      Array.from({ length: 10 }, (_, n) => 3_000 * (n + 1)),
    );
    expect(servers.streams).toBe(1);
    expect(lease.isHeld).toBe(true);
  });

  it.each([
    ["none", []],
    ["too many", Array.from({ length: 10_001 }, () => 1n)],
    ["an id of 0", [1n, 0n]],
  ])("shares no request that a server would end the stream for: %s", async (_, ids) => {
    const servers = new ScriptedServers();
    await expect(servers.leases.renew(ids, 1_000)).rejects.toMatchObject({
      ...{ reason: "INVALID_REQUEST", message: expect.stringContaining("from 1 to 10000") },
    });
    expect(servers.streams).toBe(0);
  });

  it("shares its requests with others that are due soon", async () => {
    const servers = new ScriptedServers();
    for (let n = 0; n < 5; n++) {
      await servers.leases.grant(9_000);
      await servers.clock.elapse(400);
    }
    await servers.clock.elapse(10_000);
    expect(servers.sent).toEqual([
      [3_000, "1", "2", "3", "4"],
      [4_600, "1", "2", "3", "4", "5"],
      [7_600, "1", "2", "3", "4", "5"],
      [10_600, "1", "2", "3", "4", "5"],
    ]);
  });

  it("is lost before its length has passed since the request that renewed it last was sent", async () => {
    const servers = new ScriptedServers();
    const lease = await servers.leases.grant(9_000);
    await servers.clock.elapse(3_000);
    servers.answer = () => undefined;
    await servers.clock.elapse(8_900);
    expect(lease.isHeld).toBe(true);
    await servers.clock.elapse(10);
    expect(lease.signal.aborted).toBe(true);
    expect(lease.isHeld).toBe(false);
    expect(lease.signal.reason).toMatchObject({ reason: "LEASE_NOT_FOUND" });
  });

  it("is not held directly after a pause of the process, before any timer runs", async () => {
    const servers = new ScriptedServers();
    const lease = await servers.leases.grant(9_000);
    const { clock } = servers;
    const now = clock.now.bind(clock);
    clock.now = () => now() + 8_911;
    expect(lease.isHeld).toBe(false);
    clock.now = now;
    expect(lease.isHeld).toBe(false);
  });

  it("is lost when the store does not have it", async () => {
    const servers = new ScriptedServers();
    const lease = await servers.leases.grant(9_000);
    servers.answer = () => notFound;
    await servers.clock.elapse(3_000);
    expect(lease.isHeld).toBe(false);
    expect(lease.signal.reason).toMatchObject({ reason: "LEASE_NOT_FOUND", cause: notFound });
    expect(servers.leases.size).toBe(0);
  });

  it("is requested again after a pause if its renewal is refused, while others are renewed", async () => {
    const servers = new ScriptedServers();
    const refused = await servers.leases.grant(9_000);
    const other = await servers.leases.grant(9_000);
    const denied = new WatchFanoutError("PERMISSION_DENIED", "No.");
    servers.answer = (lease) => (lease === "1" ? denied : 9_000);
    await servers.clock.elapse(9_000);
    expect(refused.isHeld).toBe(false);
    expect(other.isHeld).toBe(true);
    const asked = servers.requests.filter(({ leases }) => leases.includes("1"));
    expect(asked.length).toBeGreaterThan(5);
    expect(asked.length).toBeLessThan(15);
  });

  it("is renewed at once on another stream when its stream breaks", async () => {
    const servers = new ScriptedServers();
    servers.answer = () => undefined;
    const lease = await servers.leases.grant(9_000);
    await servers.clock.elapse(3_000);
    servers.answer = () => 9_000;
    servers.cut();
    await servers.clock.elapse(100);
    expect(servers.requests.map(({ stream }) => stream)).toEqual([1, 2]);
    expect(lease.isHeld).toBe(true);
  });

  it("is renewed at another server if one accepts its request and does not answer it", async () => {
    const servers = new ScriptedServers();
    servers.answer = () => undefined;
    const lease = await servers.leases.grant(9_000);
    await servers.clock.elapse(5_000);
    expect(servers.failures).toBe(0);
    await servers.clock.elapse(1_000);
    expect(servers.failures).toBe(1);
    expect(servers.requests.length).toBe(2);
    servers.answer = () => 9_000;
    await servers.clock.elapse(30_000);
    expect(lease.isHeld).toBe(true);
  });

  it("is held on if its renewal is read late, for its length since that was sent", async () => {
    const servers = new ScriptedServers();
    const lease = await servers.leases.grant(9_000);
    const { clock } = servers;
    const now = clock.now.bind(clock);
    servers.answer = () => {
      // The process stops directly after it has sent the request.
      clock.now = () => now() + 6_500;
      servers.answer = () => undefined;
      return 9_000;
    };
    await clock.elapse(3_000);
    expect(lease.isHeld).toBe(true);
    await clock.elapse(2_400);
    expect(lease.isHeld).toBe(true);
    await clock.elapse(20);
    expect(lease.isHeld).toBe(false);
  });

  it("is revoked when it is released, and the stream ends with the last one", async () => {
    const servers = new ScriptedServers();
    const first = await servers.leases.grant(9_000);
    const second = await servers.leases.grant(9_000);
    await servers.clock.elapse(4_000);
    await servers.leases.release(first);
    expect(first.isHeld).toBe(false);
    expect([servers.revoked, servers.open]).toEqual([["1"], 1]);
    await servers.leases.release(second);
    await servers.clock.elapse(0);
    expect([servers.revoked, servers.open]).toEqual([["1", "2"], 0]);
    expect(servers.clock.pendingTimers).toBe(0);
  });

  it("ends with the client", async () => {
    const servers = new ScriptedServers();
    const lease = await servers.leases.grant(9_000);
    await servers.clock.elapse(4_000);
    servers.closing.abort();
    await servers.clock.elapse(0);
    expect(lease.signal.reason).toMatchObject({ message: expect.stringMatching(/closed/) });
    expect(servers.open).toBe(0);
    expect(servers.clock.pendingTimers).toBe(0);
  });

  it("takes requests of at most 10,000 leases", async () => {
    const servers = new ScriptedServers();
    const granted: Lease[] = [];
    for (let n = 0; n < 10_001; n++) granted.push(await servers.leases.grant(9_000));
    await servers.clock.elapse(3_000);
    expect(servers.requests.map(({ leases }) => leases.length)).toEqual([10_000, 1]);
    expect(granted.every(({ isHeld }) => isHeld)).toBe(true);
  });
});

describe("The clock of leases", () => {
  it("counts the time for which the machine was suspended", () => {
    let [monotonic, ofDay] = [100, 50_000];
    const base = { ...new FakeClock(), now: () => monotonic } as never;
    const clock = countingSuspension(base, () => ofDay);
    const before = clock.now();
    monotonic += 10;
    ofDay += 10;
    expect(clock.now() - before).toBe(10);
    ofDay += 60_000;
    expect(clock.now() - before).toBe(60_010);
    // The time of day is set back.
    ofDay -= 100_000;
    monotonic += 10;
    expect(clock.now() - before).toBe(60_020);
  });
});
