import { describe, expect, it } from "vitest";
import { Catalog } from "../../src/xds/catalog.ts";
import type { Change } from "../../src/xds/change.ts";
import type { XdsResource } from "../../src/xds/response.ts";
import { XdsSubscription } from "../../src/xds/subscription.ts";
import { type XdsType, xdsTypes } from "../../src/xds/types.ts";
import { FakeClock } from "../fake-clock.ts";
import { SlowClock } from "./slow-clock.ts";

const [cds, eds] = xdsTypes as [XdsType, XdsType];

/** A client of one type, without a stream. */
class Client {
  readonly catalog: Catalog;
  readonly subscription: XdsSubscription;
  #revision = 0;

  constructor(type: XdsType, { isDelta, clock = new FakeClock() }: ClientOptions) {
    this.catalog = new Catalog(type, clock);
    this.subscription = new XdsSubscription(this.catalog, { isDelta, pump: () => {} });
  }

  /** Stores these resources, each with `bytes` bytes, and removes others, in one commit. */
  commit(names: readonly string[], removed: readonly string[] = [], bytes = 0): void {
    const revision = ++this.#revision;
    const content = { version: String(revision), any: Buffer.alloc(bytes) };
    const made = names.map((name): XdsResource => this.catalog.make(name, content, revision));
    this.catalog.commit(made, removed, revision);
  }

  ask(change: Partial<Change>): void {
    this.subscription.apply({ added: [], removed: [], ...change }, new Map());
  }

  /** The names in the next response, sorted, those that were removed with a minus; undefined: nothing is due. */
  take(): string[] | undefined {
    const response = this.subscription.take();
    if (response === undefined || response === "lost") return undefined;
    const { resources, removed } = response;
    const gone = removed.map((name) => `-${name}`);
    return [...resources.map(({ name }) => name), ...gone].sort();
  }
}

interface ClientOptions {
  readonly isDelta: boolean;
  readonly clock?: FakeClock;
}

/** More followers than are notified at once. */
function followByOthers(catalog: Catalog, name: string): void {
  for (let n = 0; n < 100; n++) catalog.follow(name, { changed: () => {}, notify: () => {} });
}

describe("A state-of-the-world client of clusters", () => {
  it("that is further behind than the log keeps what was removed, until nothing else waits", () => {
    const client = new Client(cds, { isDelta: false });
    client.commit(["stays", "removed"]);
    client.ask({ all: true });
    expect(client.take()).toEqual(["removed", "stays"]);
    const others = Array.from({ length: 20_001 }, (_, n) => `other ${n}`);
    client.commit([], ["removed"]);
    client.commit(others);
    expect(client.catalog.changesSince(1)).toBeUndefined();
    expect(client.take()).toEqual([...others, "removed", "stays"].sort());
    expect(client.subscription.hasOnlyRemovals).toBe(true);
    expect(client.take()).toEqual([...others, "stays"].sort());
    expect(client.subscription.hasPending).toBe(false);
  });

  it("keeps what was removed although it has not been notified of that, and gets no response twice", () => {
    const clock = new SlowClock();
    const client = new Client(cds, { isDelta: false, clock });
    client.commit(["a", "removed"]);
    clock.runImmediates();
    for (const name of ["b", "removed"]) followByOthers(client.catalog, name);
    client.ask({ added: ["a", "removed"] });
    expect(client.take()).toEqual(["a", "removed"]);
    client.commit([], ["removed"]);
    client.commit(["b"]);
    client.ask({ added: ["b"] });
    expect(client.take()).toEqual(["a", "b", "removed"]);
    clock.runImmediates();
    expect(client.take()).toBeUndefined();
    expect(client.subscription.hasOnlyRemovals).toBe(true);
    expect(client.take()).toEqual(["a", "b"]);
    expect(client.take()).toBeUndefined();
  });

  it("learns that a cluster is gone that it had of all, and asks for by name since it was removed", () => {
    const client = new Client(cds, { isDelta: false });
    client.commit(["a", "removed"]);
    client.ask({ all: true });
    client.take();
    client.commit([], ["removed"]);
    client.ask({ all: false, added: ["a", "removed"] });
    expect(client.take()).toEqual(["a", "removed"]);
    expect(client.take()).toEqual(["a"]);
    expect(client.take()).toBeUndefined();
  });

  it("that no longer names what it also asks for with all learns that it is gone", () => {
    const client = new Client(cds, { isDelta: false });
    client.commit(["a", "removed"]);
    client.ask({ all: true, added: ["removed"] });
    client.take();
    client.commit(["a"], ["removed"]);
    expect(client.take()).toEqual(["a", "removed"]);
    client.ask({ removed: ["removed"] });
    expect(client.take()).toEqual(["a"]);
    expect(client.take()).toBeUndefined();
  });
});

describe("A state-of-the-world client of all and of names", () => {
  it("gets a change that waits behind a full response, although it no longer names the resource", () => {
    const client = new Client(eds, { isDelta: false });
    const names = ["a", "b", "c"];
    client.commit(names);
    client.ask({ all: true, added: names });
    expect(client.take()).toEqual(names);
    client.commit(names, [], 600_000);
    expect(client.take()).toEqual(["a", "b"]);
    client.ask({ removed: ["c"] });
    expect(client.take()).toEqual(["c"]);
    expect(client.take()).toBeUndefined();
  });
});

describe("A delta client of all", () => {
  it.each([
    [
      "its first response",
      (client: Client, names: readonly string[]) => {
        client.commit(names, [], 600_000);
        client.ask({ all: true });
      },
    ],
    [
      "a change",
      (client: Client, names: readonly string[]) => {
        client.commit([]);
        client.ask({ all: true });
        client.take();
        client.commit(names, [], 600_000);
      },
    ],
  ])("does not learn of the removal of what %s was too full for", (_, fill) => {
    const client = new Client(eds, { isDelta: true });
    fill(client, ["a", "b", "c"]);
    expect(client.take()).toEqual(["a", "b"]);
    client.commit([], ["a", "c"]);
    expect(client.take()).toEqual(["-a"]);
    expect(client.take()).toBeUndefined();
  });

  it("learns of the removal of what waits in a later version than it has", () => {
    const client = new Client(eds, { isDelta: true });
    client.commit(["a", "b", "c"]);
    client.ask({ all: true });
    client.take();
    client.commit(["a", "b", "c"], [], 600_000);
    expect(client.take()).toEqual(["a", "b"]);
    client.commit([], ["c"]);
    expect(client.take()).toEqual(["-c"]);
  });

  it("that asks for all again learns of the removal of what waits", () => {
    const client = new Client(eds, { isDelta: true });
    client.commit(["a", "b", "c"], [], 600_000);
    client.ask({ all: true });
    expect([client.take(), client.take()]).toEqual([["a", "b"], ["c"]]);
    client.ask({ all: true });
    expect(client.take()).toEqual(["a", "b"]);
    client.commit([], ["c"]);
    expect(client.take()).toEqual(["-c"]);
  });
});
