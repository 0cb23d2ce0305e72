import { mkdtemp, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { beforeAll, describe, expect, test } from "vitest";
import { StoreProcess } from "../faults/kills/store-process.ts";
import { Changing, inTime } from "../faults/patience.ts";
import { Seeded, seedOr } from "../faults/seeded.ts";
import { resource } from "../faults/wire.ts";
import { etcdCaller } from "./etcd-client.ts";
import { HistoryRecorder, isWrite, type Operation, type Outcome } from "./history.ts";
import { leaseCaller } from "./lease-client.ts";
import { LeasingClient } from "./leasing-client.ts";
import { lostWrite, type Planted, refusedAndDone, staleRead } from "./planted.ts";
import { buildChecker, buildTimeoutMs, hasGo, verdictOf } from "./porcupine.ts";
import { type Door, RandomClient } from "./random-client.ts";
import { serviceCaller } from "./service-client.ts";
import { SingleWrites } from "./single-writes.ts";
import { transactCaller } from "./transact-client.ts";
import { Transactions } from "./transactions.ts";

const clientCount = 5;
const kills = 6;

/** How many calls are answered between kills, at most. */
const between = 60;

/** Below which all keys are in the store. */
const prefix = "/things/";

/** Of one history, in milliseconds. Not an assertion: on a busy machine it takes ten times as long as on another. */
const timeout = 600_000;

/** What one of several clients does, until it is stopped. */
interface KilledClient {
  stop(): Promise<void>;
  /** The store is gone, and is there again. */
  suspend?(): void;
  resume?(): void;
}

interface Workload {
  readonly resources: readonly { readonly name: string; readonly prefix: string }[];
  readonly doors: readonly Omit<Door, "url">[];
  readonly client: (
    id: number,
    doors: readonly Door[],
    random: Seeded,
    recorder: HistoryRecorder,
    called: (door: Door, outcome: Outcome) => void,
  ) => KilledClient;
  /** What it must have in any case. */
  readonly expected: Readonly<Record<string, (operation: Operation) => boolean | undefined>>;
  readonly plants: readonly Planted[];
}

const things = [{ name: resource, prefix }];
const etcdApi = {
  ...{ name: "etcd's API", caller: etcdCaller(prefix) },
  ...{ isTransactional: true, hasRequestIds: false },
};

const workloads: Readonly<Record<string, Workload>> = {
  "Get, List, Put, Delete and etcd's Txn": {
    resources: things,
    doors: [
      { name: "the store", caller: serviceCaller(resource), isTransactional: false },
      etcdApi,
    ],
    client: (id, doors, random, recorder, called) =>
      new RandomClient(
        ...([id, doors, random, recorder] as const),
        ...([new SingleWrites(id, random.fork()), called] as const),
      ),
    expected: { refused: ({ output }) => output?.succeeded === false },
    plants: [staleRead, lostWrite, refusedAndDone],
  },
  "Transact, BatchGet and DeletePrefix, with request ids": {
    resources: ["a", "b"].map((name) => ({ name, prefix: `${prefix}${name}/` })),
    doors: [
      {
        ...{ name: "the store", caller: transactCaller },
        ...{ isTransactional: true, hasRequestIds: true },
      },
      etcdApi,
    ],
    client: (id, doors, random, recorder, called) =>
      new RandomClient(
        ...([id, doors, random, recorder] as const),
        ...([new Transactions(id, random.fork()), called] as const),
      ),
    expected: {
      refused: ({ output }) => output?.succeeded === false,
      transacted: ({ input, output }) =>
        (input.puts?.length ?? 0) > 1 && output?.succeeded && input.requestId !== undefined,
    },
    plants: [staleRead, lostWrite, refusedAndDone],
  },
  "leases and what is attached to them": {
    resources: things,
    doors: [{ name: "the store", caller: leaseCaller(resource), isTransactional: false }],
    client: (id, doors, random, recorder, called) =>
      new LeasingClient(id, doors, random, recorder, called),
    expected: {
      granted: ({ input }) => input.lease?.what === "grant",
      renewed: ({ input, output }) => input.lease?.what === "keepAlive" && !output?.hasNoLease,
      expired: ({ input }) => input.lease?.what === "expire",
    },
    // Where leases end at any time, a search for an order that does not exist takes too long.
    plants: [],
  },
};

/** A history of clients whose store is killed (-9) again and again. It ends with what the store has then. */
async function historyOf(workload: Workload, random: Seeded): Promise<Operation[]> {
  const folder = await mkdtemp(join(tmpdir(), "watch-fanout-killed-"));
  const config = join(folder, "config.yaml");
  const resources = workload.resources.map((each) => ({ ...each, codec: "json" }));
  await writeFile(config, JSON.stringify({ resources }));
  const store = new StoreProcess(random.fork(), () => [
    ...["--config", config, "--data", join(folder, "store"), "--log-level", "warn"],
    ...["--etcd-api", "on"],
  ]);
  const recorder = new HistoryRecorder();
  const changing = new Changing();
  let answered = 0;
  const called = (_door: Door, outcome: Outcome): void => {
    if (outcome === "unknown") return;
    answered++;
    changing.changed();
  };
  const afterCalls = (count: number): Promise<void> => {
    const enough = answered + count;
    return inTime(
      () => `${count} calls to be answered`,
      changing.until(() => answered >= enough),
      timeout,
    );
  };
  try {
    await store.start();
    // No client calls a store that is gone: the more outcomes are unknown, the harder is the check.
    let isUp = true;
    const doors = workload.doors.map(
      (door): Door => ({
        ...{ ...door, url: () => store.url },
        caller: async (_url, input) => {
          await changing.until(() => isUp);
          return door.caller(store.url, input);
        },
      }),
    );
    const clients = Array.from({ length: clientCount }, (_, id) =>
      workload.client(id, doors, random.fork(), recorder, called),
    );
    for (let i = 0; i < kills; i++) {
      await afterCalls(random.between(1, between));
      await store.kill(
        () => answered,
        () => {
          isUp = false;
          for (const client of clients) client.suspend?.();
        },
      );
      await store.start();
      isUp = true;
      for (const client of clients) client.resume?.();
      changing.changed();
    }
    await afterCalls(between);
    await Promise.all(clients.map((client) => client.stop()));
    const input = { range: { key: "", isPrefix: true } };
    await recorder.record(clientCount, input, () => etcdApi.caller(store.url, input));
    return recorder.operations;
  } finally {
    await store.close();
    await rm(folder, { recursive: true });
  }
}

describe.skipIf(!(await hasGo()))("A history of an embedded store that is killed", () => {
  beforeAll(buildChecker, buildTimeoutMs);

  test.for(Object.entries(workloads))(
    "with %s is linearizable",
    { timeout },
    async ([name, workload]) => {
      const seed = seedOr(1);
      const operations = await historyOf(workload, new Seeded(seed));
      const unknown = operations.filter(({ input, output }) => isWrite(input) && !output).length;
      for (const [what, matches] of Object.entries(workload.expected)) {
        expect(operations.filter(matches).length, what).toBeGreaterThan(3);
      }
      const history = { revision: 1, idsTakeNoRevision: true, operations };
      const file = `killed-${name}-${seed}`.replaceAll(/\W+/g, "-");
      const verdict = await verdictOf(file, history);
      process.stdout.write(
        `${name}: ${verdict.result}, ${operations.length} operations, ${unknown} of unknown outcome\n`,
      );
      expect(verdict).toEqual({ result: "Ok", operations: operations.length });
      for (const plant of workload.plants) {
        const wrong = await verdictOf(`${file}-${plant.name}`, plant(history));
        expect(wrong.result, plant.name).toBe("Illegal");
      }
    },
  );
});
