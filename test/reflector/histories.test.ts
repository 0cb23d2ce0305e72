import { describe, expect, test } from "vitest";
import { upstreamUnavailable, WatchFanoutError } from "../../src/base/errors.ts";
import type { ReflectorOptions, ReflectorTarget } from "../../src/reflector/reflector.ts";
import type { WatchRequest } from "../../src/storage/storage.ts";
import { batch, object, Reflected } from "./reflected.ts";
import { ScriptedStorage } from "./scripted-storage.ts";

/** A Reflector over a storage whose history has an id, and what it did to both sides. */
class World {
  readonly storage = new ScriptedStorage();
  readonly heard: string[] = [];
  historyId = "first";
  readonly requests: WatchRequest[] = [];
  readonly reflected: Reflected;

  constructor(target: Partial<ReflectorTarget> = {}, options: Partial<ReflectorOptions> = {}) {
    const { storage, heard } = this;
    storage.objects = [object("a", 3)];
    storage.historyId = () => Promise.resolve(this.historyId);
    storage.renewHistory = (followed?: string) => {
      heard.push(`renew ${followed}`);
      this.historyId = "renewed";
      return Promise.resolve(this.historyId);
    };
    storage.requestProgress = () => void heard.push("progress requested");
    storage.onWatch = (_, request) => this.requests.push(request);
    this.reflected = new Reflected(storage, {
      target: {
        replace: ({ revision, historyId }, cause) =>
          void heard.push(`${cause}: ${historyId} at ${revision}`),
        apply: ({ revision }) => void heard.push(`batch ${revision}`),
        invalidate: () => void heard.push("invalidated"),
        ...target,
      },
      onRecovered: () => void heard.push("recovered"),
      ...options,
    });
  }

  get reflector() {
    return this.reflected.reflector;
  }

  /** What it did since the last call, once `ms` have passed. */
  async since(ms = 0): Promise<string[]> {
    await this.reflected.clock.elapse(ms);
    return this.heard.splice(0);
  }

  /** The storage's watch ends. */
  fail(reason: "UPSTREAM_UNAVAILABLE" | "HISTORY_CHANGED" | "REVISION_TOO_OLD"): void {
    this.storage.stream.end(new WatchFanoutError(reason, "failed"));
  }
}

async function following(...args: ConstructorParameters<typeof World>): Promise<World> {
  const world = new World(...args);
  await world.reflected.begin();
  expect(await world.since()).toEqual(["start: first at 5"]);
  return world;
}

describe("A Reflector", () => {
  test("knows what it does, and asks for no previous objects", async () => {
    const world = new World();
    const { reflector } = world;
    expect([reflector.next, reflector.isWatching, reflector.historyGeneration]).toEqual([
      ...["list", false, 0],
    ]);
    await world.reflected.begin();
    expect([reflector.next, reflector.isWatching, reflector.historyGeneration]).toEqual([
      ...["resume", true, 1],
    ]);
    expect(world.requests).toMatchObject([{ afterRevision: 5, withPrevious: false }]);
  });

  test("requests progress when it resumes after a failure, and recovers with that", async () => {
    const world = await following();
    world.storage.stream.push(batch(6));
    expect(await world.since()).toEqual(["batch 6"]);
    world.fail("UPSTREAM_UNAVAILABLE");
    expect(await world.since(1_000)).toEqual(["progress requested"]);
    world.storage.stream.push(batch(6));
    world.storage.stream.push(batch(7));
    expect(await world.since()).toEqual(["batch 6", "recovered", "batch 7"]);
  });

  test("recovers from a failed list with the list", async () => {
    const world = new World();
    const { storage } = world;
    storage.onCurrentRevision = () => Promise.reject(upstreamUnavailable("away"));
    await world.reflected.begin();
    expect(await world.since()).toEqual([]);
    storage.onCurrentRevision = () => 5;
    expect(await world.since(1_000)).toEqual(["start: first at 5", "recovered"]);
  });

  test("relists if its target asks for that, also when it is not watching", async () => {
    const world = await following();
    world.reflector.relist();
    world.reflector.relist();
    expect(await world.since()).toEqual(["history lost: first at 5"]);
    world.fail("UPSTREAM_UNAVAILABLE");
    await world.reflected.clock.settle();
    world.reflector.relist();
    expect(await world.since(1_000)).toEqual(["history lost: first at 5", "recovered"]);
    expect(world.reflector.relists).toBe(2);
  });
});

