import { setTimeout as delay } from "node:timers/promises";
import { expect, it, onTestFinished } from "vitest";
import { slotOf } from "../../src/client/coordination/slots.ts";
import type { TypedResource } from "../../src/client/typed/typed-resource.ts";
import { jsonValues } from "../../src/client/values/value-codec.ts";
import { startEtcd } from "../etcd/etcd.ts";
import { untilSeen } from "../faults/patience.ts";
import { fencingViolations, type GuardedWrite } from "../guarantees/ownership.ts";
import { Example } from "./example.ts";
import { Service } from "./service.ts";
import { MemberLogs } from "./sharded-logs.ts";

interface Result {
  readonly words: number;
  readonly by: string;
  readonly token: number;
}

const slots = 16;
const keys = Array.from({ length: 32 }, (_, n) => `job-${n}`);
/** That of the example. */
const ttlMs = 5_000;
/** What the store may add to a lease. */
const storeMs = 1_000;
/** For a machine that does other things: processes that notice and log late. */
const busyMs = 2_000;

/** Replaces one job after another until it is stopped, then returns the number of words of each. */
async function write(
  jobs: TypedResource<string>,
  signal: AbortSignal,
): Promise<Map<string, number>> {
  const words = new Map<string, number>();
  for (let n = 0; !signal.aborted || words.size < keys.length; n++) {
    const key = keys[n % keys.length] ?? "";
    words.set(key, 1 + (n % 7));
    await jobs.put(key, Array.from({ length: 1 + (n % 7) }, () => "word").join(" "));
    await delay(10);
  }
  return words;
}

it("The sharded controller reconciles every object in one of its processes at a time, also when one is killed and one comes", async () => {
  const etcd = await startEtcd();
  onTestFinished(() => etcd.stop());
  const service = await Service.onEtcd(etcd, "jobs", "results", "members");
  const results = service.client.resource<Result>("results", jsonValues());
  const logs = new MemberLogs(slots);
  const start = (name: string): Example => {
    const example = Example.start("sharded-controller/main.ts", [name], service.address);
    logs.add(name, example);
    return example;
  };
  const until = (what: string, isTrue: () => boolean) =>
    untilSeen(what, async () => isTrue() || undefined);

  const writes: GuardedWrite[][] = Array.from({ length: slots }, () => []);
  const watching = new AbortController();
  const watched = (async () => {
    for await (const { events } of results.watch({
      signal: watching.signal,
      sendInitialEvents: true,
    })) {
      for (const { object } of events) {
        if (object === undefined || !("value" in object)) continue;
        const { by: owner, token: fencingToken } = object.value;
        writes[slotOf(object.key, slots)]?.push({
          revision: object.modRevision,
          owner,
          fencingToken,
        });
      }
    }
  })();

  const first = [start("Ada"), start("Ben"), start("Eve")];
  const stopping = new AbortController();
  const writing = write(service.client.resource("jobs", jsonValues<string>()), stopping.signal);
  const areDivided = (...names: readonly string[]) => logs.areDivided(names);
  await until("the division among three", () => areDivided("Ada", "Ben", "Eve"));
  const reconciledBy = (name: string) =>
    logs.reconciles().filter((each) => each.owner === name).length;
  await until("the work of each", () =>
    ["Ada", "Ben", "Eve"].every((name) => reconciledBy(name) > 5),
  );
  logs.ends("Ada", Date.now());
  await first[0]?.kill();
  await until("the division among two", () => areDivided("Ben", "Eve"));
  const last = start("Fay");
  await until("the division among three again", () => areDivided("Ben", "Eve", "Fay"));
  await until("the work of the one that came", () => reconciledBy("Fay") > 5);
  stopping.abort();
  const expected = await writing;

  const found = async (): Promise<Map<string, number>> => {
    const page = await results.list().next();
    return new Map((page.value?.items ?? []).map(({ key, value }) => [key, value.words]));
  };
  await expect.poll(found, { timeout: 60_000 }).toEqual(expected);
  watching.abort();
  await watched.catch(() => {});
  for (const example of [...first.slice(1), last]) expect(await example.stop()).toBe(0);

  expect(logs.overlaps()).toEqual([]);
  const { violations, longestGapMs } = logs.ownership(ttlMs + storeMs + busyMs);
  expect(violations).toEqual([]);
  // The slots of the one that was killed had to wait for its lease.
  expect(longestGapMs).toBeGreaterThan(ttlMs / 2);
  expect(writes.flatMap((ofSlot) => fencingViolations(ofSlot))).toEqual([]);
  expect(new Set(writes.flat().map(({ owner }) => owner))).toEqual(
    new Set(["Ada", "Ben", "Eve", "Fay"]),
  );
}, 240_000);
