import { describe, expect, it } from "vitest";
import { jsonValues } from "../../../src/client/values/value-codec.ts";
import { etcdOfFile } from "../../etcd/etcd-of-file.ts";
import { Changing, inTime } from "../../faults/patience.ts";
import { Informing } from "./informing.ts";

const etcdOf = etcdOfFile();

const both = [{ delivery: "EVERY_EVENT" }, { delivery: "LATEST_STATE" }] as const;

describe.each(both)("An informer over the service, by $delivery,", ({ delivery }) => {
  it("has the same state as etcd, and delivers each change", async () => {
    const informing = await Informing.open(await etcdOf(), { seed: 1, delivery });
    await informing.write(50);
    await informing.check();
    await informing.checkNoGap();
  });

  it("continues without a relist when etcd was killed and is back", async () => {
    const etcd = await etcdOf();
    const informing = await Informing.open(await etcdOf(), { seed: 2, delivery });
    for (let i = 0; i < 2; i++) {
      await informing.write(10);
      await etcd.kill();
      await etcd.start();
      await informing.write(10);
    }
    await informing.check();
    await informing.checkNoGap();
  });

  it("continues without a relist when the service was restarted", async () => {
    const informing = await Informing.open(await etcdOf(), { seed: 3, delivery });
    for (let i = 0; i < 3; i++) {
      await informing.write(10);
      await informing.replica.drain();
      await informing.write(10);
      await informing.replica.start();
      await informing.write(5);
    }
    await informing.check();
    expect(informing.informer.stats().reconnects).toBeGreaterThan(0);
    await informing.checkNoGap();
  });

  it("continues without a relist when its connection is cut at any byte", async () => {
    const informing = await Informing.open(await etcdOf(), { seed: 4, delivery });
    const { relay } = informing.replica;
    for (let i = 0; i < 15; i++) {
      // Other cuts may come before the informer is back, and then break no watch.
      if (i % 3 === 0) {
        await informing.write(1);
        await informing.arrived();
      }
      const { cuts } = relay;
      relay.cutAfter(informing.random.between(0, 600));
      while (relay.cuts === cuts) await informing.write(1);
    }
    await informing.check();
    expect(informing.informer.stats().reconnects).toBeGreaterThanOrEqual(5);
    await informing.checkNoGap();
  });

  it("compensates for events that the service no longer has when it returns", async () => {
    const without = { historyEvents: 5, hasDeepReads: false };
    const informing = await Informing.open(await etcdOf(), { seed: 6, ...without, delivery });
    const { relay } = informing.replica;
    for (let i = 1; i <= 3; i++) {
      await informing.write(3);
      await informing.arrived();
      relay.refuse();
      await informing.write(20);
      relay.heal();
      await informing.arrived();
      expect(informing.informer.stats().relists).toBe(i);
    }
    await informing.check();
  });

  it("survives all faults at the same time", async () => {
    const etcd = await etcdOf();
    const informing = await Informing.open(await etcdOf(), {
      seed: 7,
      historyEvents: 20,
      delivery,
    });
    const { relay, upstream } = informing.replica;
    const faults: readonly (() => unknown)[] = [
      () => relay.cut(),
      () => relay.cutAfter(informing.random.between(0, 2_000)),
      () => upstream[0]?.cut(),
      () => informing.replica.drain().then(() => informing.replica.start()),
      () => etcd.kill().then(() => etcd.start()),
      async () => informing.compact(await informing.write(1)),
      () => informing.arrived(),
    ];
    for (let i = 0; i < 15; i++) {
      await informing.write(informing.random.between(1, 15));
      await informing.random.pick(faults)();
    }
    await informing.check();
  });
});

describe("History that is compacted while the service is cut off from etcd", () => {
  it.each([
    ["makes an informer by EVERY_EVENT relist", "EVERY_EVENT", 1],
    [
      "does not make one by LATEST_STATE relist: the service sends it the difference",
      "LATEST_STATE",
      0,
    ],
  ] as const)("%s", async (_what, delivery, relists) => {
    const informing = await Informing.open(await etcdOf(), { seed: 5, delivery });
    const [upstream] = informing.replica.upstream;
    for (let i = 1; i <= 3; i++) {
      await informing.write(10);
      await informing.arrived();
      upstream?.refuse();
      await informing.compact(await informing.write(20));
      upstream?.heal();
      await informing.arrived();
      expect(informing.informer.stats().relists).toBe(relists * i);
    }
    await informing.check();
  });
});

describe("An informer of what a selector picks", () => {
  it("delivers objects that enter and leave the selection as added and deleted", async () => {
    const informing = await Informing.open(await etcdOf(), { seed: 8 });
    const things = informing.client.resource("things", jsonValues<{ spec: { node: string } }>());
    const on = (node: string) => ({ spec: { node } });
    const informer = things.informer({ fieldSelector: "spec.node=n1" });
    const recorded: string[] = [];
    const changing = new Changing();
    const tell = (what: string) => (object: { readonly key: string }) => {
      recorded.push(`${what} ${object.key}`);
      changing.changed();
    };
    informer.addEventHandler({
      onAdd: tell("added"),
      onUpdate: tell("updated"),
      onDelete: tell("deleted"),
    });
    await things.put("a", on("n1"));
    informer.start();
    await informer.waitForSync();
    await things.put("b", on("n2"));
    await things.put("a", on("n2"));
    await things.put("b", on("n1"));
    await things.put("b", on("n1"));
    await inTime(
      () => `four calls, not ${recorded}`,
      changing.until(() => recorded.length === 4),
    );
    await informer.stop();
    expect(recorded).toEqual(["added a", "deleted a", "added b", "updated b"]);
    expect(informer.indexer.list()).toMatchObject([{ key: "b", value: on("n1") }]);
  });
});