describe("Another history of the store", () => {
  test("that its watch reports is listed at once, under a new id", async () => {
    const world = await following();
    const next = world.reflector.untilNextHistory({});
    world.fail("HISTORY_CHANGED");
    expect(await world.since()).toEqual([
      ...["invalidated", "renew first", "history changed: renewed at 5", "recovered"],
    ]);
    await next;
    expect(world.reflector.historyGeneration).toBe(2);
  });

  test("that a write has shown is listed at once, once, also out of a pause", async () => {
    const world = await following();
    world.reflector.invalidate(0);
    world.reflector.invalidate(1);
    world.reflector.invalidate(1);
    expect(await world.since()).toEqual([
      ...["invalidated", "renew first", "history changed: renewed at 5"],
    ]);
    world.fail("UPSTREAM_UNAVAILABLE");
    await world.reflected.clock.settle();
    world.reflector.invalidate(2);
    expect((await world.since()).at(-1)).toBe("recovered");
    expect(world.reflector.historyGeneration).toBe(3);
  });

  test("with an id that another replica has written is that of the next list", async () => {
    const world = await following();
    world.historyId = "second";
    world.reflector.relist();
    expect(await world.since()).toEqual(["history changed: second at 5"]);
    // An id that can't be read is the one that is known.
    world.historyId = "";
    world.reflector.relist();
    expect(await world.since()).toEqual(["history lost: second at 5"]);
  });

  test("is shown by a list that conflicts with the target's state", async () => {
    let conflicts = false;
    const world = await following({ conflictsWith: () => conflicts });
    conflicts = true;
    world.fail("REVISION_TOO_OLD");
    expect(await world.since(1_000)).toEqual([
      ...["renew first", "history changed: renewed at 5", "recovered"],
    ]);
  });

  test.each([
    ["which the store is asked for", undefined],
    ["which the list names", "second"],
  ])(
    "that a restore during a list has begun makes that void: by the id %s",
    async (_, listedId) => {
      const world = new World();
      const { storage, requests } = world;
      storage.onList = (request, revision) => {
        if (listedId === undefined) world.historyId = "second";
        storage.onList = (another, at) => storage.pageOf(another, at);
        return { ...storage.pageOf(request, revision), historyId: listedId };
      };
      await world.reflected.begin();
      expect(await world.since()).toEqual([]);
      world.historyId = "second";
      expect(await world.since(1_000)).toEqual(["start: second at 5", "recovered"]);
      expect(requests).toMatchObject([{ afterRevision: 5, historyId: "second" }]);
    },
  );

  test("that is found during a list makes that void", async () => {
    const world = await following();
    const listed = Promise.withResolvers<void>();
    const { onList } = world.storage;
    world.storage.onList = async (request, revision) => {
      world.storage.onList = onList;
      await listed.promise;
      return onList(request, revision);
    };
    world.reflector.relist();
    expect(await world.since()).toEqual([]);
    world.reflector.invalidate(1);
    listed.resolve();
    expect(await world.since(1_000)).toEqual([
      ...[
        "invalidated",
        "invalidated",
        "renew first",
        "history changed: renewed at 5",
        "recovered",
      ],
    ]);
  });
});

describe("The preparation of a listed state", () => {
  test("comes before its delivery, and its error is the target's", async () => {
    const prepared: number[] = [];
    const prepare = (objects: readonly unknown[]) => {
      prepared.push(objects.length);
      return Promise.resolve();
    };
    await following({ prepare });
    expect(prepared).toEqual([1]);
    const failing = new World({ prepare: () => Promise.reject(upstreamUnavailable("a bug")) });
    await failing.reflected.begin();
    expect(failing.heard).toEqual([]);
    // It is not one of the storage, after which it would try again.
    expect(failing.reflected.outcome).toMatchObject({ message: "a bug" });
  });

  test("is cut short by the end", async () => {
    const world = new World({
      prepare: (_, signal) =>
        new Promise((_resolve, reject) => {
          signal.addEventListener("abort", () => reject(new Error("aborted")));
        }),
    });
    await world.reflected.begin();
    world.reflector.stop();
    expect([await world.since(), world.reflected.outcome]).toEqual([[], "stopped"]);
  });
});

test("A list that is bounded in bytes is read in pages of 50,000 objects, another one at once", async () => {
  for (const [maxBytes, limit] of [
    [0, 0],
    [1_000_000, 50_000],
  ]) {
    const world = new World({}, { maxBytes });
    await world.reflected.begin();
    expect(world.storage.calls).toContain(`list ${limit} of "" at 5`);
  }
});
