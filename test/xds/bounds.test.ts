import { pino } from "pino";
import { describe, expect, it } from "vitest";
import { InvalidValue } from "../../src/xds/any-types.ts";
import { Catalog } from "../../src/xds/catalog.ts";
import { InvalidValues } from "../../src/xds/invalid-values.ts";
import { Refusals } from "../../src/xds/refusals.ts";
import { readRequest } from "../../src/xds/request.ts";
import { assignmentOf } from "../../src/xds/services.ts";
import { XdsSubscription } from "../../src/xds/subscription.ts";
import { type XdsType, xdsTypes } from "../../src/xds/types.ts";
import { FakeClock } from "../fake-clock.ts";
import { heapOfEach, heldBytes } from "../heap.ts";
import { Recorder } from "../server/served.ts";

const [cds, eds, lds] = xdsTypes as [XdsType, XdsType, XdsType];

function catalogOf(type: XdsType): Catalog {
  return new Catalog(type, new FakeClock());
}

/** A length-delimited field of a message. */
function field(tag: number, content: Buffer): Buffer {
  const head = Buffer.from([tag, 0x80, 0x80, 0x80, 0]);
  // A number of 28 bits in four bytes, which need not be the fewest.
  for (let i = 0; i < 4; i++)
    head[i + 1] = ((content.length >>> (7 * i)) & 0x7f) | (i < 3 ? 0x80 : 0);
  return Buffer.concat([head, content]);
}

describe("Texts of a request", () => {
  it("are cut where they may have any length, and the rest is not held", () => {
    const long = Buffer.alloc(200_000, "x");
    const version = Buffer.concat([field(0x0a, Buffer.from("web")), field(0x12, long)]);
    const message = Buffer.concat([
      ...[field(0x0a, field(0x0a, long)), field(0x2a, version), field(0x3a, field(0x12, long))],
    ]);
    const read = () => readRequest(message, true, 10);
    expect(read().node.length).toBe(256);
    expect(read().refusal?.length).toBe(1_024);
    expect(read().versions.get("web")?.length).toBe(64);
    expect(heapOfEach(20, read)).toBeLessThan(10_000);
  });
});

describe("A delta client that asks for all again", () => {
  it("gets all, and learns what was removed before it asked", () => {
    const catalog = catalogOf(lds);
    const made = ["a", "b"].map((name) =>
      catalog.make(name, { version: "1", any: Buffer.from(name) }, 1),
    );
    catalog.commit(made, [], 1);
    const subscription = new XdsSubscription(catalog, { isDelta: true, pump: () => {} });
    const all = { added: [], removed: [], all: true };
    subscription.apply(all, new Map());
    expect(subscription.take()).toMatchObject({ resources: [{ name: "a" }, { name: "b" }] });
    catalog.commit([], ["a"], 2);
    subscription.apply(all, new Map());
    expect(subscription.take()).toMatchObject({ resources: [{ name: "b" }], removed: ["a"] });
  });
});

describe("A name without a resource", () => {
  it("takes no more memory than is charged for it", () => {
    const catalog = new Catalog(eds, new FakeClock(), (name) => assignmentOf(eds, name, []));
    catalog.commit([], [], 1);
    const subscription = new XdsSubscription(catalog, { isDelta: true, pump: () => {} });
    const ask = (i: number): void => {
      const added = [`service-${i}`];
      subscription.apply({ added, removed: [], all: undefined }, new Map());
      expect(subscription.take()).toMatchObject({ resources: [{ name: added[0] }] });
    };
    // Those that are kept for all clients.
    for (let i = 0; i < 1_000; i++) ask(-i);
    let next = 0;
    const charged = subscription.retainedBytes / subscription.names.size;
    expect(heapOfEach(2_000, () => ask(next++))).toBeLessThan(charged);
    // What was made for it is no longer kept. It is the same when it is made again.
    subscription.changed("service-0");
    expect(subscription.take()).toBeUndefined();
  });
});

describe("A delta client of all resources", () => {
  it("has the names that it has given up among its own until it learns whether they exist", () => {
    const catalog = catalogOf(cds);
    const subscription = new XdsSubscription(catalog, { isDelta: true, pump: () => {} });
    catalog.commit([], [], 1);
    subscription.apply({ added: [], removed: [], all: true }, new Map());
    subscription.take();
    const before = subscription.retainedBytes;
    const names = ["a", "b", "c"];
    subscription.apply({ added: names, removed: [], all: undefined }, new Map());
    subscription.apply({ added: [], removed: names, all: undefined }, new Map());
    expect(subscription.names.size).toBe(3);
    expect(subscription.retainedBytes).toBeGreaterThan(before);
    expect(subscription.take()).toMatchObject({ removed: names });
    expect(subscription.names.size).toBe(0);
    expect(subscription.retainedBytes).toBe(before);
  });

  it("that is further behind than the log ends, so that its client comes back", () => {
    const catalog = catalogOf(cds);
    const subscription = new XdsSubscription(catalog, { isDelta: true, pump: () => {} });
    const all = { added: [], removed: [], all: true };
    subscription.apply(all, new Map());
    catalog.commit([], [], 1);
    expect(subscription.take()).not.toBe("lost");
    for (let revision = 2; revision < 5; revision++) {
      const names = Array.from({ length: 7_000 }, (_, i) => `${revision}/${i}`);
      const content = { version: "1", any: Buffer.alloc(0) };
      const resources = names.map((name) => catalog.make(name, content, revision));
      catalog.commit(resources, [], revision);
    }
    expect(subscription.take()).toBe("lost");
    const resumed = new XdsSubscription(catalog, { isDelta: true, pump: () => {} });
    resumed.apply(all, new Map([["gone", "1"]]));
    expect(resumed.take()).toMatchObject({ resources: { length: 21_000 }, removed: [] });
    expect(resumed.take()).toMatchObject({ resources: [], removed: ["gone"] });
  });
});

