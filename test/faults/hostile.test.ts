import { setTimeout as delay } from "node:timers/promises";
import { afterAll, afterEach, beforeAll, describe, expect, test } from "vitest";
import type { ChildReplica } from "./child-replica.ts";
import type { Bulk, Target } from "./hostile/attack.ts";
import { attacks } from "./hostile/attacks.ts";
import { bulkPrefix, fillBulk } from "./hostile/bulk.ts";
import { HonestProbe } from "./hostile/honest-probe.ts";
import { HostileClient } from "./hostile/hostile-client.ts";
import { inTime, untilSeen } from "./patience.ts";
import type { ProcessReport } from "./process-report.ts";
import { Seeded, seedOr } from "./seeded.ts";
import { resource } from "./wire.ts";
import { prefix, World } from "./world.ts";

/** Whether to make all attacks, and more requests meanwhile, as `npm run hostile` does. */
const isAll = process.env["HOSTILE"] === "all";
const mebibyte = 1024 ** 2;
/** How long one attack may take, on a busy machine, in milliseconds. */
const timeoutMs = 180_000;
/** Maximum memory that may remain after an attack, in MiB: caches fill up to their bounds. */
const mayLeave = 40;
/** Connections that honest clients may have more than they had, each with a socket or two. */
const moreSockets = 8;
/**
 * CPU time that one turn of the event loop may take, in milliseconds, collections of garbage included. How busy the
 * machine is makes little difference to it; attacks are made to take three times as much of an unbounded server.
 */
const longestTurn = 300;
/** The change between two measurements that counts as flat, in MiB. */
const levelWithin = 2;
/** Maximum growth outside the heap at any moment, garbage included, in MiB. */
const highestPeak = 256;
/** Each look collects the replica's garbage. */
const betweenLooksMs = 100;

/** In MiB, of what is alive. */
function taken({ heapUsed, external }: ProcessReport): number {
  return (heapUsed + external) / mebibyte;
}

function sockets({ handles }: ProcessReport): number {
  return (handles["TCPSocketWrap"] ?? 0) + (handles["TCPServerWrap"] ?? 0);
}

let world: World;
let replica: ChildReplica;
let hostile: HostileClient;
let bulk: Bulk;

beforeAll(async () => {
  const seed = seedOr(71);
  world = await World.open(seed, {
    ...{ replicas: 0, children: 1, writers: 1, writePauseMs: 20, readPauseMs: isAll ? 40 : 160 },
    reorders: true,
    // So many that no honest client falls out of them while an attack lasts.
    replica: { bulkPrefix, historyEvents: 20_000 },
    prepare: async (cluster) => {
      bulk = await fillBulk(cluster, bulkPrefix);
    },
  });
  const [only] = world.children;
  if (only === undefined) throw new Error("There is no replica.");
  replica = only;
  hostile = new HostileClient(new Seeded(seed));
}, timeoutMs);

afterAll(async () => {
  await hostile?.close();
  await world?.close();
});

/** Damage by one attack does not count against the next one. */
afterEach(async ({ task }) => {
  if (replica.hasDied || task.result?.state === "fail") {
    await replica.kill();
    await replica.start();
    await world.settle();
  }
  world.forget();
  world.goOn();
}, timeoutMs);

function target(): Target {
  const { grpcPort, adminPort } = replica;
  return { grpcPort, adminPort, busy: resource, busyPrefix: prefix, bulk };
}

/** The replica's memory once it has finished earlier work. */
async function levelReport(): Promise<ProcessReport> {
  let last = await replica.report();
  return untilSeen("the replica to take no less and no more", async () => {
    await delay(betweenLooksMs);
    const report = await replica.report();
    const isLevel = Math.abs(taken(report) - taken(last)) < levelWithin;
    last = report;
    return isLevel ? report : undefined;
  });
}

