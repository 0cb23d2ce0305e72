import { afterAll, beforeAll, describe, expect, onTestFinished, test } from "vitest";
import { Followers } from "../client/followers.ts";
import { type Etcd, startEtcd } from "../etcd/etcd.ts";
import { newPrefix, Source } from "../storage/etcd/source.ts";
import { InProcessReplica } from "./in-process-replica.ts";

let etcd: Etcd;

beforeAll(async () => {
  etcd = await startEtcd();
});

afterAll(() => etcd.stop());

/** Two replicas in front of etcd, and a client of the library of both. */
async function followed() {
  const prefix = newPrefix();
  const source = new Source(etcd);
  const replicas: InProcessReplica[] = [];
  for (const name of ["one", "other"]) {
    const port = Number(new URL(etcd.url).port);
    const replica = await InProcessReplica.create({ name, prefix, etcd: [port] });
    replicas.push(replica);
    await replica.start();
  }
  const write = (value: number) =>
    source.write(prefix, [{ type: "put", key: "a", value: Buffer.from(`${value}`) }]);
  await write(0);
  const followers = new Followers(replicas.map(({ relay }) => `127.0.0.1:${relay.port}`));
  onTestFinished(async () => {
    await followers.close();
    for (const replica of replicas) await replica.stop();
  });
  await followers.untilAllHave(0);
  return { replicas, followers, write };
}

describe("Watches, an informer and an object cache of the client library", () => {
  test("have no gap that grows while a quiet store's replicas are replaced, hour by hour", async () => {
    const { replicas, followers, write } = await followed();
    for (let hour = 1; hour <= 6; hour++) {
      for (const replica of replicas) {
        followers.clock.advance(3_600_000);
        await replica.drain();
        await replica.start();
        await followers.untilOpen();
      }
    }
    await write(1);
    await followers.untilAllHave(1);
    const planned = followers.interruptions.filter(({ error }) => error.reason === "DRAINING");
    // Half of the watches are at each replica at first, and all at the other one once it is drained.
    expect(planned.length).toBeGreaterThanOrEqual(60);
    expect(planned.map(({ delayMs }) => delayMs).filter((ms) => ms > 200)).toEqual([]);
  });

  test("have synced as soon as a replica is back after an outage of all", async () => {
    const { replicas, followers, write } = await followed();
    for (let value = 1; value <= 3; value++) {
      for (const { relay } of replicas) relay.refuse();
      await followers.untilFailed(8);
      await write(value);
      replicas[value % 2]?.relay.heal();
      await followers.untilAllHave(value);
    }
  });
});
