import { pino } from "pino";
import { describe, expect, it } from "vitest";
import { Catalog } from "../../src/xds/catalog.ts";
import { Refusals } from "../../src/xds/refusals.ts";
import { Sequence, XdsResource } from "../../src/xds/response.ts";
import { XdsSubscription } from "../../src/xds/subscription.ts";
import { xdsTypes } from "../../src/xds/types.ts";
import { FakeClock } from "../fake-clock.ts";
import { Recorder } from "../server/served.ts";

const [type] = xdsTypes;
if (type === undefined) throw new Error("There is no type.");

function catalogOf(sequence: Sequence): Catalog {
  return new Catalog({ type: type as NonNullable<typeof type>, clock: new FakeClock(), sequence });
}

describe("A delta client of all resources", () => {
  it("that is further behind than the log ends, so that its client comes back", () => {
    const sequence = new Sequence();
    const catalog = catalogOf(sequence);
    const subscription = new XdsSubscription(catalog, { isDelta: true, pump: () => {} });
    const all = { added: [], removed: [], all: true };
    subscription.apply(all, new Map());
    catalog.commit([], [], 1);
    expect(subscription.take()).not.toBe("lost");
    for (let revision = 2; revision < 5; revision++) {
      const names = Array.from({ length: 7_000 }, (_, i) => `${revision}/${i}`);
      const facts = { type: catalog.type, version: "1", any: Buffer.alloc(0), revision };
      const resources = names.map((name) => new XdsResource({ ...facts, name }, sequence));
      catalog.commit(resources, [], revision);
    }
    expect(subscription.take()).toBe("lost");
    const resumed = new XdsSubscription(catalog, { isDelta: true, pump: () => {} });
    resumed.apply(all, new Map([["gone", "1"]]));
    expect(resumed.take()).toMatchObject({ resources: { length: 21_000 }, removed: [] });
    expect(resumed.take()).toMatchObject({ resources: [], removed: ["gone"] });
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