/** The replica serves a new client and responds to liveness probes. */
async function servesOthers(): Promise<void> {
  const connection = world.connectionTo(replica);
  const listed = await connection.list({}, 2, 0).finally(() => connection.close());
  expect(listed.revision).toBeGreaterThan(0);
  expect(await replica.admin("/livez")).toBe("ok\n");
}

/**
 * Attacks that take two seconds and more, each of which has tests of its own for the bound that it goes against. They are
 * tried by `npm run hostile`, which CI runs, and by the soak; all others with every `npm test`.
 */
const long = new Set([
  "changes of raw keys",
  "connections dropped with incomplete calls",
  "etcd watches from old revisions between progress requests",
  "forgotten reflection streams",
  "gzip bombs beyond the message limit",
  "gzip bombs up to the message limit",
  "Gets EXACT at many revisions",
  "health watches of huge names, compressed",
  "initial states with a selector without a window",
  "initial states with selectors of 1,000 requirements",
  "Lists EXACT at many revisions",
  "Lists EXACT of heavy states",
  "Lists with a selector without a window",
  "Lists with selectors of 1,000 requirements",
  "Lists without a window",
  "objects of many labels",
  "page tokens replayed",
  "requests for the progress of many watches, and their removal",
  "requests of a stream that can't be carried out",
  "second pages of prefixes that no other client lists",
  "shards of a stream added and removed",
  "slow readers of initial states, every event",
  "slow readers of initial states, latest state",
  "small compressed requests",
  "unfinished compressed requests",
  "unfinished health requests",
  "unfinished reflection requests",
  "unfinished requests",
  "watches of a stream added and removed",
  "watches of a stream without credit",
  "watches of huge keys, compressed",
  "watches of huge prefixes",
  "watches of huge prefixes, compressed",
  "watches of streams without a window",
  "watches opened and reset",
  "watches with huge selectors",
  "watches with huge selectors, compressed",
  "watches with many distinct filters",
  "watches with selectors of 1,000 requirements",
]);
const tried = Object.entries(attacks).filter(([name]) => isAll || !long.has(name));

describe("A client that does this does not affect others, and leaves nothing behind:", () => {
  test.each(tried)("%s", { timeout: timeoutMs }, async (name, { mayHold }) => {
    const before = await levelReport();
    // Another test checks the state that watches begin with.
    const honest = new HonestProbe(`http://127.0.0.1:${replica.grpcPort}`, 50, Infinity);
    honest.start();
    const attack = hostile.begin(name, target());
    let held: ProcessReport;
    try {
      await inTime(() => `${name} to be under way`, attack.holding, timeoutMs);
      await servesOthers();
      held = await replica.report();
    } finally {
      await attack.release();
      expect.soft((await honest.stop()).wrong).toEqual([]);
    }
    expect(await world.wrong()).toEqual([]);
    expect.soft(taken(held), "MiB while it lasts").toBeLessThan(taken(before) + mayHold);
    const peak = (held.peakExternal - before.external) / mebibyte;
    expect.soft(peak, "MiB of buffers at the peak").toBeLessThan(highestPeak);
    expect.soft(held.loop.longestTurn, "ms of CPU in one turn").toBeLessThan(longestTurn);
    await untilSeen(`${name} to leave nothing behind`, async () => {
      await delay(betweenLooksMs);
      const after = await replica.report();
      const [mib, moreThan] = [taken(after) - taken(before), sockets(after) - sockets(before)];
      if (mib < mayLeave && moreThan < moreSockets) return true;
      throw new Error(`It is ${Math.round(mib)} MiB and ${moreThan} sockets more than before.`);
    });
  });
});

test("A client never receives an older state than before, whatever it requests next", async () => {
  const probe = new HonestProbe(`http://127.0.0.1:${replica.grpcPort}`, 5, 1);
  probe.start();
  await untilSeen("many watches to have begun", async () =>
    probe.rounds > (isAll ? 50 : 20) ? true : undefined,
  );
  expect((await probe.stop()).wrong).toEqual([]);
});
