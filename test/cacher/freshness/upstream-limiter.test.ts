import { describe, expect, it } from "vitest";
import { GroupedOwner } from "../../../src/base/fair-queue.ts";
import {
  type UpstreamBounds,
  UpstreamLimiter,
  type UpstreamRequest,
} from "../../../src/cacher/freshness/upstream-limiter.ts";
import { FakeClock } from "../../fake-clock.ts";

class Member extends GroupedOwner {}

/** A store that answers on the command of the test, with the name of the request. */
class Store {
  readonly clock = new FakeClock();
  readonly limiter: UpstreamLimiter;
  /** The requests received, in order. */
  readonly requests: string[] = [];
  readonly aborted: string[] = [];
  readonly #responses = new Map<string, () => void>();

  constructor(bounds: Partial<UpstreamBounds> = {}) {
    this.limiter = new UpstreamLimiter(this.clock, {
      ...{ concurrent: 4, concurrentPerOwner: 2, queued: 10, maxWaitMs: 5_000 },
      ...bounds,
    });
  }

  read(
    owner: object,
    name: string,
    options: Partial<UpstreamRequest<string>> = {},
    signal?: AbortSignal,
  ) {
    const ask = (wanted: AbortSignal): Promise<string> => {
      this.requests.push(name);
      wanted.addEventListener("abort", () => this.aborted.push(name));
      return new Promise((resolve) => this.#responses.set(name, () => resolve(name)));
    };
    const since = this.clock.now();
    const question = { name: undefined, isCacheable: false, since, ask, ...options };
    const response = this.limiter.run(owner, question, signal);
    // A test asserts the rejection later.
    response.catch(() => {});
    return response;
  }

  async respond(...names: readonly string[]): Promise<void> {
    for (const name of names) this.#responses.get(name)?.();
    await this.clock.settle();
  }
}

const refused = { reason: "UPSTREAM_UNAVAILABLE" };

describe("Reads that only the store can serve", () => {
  it("are sent up to the bound, round-robin by owner, and the others when these complete", async () => {
    const store = new Store();
    const [greedy, modest] = [{}, {}];
    const many = Array.from({ length: 6 }, (_, i) => store.read(greedy, `greedy-${i}`));
    const few = Array.from({ length: 3 }, (_, i) => store.read(modest, `modest-${i}`));
    expect(store.requests).toEqual(["greedy-0", "greedy-1", "modest-0", "modest-1"]);
    expect(store.limiter.stats()).toEqual({ inFlight: 4, queued: 5, refused: 0 });
    await store.respond("greedy-0", "modest-0");
    expect(store.requests.slice(4)).toEqual(["greedy-2", "modest-2"]);
    for (let i = 0; i < 6; i++) await store.respond(...store.requests);
    expect(await Promise.all([...many, ...few])).toHaveLength(9);
    expect(store.limiter.stats()).toEqual({ inFlight: 0, queued: 0, refused: 0 });
  });

  it("leave room for those of another caller, however many connections one has", async () => {
    const store = new Store({ concurrent: 4, concurrentPerGroup: 3 });
    const caller = {};
    for (let i = 0; i < 8; i++) store.read(new Member(caller), `greedy-${i}`);
    expect(store.requests).toEqual(["greedy-0", "greedy-1", "greedy-2"]);
    for (let i = 0; i < 2; i++) store.read({}, `modest-${i}`);
    expect(store.requests.slice(3)).toEqual(["modest-0"]);
    await store.respond("greedy-0", "greedy-1");
    expect(store.requests.slice(4)).toEqual(["greedy-3", "modest-1"]);
  });

  it("are sent once for all equal calls that arrive before that", async () => {
    const store = new Store({ concurrent: 1 });
    const first = store.read({}, "busy");
    const same = [{}, {}, {}].map((owner) => store.read(owner, "same", { name: "same" }));
    await store.respond("busy");
    expect(await first).toBe("busy");
    expect(store.requests).toEqual(["busy", "same"]);
    // A response that may change is not shared with later calls.
    const late = store.read({}, "late", { name: "same" });
    await store.respond("same");
    expect(await Promise.all(same)).toEqual(["same", "same", "same"]);
    await store.respond("late");
    expect(await late).toBe("late");
    expect(store.requests).toEqual(["busy", "same", "late"]);
  });

  it("are shared with a call that arrived before they were sent, and joined after that", async () => {
    const store = new Store();
    const since = store.clock.now();
    store.clock.advance(3_000);
    const one = store.read({}, "same", { name: "same", since });
    const other = store.read({}, "same", { name: "same", since });
    const late = store.read({}, "late", { name: "same" });
    expect(store.requests).toEqual(["same", "late"]);
    await store.respond("same", "late");
    expect(await Promise.all([one, other, late])).toEqual(["same", "same", "late"]);
  });

  it("are shared while they are in flight if the response never changes", async () => {
    const store = new Store();
    const options = { name: "exact", isCacheable: true };
    const both = [store.read({}, "exact", options), store.read({}, "exact", options)];
    await store.respond("exact");
    expect(await Promise.all(both)).toEqual(["exact", "exact"]);
    expect(store.requests).toEqual(["exact"]);
    void store.read({}, "exact", options);
    expect(store.requests).toEqual(["exact", "exact"]);
  });

  it("that are shared do not wait behind the other reads of the first owner", async () => {
    const store = new Store({ concurrent: 1 });
    const greedy = {};
    for (let i = 0; i < 5; i++) void store.read(greedy, `greedy-${i}`);
    void store.read(greedy, "same", { name: "same" });
    const modest = store.read({}, "same", { name: "same" });
    await store.respond("greedy-0");
    await store.respond("greedy-1");
    await store.respond("same");
    expect(await modest).toBe("same");
    expect(store.requests.slice(0, 3)).toEqual(["greedy-0", "greedy-1", "same"]);
  });

  it("are refused when they have been queued for too long", async () => {
    const store = new Store({ concurrent: 1 });
    const first = store.read({}, "stalled");
    const second = store.read({}, "waiting");
    await store.clock.elapse(5_000);
    await expect(second).rejects.toMatchObject(refused);
    expect(store.limiter.stats()).toEqual({ inFlight: 1, queued: 0, refused: 1 });
    await store.respond("stalled");
    expect(await first).toBe("stalled");
    expect(store.requests).toEqual(["stalled"]);
  });

  it("are refused, if too many are queued, to the owner with the most of them", async () => {
    const store = new Store({ concurrent: 1 });
    const greedy = {};
    const many = Array.from({ length: 11 }, (_, i) => store.read(greedy, `greedy-${i}`));
    const modest = store.read({}, "modest");
    await expect(many[10]).rejects.toMatchObject(refused);
    expect(store.limiter.stats()).toEqual({ inFlight: 1, queued: 10, refused: 1 });
    await store.respond("greedy-0");
    await store.respond(...store.requests);
    await store.respond("modest");
    expect(await modest).toBe("modest");
  });

  it("are not sent, or are cancelled, when no call waits for them any more", async () => {
    const store = new Store({ concurrent: 1 });
    const [first, second, third] = [1, 2, 3].map(() => new AbortController());
    const options = { name: "read", isCacheable: true };
    const read = store.read({}, "read", options, first?.signal);
    const also = store.read({}, "read", options, second?.signal);
    const waiting = store.read({}, "waiting", {}, third?.signal);
    third?.abort(new Error("gone"));
    await expect(waiting).rejects.toThrow("gone");
    first?.abort(new Error("gone"));
    await expect(read).rejects.toThrow("gone");
    expect(store.aborted).toEqual([]);
    second?.abort(new Error("gone"));
    await expect(also).rejects.toThrow("gone");
    expect(store.aborted).toEqual(["read"]);
    await store.respond("read");
    expect(store.requests).toEqual(["read"]);
    expect(store.limiter.stats()).toEqual({ inFlight: 0, queued: 0, refused: 0 });
  });

  it("are not sent for a call that was cancelled before", async () => {
    const store = new Store();
    const read = store.read({}, "read", {}, AbortSignal.abort(new Error("gone")));
    await expect(read).rejects.toThrow("gone");
    expect(store.requests).toEqual([]);
  });

  it("are not joined by a later call once all that waited for them are gone, or they were refused", async () => {
    const store = new Store({ concurrent: 1 });
    const options = { name: "exact", isCacheable: true };
    const first = new AbortController();
    const gone = store.read({}, "gone", options, first.signal);
    first.abort(new Error("gone"));
    await expect(gone).rejects.toThrow("gone");
    const next = store.read({}, "next", options);
    await store.respond("gone");
    await store.respond("next");
    expect(await next).toBe("next");
    void store.read({}, "busy");
    const late = store.read({}, "late", options);
    await store.clock.elapse(5_000);
    await expect(late).rejects.toMatchObject(refused);
    const again = store.read({}, "again", options);
    await store.respond("busy");
    await store.respond("again");
    expect(await again).toBe("again");
    expect(store.requests).toEqual(["gone", "next", "busy", "again"]);
  });

  it("that a newer one has replaced leave that one shared when they end", async () => {
    const store = new Store();
    const old = store.read({}, "old", { name: "same" });
    const current = store.read({}, "current", { name: "same" });
    await store.respond("old");
    const since = store.clock.now() - 1;
    const joined = store.read({}, "joined", { name: "same", since });
    await store.respond("current", "joined");
    expect(await Promise.all([old, current, joined])).toEqual(["old", "current", "current"]);
  });

  it("are bounded apart from other reads, and more strictly", async () => {
    const clock = new FakeClock();
    const limiter = new UpstreamLimiter(clock);
    const counts = { reads: 0, histories: 0 };
    const connectionsOf = (caller: object) => Array.from({ length: 4 }, () => new Member(caller));
    const read = (of: UpstreamLimiter, owner: object, kind: "histories" | "reads"): void => {
      const ask = (): Promise<void> => {
        counts[kind]++;
        return new Promise(() => {});
      };
      of.run(owner, { name: undefined, isCacheable: false, ask }).catch(() => {});
    };
    const readAll = (caller: object): void => {
      for (const connection of connectionsOf(caller)) {
        for (let i = 0; i < 3; i++) read(limiter.histories, connection, "histories");
      }
    };
    const [first, second, third] = [{}, {}, {}];
    for (let i = 0; i < 3; i++) read(limiter.histories, new Member(first), "histories");
    expect(counts.histories).toBe(3);
    readAll(first);
    expect(counts.histories).toBe(4);
    for (const caller of [second, third]) readAll(caller);
    expect(counts.histories).toBe(8);
    read(limiter, first, "reads");
    expect(counts.reads).toBe(1);
    expect(limiter.stats().inFlight).toBe(9);
  });
});
