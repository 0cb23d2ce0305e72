import { describe, expect, it } from "vitest";
import { WatchFanoutError } from "../../src/base/errors.ts";
import { batch, object, Reflected } from "./reflected.ts";
import { never, ScriptedStorage } from "./scripted-storage.ts";

const unavailable = new WatchFanoutError("UPSTREAM_UNAVAILABLE", "As the script has it.");

/** A moment in a Reflector's life: `reach` leads to it; `heard` are the target's calls until then. */
interface Moment {
  readonly name: string;
  reach(storage: ScriptedStorage, reflected: Reflected): Promise<void>;
  readonly heard: readonly string[];
}

const moments: Moment[] = [
  {
    name: "before it runs",
    reach: async () => {},
    heard: [],
  },
  {
    name: "while it asks for the current revision",
    reach: async (storage, reflected) => {
      storage.onCurrentRevision = () => never;
      await reflected.begin();
    },
    heard: [],
  },
  {
    name: "while it waits for the first page",
    reach: async (storage, reflected) => {
      storage.onList = () => never;
      await reflected.begin();
    },
    heard: [],
  },
  {
    name: "while it waits for a later page",
    reach: async (storage, reflected) => {
      storage.onList = (request, revision) =>
        request.startAfter === undefined ? storage.pageOf(request, revision) : never;
      await reflected.begin();
    },
    heard: [],
  },
  {
    name: "in the pause after a listing that failed",
    reach: async (storage, reflected) => {
      storage.onList = () => Promise.reject(unavailable);
      await reflected.begin();
      storage.onList = (request, revision) => storage.pageOf(request, revision);
    },
    heard: [],
  },
  {
    name: "in a watch in which nothing came",
    reach: (_storage, reflected) => reflected.begin(),
    heard: ["start: [a@1 b@2] →5 of 5"],
  },
  {
    name: "in a watch in which something came",
    reach: async (storage, reflected) => {
      await reflected.begin();
      storage.stream.push(batch(6));
    },
    heard: ["start: [a@1 b@2] →5 of 5", "→6"],
  },
  {
    name: "in the pause after a watch that broke",
    reach: async (storage, reflected) => {
      await reflected.begin();
      storage.stream.end(unavailable);
      await reflected.clock.settle();
    },
    heard: ["start: [a@1 b@2] →5 of 5"],
  },
  {
    name: "while it relists",
    reach: async (storage, reflected) => {
      await reflected.begin();
      storage.onList = () => never;
      storage.stream.end(new WatchFanoutError("HISTORY_LOST", "As the script has it."));
      await reflected.clock.elapse(50);
    },
    heard: ["start: [a@1 b@2] →5 of 5"],
  },
  {
    name: "in a watch that was resumed",
    reach: async (storage, reflected) => {
      await reflected.begin();
      storage.stream.end(unavailable);
      await reflected.clock.elapse(50);
    },
    heard: ["start: [a@1 b@2] →5 of 5"],
  },
];

function script(): { storage: ScriptedStorage; reflected: Reflected } {
  const storage = new ScriptedStorage();
  storage.objects = [object("a", 1), object("b", 2)];
  return { storage, reflected: new Reflected(storage, { pageSize: 1 }) };
}

/** Asserts that it has ended and left nothing behind. */
async function expectStopped(storage: ScriptedStorage, reflected: Reflected): Promise<void> {
  await reflected.clock.settle();
  expect(reflected.outcome).toBe("stopped");
  expect(reflected.clock.pendingTimers).toBe(0);
  const { length } = storage.calls;
  const heard = [...reflected.heard];
  for (const stream of storage.streams) {
    expect(stream.ended, "a stream left open").toBeDefined();
    stream.push(batch(90, ["ADDED", "late", 90]));
  }
  await reflected.clock.elapse(60_000);
  expect(storage.calls).toHaveLength(length);
  expect(reflected.heard).toEqual(heard);
}

describe("A stopped Reflector", () => {
  it.each(moments)("ends at once, $name", async ({ reach, heard }) => {
    const { storage, reflected } = script();
    await reach(storage, reflected);
    reflected.reflector.stop();
    reflected.reflector.stop();
    if (reflected.outcome === undefined) await reflected.begin();
    expect(reflected.heard).toEqual(heard);
    await expectStopped(storage, reflected);
  });

  it("delivers nothing after any step on the way to the watch", async () => {
    let last = 0;
    for (let steps = 0; last < 5; steps++) {
      const { storage, reflected } = script();
      storage.onWatch = (stream) => stream.push(batch(6));
      void reflected.reflector.run();
      for (let i = 0; i < steps; i++) await Promise.resolve();
      reflected.reflector.stop();
      const done = storage.streams.length + reflected.heard.length;
      await reflected.begin();
      await expectStopped(storage, reflected);
      expect(storage.streams.length + reflected.heard.length).toBe(done);
      // The steps were all: the revision, two pages, the state, the watch and its batches.
      if (reflected.heard.length === 2) last++;
    }
  });

  it("does not begin to watch if its target stopped it in replace", async () => {
    const { storage, reflected } = script();
    reflected.onHeard = () => reflected.reflector.stop();
    await reflected.begin();
    expect(storage.streams).toEqual([]);
    await expectStopped(storage, reflected);
  });

  it("does not deliver batches that already wait if its target stopped it in apply", async () => {
    const { storage, reflected } = script();
    await reflected.begin();
    reflected.onHeard = () => reflected.reflector.stop();
    storage.stream.push(batch(6), batch(7), batch(8));
    expect(reflected.heard).toEqual(["start: [a@1 b@2] →5 of 5", "→6"]);
    await expectStopped(storage, reflected);
  });

  it("does not watch if it was stopped between list and watch", async () => {
    const { storage, reflected } = script();
    reflected.onHeard = () => queueMicrotask(() => reflected.reflector.stop());
    await reflected.begin();
    await expectStopped(storage, reflected);
  });
});

describe("A Reflector ends with an error that is not retried", () => {
  const fault = new TypeError("a fault of ours");

  it.each([
    [
      "asking for the current revision",
      (storage: ScriptedStorage) => {
        storage.onCurrentRevision = () => Promise.reject(fault);
      },
    ],
    [
      "listing",
      (storage: ScriptedStorage) => {
        storage.onList = () => Promise.reject(fault);
      },
    ],
    [
      "watching",
      (storage: ScriptedStorage) => {
        storage.onWatch = (stream) => stream.end(fault);
      },
    ],
  ])("in %s", async (_where, breaks) => {
    const { storage, reflected } = script();
    breaks(storage);
    await reflected.begin();
    expect(reflected.outcome).toBe(fault);
    expect(reflected.clock.pendingTimers).toBe(0);
  });

  it.each([
    ["whatever", fault],
    ["an error that a storage may fail with", unavailable],
    ["an error that would cause a relist", new WatchFanoutError("REVISION_TOO_OLD", "Scripted.")],
    ["what is no error", "a string"],
  ])("when the target throws %s", async (_what, thrown) => {
    for (const deliveries of [1, 2]) {
      const { storage, reflected } = script();
      reflected.onHeard = () => {
        if (reflected.heard.length === deliveries) throw thrown;
      };
      await reflected.begin();
      if (deliveries > 1) storage.stream.push(batch(6), batch(7));
      await reflected.clock.elapse(60_000);
      expect(reflected.outcome).toBe(thrown);
      expect(reflected.heard).toHaveLength(deliveries);
      expect(storage.streams.map(({ ended }) => ended)).toEqual(deliveries > 1 ? [null] : []);
      expect(reflected.clock.pendingTimers).toBe(0);
    }
  });
});
