import { mkdtemp, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { beforeAll, describe, expect, test } from "vitest";
import { StoreProcess } from "../faults/kills/store-process.ts";
import { Changing, inTime } from "../faults/patience.ts";
import { Seeded, seedOr } from "../faults/seeded.ts";
import { resource } from "../faults/wire.ts";
import { HistoryRecorder, isWrite, type Outcome } from "./history.ts";
import { lostWrite, staleRead } from "./planted.ts";
import { buildChecker, buildTimeoutMs, hasGo, verdictOf } from "./porcupine.ts";
import { type Door, RandomClient } from "./random-client.ts";
import { serviceCaller } from "./service-client.ts";
import { SingleWrites } from "./single-writes.ts";

const clientCount = 5;
const kills = 6;

/** How many calls are answered between kills, at most. */
const between = 60;

/** Of one history, in milliseconds. Not an assertion: on a busy machine it takes ten times as long as on another. */
const timeout = 300_000;

/**
 * Not transactions: with an etcd the record of a request id is a revision, which the checker's model has, and the embedded store
 * does not make.
 */
const workloads = {
  "Get, List, Put and Delete": {
    resources: [resource],
    door: { caller: serviceCaller(resource), isTransactional: false },
    client: SingleWrites,
  },
} as const;

describe.skipIf(!(await hasGo()))("A history of an embedded store that is killed", () => {
  beforeAll(buildChecker, buildTimeoutMs);

  test.for(Object.entries(workloads))(
    "with %s is linearizable",
    { timeout },
    async ([name, workload]) => {
      const seed = seedOr(1);
      const random = new Seeded(seed);
      const folder = await mkdtemp(join(tmpdir(), "watch-fanout-killed-"));
      const config = join(folder, "config.yaml");
      const resources = workload.resources.map((each) => ({
        ...{ name: each, prefix: `/things/${each}/`, codec: "json" },
      }));
      await writeFile(config, JSON.stringify({ resources }));
      const args = ["--config", config, "--data", join(folder, "store"), "--log-level", "warn"];
      const store = new StoreProcess(random.fork(), () => args);
      const recorder = new HistoryRecorder();
      const changing = new Changing();
      let answered = 0;
      const called = (_door: Door, outcome: Outcome): void => {
        if (outcome === "unknown") return;
        answered++;
        changing.changed();
      };
      try {
        await store.start();
        // No client calls a store that is gone: the more outcomes are unknown, the harder is the check.
        let isUp = true;
        const door: Door = {
          ...{ ...workload.door, name: "the store", url: () => store.url },
          caller: async (_url, input) => {
            await changing.until(() => isUp);
            return workload.door.caller(store.url, input);
          },
        };
        const clients = Array.from({ length: clientCount }, (_, id) => {
          const own = new workload.client(id, random.fork());
          return new RandomClient(id, [door], random.fork(), recorder, own, called);
        });
        for (let i = 0; i < kills; i++) {
          const enough = answered + random.between(1, between);
          await inTime(
            () => "calls",
            changing.until(() => answered >= enough),
          );
          await store.kill(
            () => answered,
            () => {
              isUp = false;
            },
          );
          await store.start();
          isUp = true;
          changing.changed();
        }
        const enough = answered + between;
        await inTime(
          () => "calls",
          changing.until(() => answered >= enough),
        );
        await Promise.all(clients.map((client) => client.stop()));
        const { operations } = recorder;
        const unknown = operations.filter(({ input, output }) => isWrite(input) && !output).length;
        const history = { revision: 1, operations };
        const file = `killed-${name}-${seed}`.replaceAll(/\W+/g, "-");
        const verdict = await verdictOf(file, history);
        process.stdout.write(
          `${name}: ${verdict.result}, ${operations.length} operations, ${unknown} of unknown outcome\n`,
        );
        expect(verdict).toEqual({ result: "Ok", operations: operations.length });
        expect(unknown).toBeGreaterThan(0);
        for (const plant of [staleRead, lostWrite]) {
          const wrong = await verdictOf(`${file}-${plant.name}`, plant(history));
          expect(wrong.result, plant.name).toBe("Illegal");
        }
      } finally {
        await store.close();
        await rm(folder, { recursive: true });
      }
    },
  );
});