describe("A response", () => {
  const large = { any: Buffer.alloc(400_000), version: "1" };

  it("that would be larger than clients of gRPC accept is several", () => {
    const catalog = catalogOf(cds);
    const commit = (prefix: string): void => {
      const resources = Array.from({ length: 7 }, (_, i) =>
        catalog.make(`${prefix}${i}`, large, 1),
      );
      catalog.commit(resources, [], 1);
    };
    const subscription = new XdsSubscription(catalog, { isDelta: true, pump: () => {} });
    subscription.apply({ added: [], removed: [], all: true }, new Map());
    for (const prefix of ["first", "second"]) {
      commit(prefix);
      const names: string[][] = [];
      while (subscription.hasPending) {
        const response = subscription.take();
        if (response === undefined || response === "lost") throw new Error("No response.");
        names.push(response.resources.map(({ name }) => name));
      }
      expect(names.map(({ length }) => length)).toEqual([3, 3, 1]);
      expect(names.flat()).toEqual([0, 1, 2, 3, 4, 5, 6].map((i) => `${prefix}${i}`));
    }
  });

  it("says whether each name exists that was unsubscribed from beside all, and until then it counts", () => {
    const catalog = catalogOf(cds);
    const subscription = new XdsSubscription(catalog, { isDelta: true, pump: () => {} });
    subscription.apply({ added: [], removed: [], all: true }, new Map());
    catalog.commit([], [], 1);
    subscription.take();
    for (let i = 0; i < 100; i++) {
      const change = { added: [`name ${i % 50}`], removed: [], all: undefined };
      subscription.apply(change, new Map());
      subscription.apply({ ...change, added: [], removed: change.added }, new Map());
    }
    expect(subscription.names.size).toBe(50);
    expect(subscription.retainedBytes).toBeGreaterThan(50 * "name 1".length);
    expect(subscription.take()).toMatchObject({ removed: { length: 50 } });
    expect([subscription.names.size, subscription.retainedBytes]).toEqual([0, 0]);
  });
});

describe("The log of changes", () => {
  it("keeps no version of a resource that is not current, however large assignments are", () => {
    const catalog = catalogOf(cds);
    const commit = (revision: number): void => {
      const content = { version: String(revision), any: Buffer.alloc(100_000, revision) };
      catalog.commit([catalog.make("a", content, revision)], [], revision);
    };
    commit(1);
    const before = heldBytes();
    for (let revision = 2; revision <= 500; revision++) commit(revision);
    expect(heldBytes() - before).toBeLessThan(5_000_000);
    expect(catalog.changesSince(1)?.response.resources).toMatchObject([
      { name: "a", version: "500" },
    ]);
  });
});

describe("A value", () => {
  it("that a writer makes valid and invalid again and again is logged at a bounded rate", () => {
    const [lines, clock] = [new Recorder(), new FakeClock()];
    const invalid = new InvalidValues(clock, pino({}, lines));
    const alternate = (): void => {
      for (let n = 0; n < 200; n++) {
        invalid.add("key", new InvalidValue("It is empty."));
        invalid.delete("key");
      }
    };
    alternate();
    expect(lines.logged.length).toBe(100);
    clock.advance(5_000);
    alternate();
    expect(lines.logged.length).toBe(105);
  });
});

describe("Refusals", () => {
  it("of more than a hundred kinds are counted, and the last hundred shown", () => {
    const lines = new Recorder();
    const refusals = new Refusals(new FakeClock(), pino({}, lines));
    const by = { identity: "a", node: "b" };
    for (let n = 0; n < 150; n++) refusals.add("cds", undefined, `kind ${n}`, by);
    refusals.add("cds", undefined, "kind 60", by);
    expect(refusals.counts.cds).toBe(151);
    // A client chooses its texts.
    expect(lines.logged.length).toBe(1);
    expect(refusals.all.length).toBe(100);
    expect(refusals.all.at(-1)).toMatchObject({ message: "kind 60", count: 2 });
  });

  it("of one identity do not push out those of others", () => {
    const refusals = new Refusals(new FakeClock(), pino({}, new Recorder()));
    const add = (identity: string, message: string): void =>
      refusals.add("cds", undefined, message, { identity, node: "" });
    for (let n = 0; n < 40; n++) add("quiet", `kind ${n}`);
    for (let n = 0; n < 300; n++) add("loud", `kind ${n}`);
    const shown = Map.groupBy(refusals.all, ({ identity }) => identity);
    expect(shown.get("quiet")?.map(({ message }) => message)).toEqual(
      Array.from({ length: 40 }, (_, n) => `kind ${n}`),
    );
    expect(shown.get("loud")?.map(({ message }) => message)).toEqual(
      Array.from({ length: 60 }, (_, n) => `kind ${240 + n}`),
    );
  });
});
