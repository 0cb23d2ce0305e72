import { pino } from "pino";
import { describe, expect, it } from "vitest";
import {
  historyChanged,
  objectNotFound,
  otherHistory,
  upstreamUnavailable,
  WatchFanoutError,
} from "../../../src/base/errors.ts";
import { UpstreamWriter } from "../../../src/cacher/freshness/upstream-writer.ts";
import type { ComponentContext } from "../../../src/cacher/state/component.ts";
import type { StoredObject } from "../../../src/model/object.ts";
import type { Reflector } from "../../../src/reflector/reflector.ts";
import type { WriteResult } from "../../../src/storage/storage.ts";
import type { StoreWrite } from "../../../src/storage/store.ts";
import { FakeClock } from "../../fake-clock.ts";
import { object } from "../objects.ts";

/** A cache at revision 5 of the history "first", and what its reflector does and is asked for. */
class World {
  readonly clock = new FakeClock();
  readonly state = new Map<string, StoredObject>();
  readonly cache = { revision: 5, historyId: "first", state: this.state };
  historyGeneration = 1;
  isFollowed = false;
  /** What the store answers when the history has to be confirmed. */
  confirms: () => Promise<void> = async () => {};
  readonly log: string[] = [];
  readonly #listed: (() => void)[] = [];

  /** The next list has this history. */
  list(historyId: string): void {
    this.historyGeneration++;
    this.cache.historyId = historyId;
    for (const listed of this.#listed.splice(0)) listed();
  }

  write(answer: Promise<Partial<WriteResult>>): Promise<WriteResult> {
    const written = this.#writer(answer).put({ key: "a", value: Buffer.of() });
    written.catch(() => {});
    return written;
  }

  /** The id of the history of a transaction with this result. */
  async idOfTransaction(result: StoreWrite): Promise<string> {
    const writer = this.#writer(Promise.reject(new Error("not used")));
    return writer.historyOfWrite(Promise.resolve(result), () => undefined, undefined);
  }

  #writer(answer: Promise<Partial<WriteResult>>): UpstreamWriter {
    answer.catch(() => {});
    const logger = pino({ level: "silent" });
    const storage = { put: () => answer };
    const { clock, cache } = this;
    const context = { name: "things", storage, cache, clock, logger };
    const world = this;
    const reflector = {
      get historyGeneration() {
        return world.historyGeneration;
      },
      get isFollowed() {
        return world.isFollowed;
      },
      invalidate: (generation: number) => this.log.push(`invalidated ${generation}`),
      confirmHistory: () => {
        this.log.push("asked");
        return this.confirms();
      },
      untilNextHistory: () => {
        this.log.push("waits");
        return new Promise<void>((resolve, reject) => {
          this.#listed.push(resolve);
          clock.setTimeout(() => reject(new Error("late")), 3_000);
        });
      },
    };
    return new UpstreamWriter(
      context as unknown as ComponentContext,
      reflector as unknown as Reflector,
    );
  }

  /** The id of the history in the response to a write of `a` at this revision. */
  async idOf(revision: number, reported?: string): Promise<string | undefined> {
    const answer = { revision, object: object("a", revision), historyId: reported };
    return (await this.write(Promise.resolve(answer as WriteResult))).historyId;
  }
}

/** A store that has another history than the cache, which is listed meanwhile. */
function restored(): World {
  const world = new World();
  world.confirms = async () => {
    world.list("second");
    throw historyChanged(5, 3, "first");
  };
  return world;
}

describe("The history's id in the response to a transaction", () => {
  it.each<[string, StoreWrite, boolean]>([
    ["wrote above the cache's revision", { revision: 6, revisionBefore: 5 }, false],
    ["wrote the cache's revision again", { revision: 5, revisionBefore: 4 }, true],
    ["wrote nothing at the cache's revision", { revision: 5, revisionBefore: 5 }, false],
    ["wrote nothing below it", { revision: 4, revisionBefore: 4 }, true],
    ["was executed before", { revision: 2, revisionBefore: 7 }, false],
    ["does not say what the revision was before it", { revision: 2 }, false],
  ])("that %s", async (_, result, isOther) => {
    const world = new World();
    world.isFollowed = true;
    const id = world.idOfTransaction(result);
    if (isOther) {
      await Promise.resolve();
      await Promise.resolve();
      world.list("second");
    }
    expect(await id).toBe(isOther ? "second" : "first");
    expect(world.log).toEqual(isOther ? ["invalidated 1", "waits"] : []);
  });
});

