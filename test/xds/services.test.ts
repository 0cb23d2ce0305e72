import { pino } from "pino";
import { describe, expect, it } from "vitest";
import { StoredObject } from "../../src/model/object.ts";
import type { ServedResource } from "../../src/server/calls/service-options.ts";
import { Catalog } from "../../src/xds/catalog.ts";
import { Feed, type FeedTarget } from "../../src/xds/feed.ts";
import { InvalidValues } from "../../src/xds/invalid-values.ts";
import { Services } from "../../src/xds/services.ts";
import { type XdsType, xdsTypes } from "../../src/xds/types.ts";
import { FakeClock } from "../fake-clock.ts";
import { Recorder } from "../server/served.ts";
import { SlowClock } from "./slow-clock.ts";

const [, eds] = xdsTypes as [XdsType, XdsType];

/** Collects changes for a second. */
function servicesOn(clock: FakeClock) {
  const catalog = new Catalog(eds, clock);
  const services = new Services({ catalog, clock, debounceMs: 1_000 });
  services.commit(1);
  const put = (key: string, modRevision: number): void => {
    const value = Buffer.from(JSON.stringify({ address: "10.0.0.1", port: modRevision }));
    services.put(new StoredObject(key, value, modRevision, modRevision, 1, 0n));
  };
  return { catalog, services, put };
}

describe("Assignments that are collected", () => {
  it("have nothing of a transaction of which a part was not taken yet", () => {
    const clock = new FakeClock();
    const { catalog, services, put } = servicesOn(clock);
    put("first/1", 2);
    services.commit(2);
    // Half of a transaction, when the time of the first one is over.
    put("second/1", 3);
    services.remove("first/1");
    clock.advance(1_000);
    expect([...catalog.resources.keys()]).toEqual(["first"]);
    put("third/1", 3);
    services.flush();
    expect([...catalog.resources.keys()]).toEqual(["first"]);
    expect([...services.keys()]).toEqual(["first/1", "second/1", "first/1", "third/1"]);
    services.commit(3);
    services.flush();
    expect([...catalog.resources.keys()]).toEqual(["second", "third"]);
  });

  it.each([
    ["they are sent at once", 0],
    ["their time was over before", 1_000],
  ])("are waited for until each stream knows of them, if %s", async (_, ms) => {
    const clock = new SlowClock();
    const { catalog, services, put } = servicesOn(clock);
    let notified = 0;
    const follower = { changed: () => {}, notify: () => notified++ };
    for (let n = 0; n < 100; n++) catalog.follow("web", { ...follower });
    put("web/1", 2);
    services.commit(2);
    // Without the immediates, in which streams are notified.
    clock.fireDue(ms);
    let isOver = false;
    const flushed = (async () => services.flush())().then(() => {
      isOver = true;
    });
    await new Promise(setImmediate);
    expect(notified).toBeLessThan(100);
    expect(isOver).toBe(false);
    clock.runImmediates();
    await flushed;
    expect(notified).toBe(100);
  });
});

describe("A feed", () => {
  function feedOf(target: Partial<FeedTarget>, reach: ServedResource["reachKnownRevision"]) {
    const [clock, lines] = [new FakeClock(), new Recorder()];
    const logger = pino({}, lines);
    const resource = { reachKnownRevision: reach } as ServedResource;
    const feed = new Feed({
      ...{ resource, target: target as FeedTarget, clock, logger, random: Math.random },
      invalid: new InvalidValues(clock, logger),
    });
    return { feed, lines };
  }

  it("has caught up when what was collected is known", async () => {
    const flushed = Promise.withResolvers<void>();
    let isOver = false;
    const { feed } = feedOf({ flush: () => flushed.promise }, async () => true);
    const caughtUp = feed.caughtUp(1).then(() => {
      isOver = true;
    });
    await new Promise(setImmediate);
    expect(isOver).toBe(false);
    flushed.resolve();
    await caughtUp;
  });

  it("is waited for no longer if its resource fails, which is logged", async () => {
    const { feed, lines } = feedOf({}, async () => {
      throw new Error("It is broken.");
    });
    await feed.caughtUp(1);
    expect(lines.logged.join()).toContain("It is broken.");
  });
});
