import { beforeAll, describe, expect, test } from "vitest";
import { seedOr } from "../faults/seeded.ts";
import { isWrite, type Operation } from "./history.ts";
import { lostWrite, refusedAndDone, staleRead } from "./planted.ts";
import { buildChecker, buildTimeoutMs, hasGo, verdictOf } from "./porcupine.ts";
import { System, type WorkloadName } from "./system.ts";

/** The history of each test has calls of all of them. */
const doors = ["root 0", "root 1", "relay", "etcd's API of root 0", "etcd's API of root 1", "etcd"];

/** How many calls are answered between faults. */
const between = 25;

/** Of one history, in milliseconds. Not an assertion: on a busy machine it takes ten times as long as on another. */
const timeout = 300_000;

type Faults = (system: System) => Promise<void>;

const histories: readonly (readonly [name: string, seed: number, Faults])[] = [
  [
    "members of etcd killed and restarted",
    1,
    async (system) => {
      for (const member of system.cluster.members) {
        await system.afterCalls(between);
        await system.cluster.kill(member);
        await system.afterCalls(between);
        await system.cluster.heal();
      }
    },
  ],
  [
    "etcd's leader moved",
    2,
    async (system) => {
      for (let i = 0; i < 6; i++) {
        await system.afterCalls(between);
        await system.cluster.moveLeader();
      }
    },
  ],
  [
    "a member cut off from the others",
    3,
    async (system) => {
      for (const member of system.cluster.members) {
        await system.afterCalls(between);
        system.cluster.cutOff(member);
        await system.afterCalls(between);
        await system.cluster.heal();
      }
    },
  ],
  [
    "roots and a relay replaced",
    4,
    async (system) => {
      for (const replica of [...system.roots, system.relay]) {
        await system.afterCalls(between);
        await replica.drain();
        await system.afterCalls(between);
        await replica.start();
      }
    },
  ],
  [
    "connections cut, also behind requests whose responses are lost",
    5,
    async (system) => {
      const { random, networks } = system;
      for (let i = 0; i < 12; i++) {
        const network = random.pick(networks);
        if (i % 3 === 0) network.loseResponses();
        else if (i % 3 === 1) network.cutAfter(random.between(0, 2_000));
        else network.cut();
        await system.afterCalls(12);
        network.heal();
      }
    },
  ],
];

describe.skipIf(!(await hasGo())).each<readonly [string, WorkloadName]>([
  ["Get, List, Put, Delete and etcd's Txn", "single writes"],
  ["Transact, BatchGet and DeletePrefix, with request ids", "transactions"],
])("A history of %s", (_, workload) => {
  beforeAll(buildChecker, buildTimeoutMs);

  test.for(histories)("with %s is linearizable", { timeout }, async ([name, byDefault, faults]) => {
    const seed = seedOr(byDefault);
    const system = await System.open(seed, workload);
    try {
      await faults(system);
      await system.afterCalls(between);
      const history = await system.history();
      for (const door of doors) expect(system.answered.get(door), door).toBeGreaterThan(5);
      const { operations } = history;
      const failed = operations.filter(({ output }) => output?.succeeded === false);
      expect(failed.length, "conditions that did not hold").toBeGreaterThan(5);
      const unknown = operations.filter(({ input, output }) => isWrite(input) && !output).length;
      const counts = `${operations.length} operations, ${unknown} of unknown outcome`;
      const file = `${workload}-${name}-${seed}`.replaceAll(/\W+/g, "-");
      const verdict = await verdictOf(file, history);
      process.stdout.write(`${name}: ${verdict.result}, ${counts}\n`);
      const right = { result: "Ok", operations: operations.length };
      expect(
        verdict,
        `To repeat: FAULTS_SEED=${seed} npm run linearizability -- -t ${JSON.stringify(name)}`,
      ).toEqual(right);
      for (const plant of [staleRead, lostWrite, refusedAndDone]) {
        const wrong = await verdictOf(`${file}-${plant.name}`, plant(history));
        expect(wrong.result, plant.name).toBe("Illegal");
      }
    } finally {
      await system.close();
    }
  });
});

/** Not those that move etcd's leader: a new one begins all terms again. */
const ofLeases = histories.filter(([name]) => /replaced|cut,/.test(name));

describe.skipIf(!(await hasGo()))("A history of leases and what is attached to them", () => {
  beforeAll(buildChecker, buildTimeoutMs);

  test.for(ofLeases)("with %s is linearizable", { timeout }, async ([name, byDefault, faults]) => {
    const seed = seedOr(byDefault);
    const system = await System.open(seed, "leases");
    try {
      await system.afterCalls(3 * between);
      await faults(system);
      await system.afterCalls(3 * between);
      const history = await system.history();
      const { operations } = history;
      const count = (matches: (operation: Operation) => boolean | undefined): number =>
        operations.filter(matches).length;
      const counts = {
        granted: count(({ input }) => input.lease?.what === "grant"),
        renewed: count(
          ({ input, output }) => input.lease?.what === "keepAlive" && !output?.hasNoLease,
        ),
        expired: count(({ input }) => input.lease?.what === "expire"),
        revoked: count(({ input, output }) => input.lease?.what === "revoke" && output?.succeeded),
        unknown: count(({ output }) => output === undefined),
      };
      for (const kind of ["granted", "renewed", "expired"] as const) {
        expect(counts[kind], kind).toBeGreaterThan(3);
      }
      const verdict = await verdictOf(`leases-${name}-${seed}`.replaceAll(/\W+/g, "-"), history);
      process.stdout.write(`${name}: ${verdict.result}, ${JSON.stringify(counts)}\n`);
      expect(verdict).toEqual({ result: "Ok", operations: operations.length });
    } finally {
      await system.close();
    }
  });
});

/** Those that end clients' connections or sessions. */
const ofLocks = histories.filter(([name]) => /replaced|cut,|leader/.test(name));

describe.skipIf(!(await hasGo()))("A history of a lock of the client library", () => {
  beforeAll(buildChecker, buildTimeoutMs);

  test.for(ofLocks)("with %s is linearizable", { timeout }, async ([name, byDefault, faults]) => {
    const seed = seedOr(byDefault);
    const system = await System.open(seed, "locks");
    try {
      await faults(system);
      await system.afterCalls(between);
      const { operations, revision } = await system.history();
      const own = operations.filter(({ input }) => input.lock !== undefined);
      const history = { revision, operations: own };
      expect(own.length).toBeGreaterThan(2 * between);
      const guarded = own.filter(({ input }) => input.lock?.what === "write");
      for (const isApplied of [true, false]) {
        const answered = guarded.filter(({ output }) => output?.succeeded === isApplied);
        expect(answered.length, `guarded writes, applied: ${isApplied}`).toBeGreaterThan(between);
      }
      const verdict = await verdictOf(`lock-${name}-${seed}`.replaceAll(/\W+/g, "-"), history);
      process.stdout.write(`${name}: ${verdict.result}, ${own.length} operations\n`);
      expect(verdict).toEqual({ result: "Ok", operations: own.length });
    } finally {
      await system.close();
    }
  });
});