describe("The history's id in the response to a write", () => {
  it("is the store's, before the first list", async () => {
    const world = new World();
    world.historyGeneration = 0;
    expect([await world.idOf(3, "reported"), await world.idOf(3)]).toEqual(["reported", ""]);
    expect(world.log).toEqual([]);
  });

  it("is the cache's while its watch is open, or the store confirms the history", async () => {
    const world = new World();
    world.isFollowed = true;
    expect([await world.idOf(6), await world.idOf(7, "first"), world.log]).toEqual([
      ...["first", "first", []],
    ]);
    world.isFollowed = false;
    expect([await world.idOf(8), world.log]).toEqual(["first", ["asked"]]);
  });

  it("is not known if the store does not answer, or not in 3 s", async () => {
    const world = new World();
    world.confirms = () => Promise.reject(upstreamUnavailable("The store is away."));
    expect(await world.idOf(6)).toBe("");
    world.confirms = () => new Promise(() => {});
    const id = world.idOf(6);
    await world.clock.elapse(3_000);
    expect([await id, world.log]).toEqual(["", ["asked", "asked"]]);
  });

  it("is not known if the other history is not listed in 3 s", async () => {
    const world = new World();
    world.confirms = () => Promise.reject(historyChanged(5, 3, "first"));
    const id = world.idOf(6);
    await world.clock.elapse(3_000);
    expect([await id, world.log]).toEqual(["", ["asked", "waits"]]);
  });

  it("is the new one if the store reports that, whatever was done to the object since", async () => {
    const world = new World();
    const id = world.idOf(6, "second");
    await world.clock.settle();
    world.list("second");
    expect([await id, world.log]).toEqual(["second", ["invalidated 1", "waits"]]);
  });

  it("is the new one if its revision is one that the old history had", async () => {
    const world = new World();
    const id = world.idOf(5);
    await world.clock.settle();
    world.list("second");
    expect([await id, world.log]).toEqual(["second", ["invalidated 1", "waits"]]);
  });

  it("is the new one if that has the object, as it may also have been written just before the restore", async () => {
    const [world, changed, gone] = [restored(), restored(), restored()];
    world.state.set("a", object("a", 6));
    changed.state.set("a", object("a", 7));
    expect(await world.idOf(6)).toBe("second");
    expect([await changed.idOf(6), await gone.idOf(6)]).toEqual(["", ""]);
  });

  it("is the new one if the cache has listed it while the old one was confirmed", async () => {
    const world = new World();
    world.confirms = async () => world.list("second");
    expect(await world.idOf(6)).toBe("");
    world.confirms = async () => world.list("third");
    world.state.set("a", object("a", 7));
    expect(await world.idOf(7)).toBe("third");
    expect(world.log).toEqual(["asked", "asked"]);
  });

  it("is the new one if the cache has listed it during the write, without a question to the store", async () => {
    const world = new World();
    world.state.set("a", object("a", 6));
    const { promise, resolve } = Promise.withResolvers<WriteResult>();
    const written = world.write(promise);
    world.list("second");
    resolve({ revision: 6, object: object("a", 6) } as WriteResult);
    expect([(await written).historyId, world.log]).toEqual(["second", []]);
  });

  it.each([
    ["another one than the cache's proves another history", "first", "second", "invalidated 1"],
    ["the cache's does not", "first", "first", undefined],
    ["none does not", "first", "", undefined],
    ["any does not while the cache's is not known", "", "second", undefined],
  ])("%s", async (_, known, reported, logged) => {
    const world = new World();
    world.isFollowed = true;
    world.cache.historyId = known;
    const id = world.idOf(6, reported);
    await world.clock.settle();
    if (logged !== undefined) world.list(reported);
    await id;
    expect(world.log[0]).toBe(logged);
  });
});

describe("A refused write keeps its error, and", () => {
  const conflict = (revision: number): WatchFanoutError =>
    new WatchFanoutError("REVISION_CONFLICT", "conflict", {
      metadata: { revision: String(revision) },
    });

  it.each([
    ["proves another history by a lower revision", conflict(4), ["invalidated 1", "waits"]],
    ["by an absent object, too", objectNotFound("a", 4), ["invalidated 1", "waits"]],
    ["proves nothing by the cache's revision: the store is asked", conflict(5), ["asked"]],
    ["proves another history by its id", otherHistory("first", "second"), ["invalidated 1"]],
    ["proves nothing by the cache's id", otherHistory("second", "first"), []],
    ["says nothing of the history for another reason", upstreamUnavailable("away"), []],
    ["says nothing of it if it is a bug", new Error("bug"), []],
  ])("%s", async (_, error, log) => {
    const world = new World();
    const written = world.write(Promise.reject(error));
    await world.clock.elapse(3_000);
    await expect(written).rejects.toBe(error);
    expect(world.log).toEqual(log);
  });

  it("is compared with nothing before the first list", async () => {
    const world = new World();
    world.historyGeneration = 0;
    await expect(world.write(Promise.reject(conflict(4)))).rejects.toThrow("conflict");
    expect(world.log).toEqual([]);
  });
});
