import { afterAll, beforeAll, describe, expect, it, onTestFinished } from "vitest";
import type { Client } from "../../../src/client/client.ts";
import { LeaderElector } from "../../../src/client/coordination/leader-elector.ts";
import { Mutex } from "../../../src/client/coordination/mutex.ts";
import { Session } from "../../../src/client/coordination/session.ts";
import { ShardAssignment } from "../../../src/client/coordination/shard-assignment.ts";
import type { Compare } from "../../../src/storage/store.ts";
import { type Etcd, startEtcd } from "../../etcd/etcd.ts";
import { untilSeen } from "../../faults/patience.ts";
import { cuttableClient, LeasedService, openClient } from "./leased-service.ts";

let etcd: Etcd;

beforeAll(async () => {
  etcd = await startEtcd();
});

afterAll(() => etcd.stop());

/** What a process has acquired. */
interface Held {
  readonly guard: Compare;
  readonly isHeld: () => boolean;
}

type Acquire = (session: Session, identity: string) => Promise<Held>;

const lock: Acquire = async (session) => {
  const acquired = await new Mutex(session, "locks", "l").lock();
  return { guard: acquired.guard(), isHeld: () => acquired.isHeld };
};

const leadership: Acquire = async (session, identity) => {
  const onStartedLeading = async () => {};
  const options = { session, resource: "locks", name: "e", identity, onStartedLeading };
  const acquired = await new LeaderElector(options).campaign();
  return { guard: acquired.guard(), isHeld: () => acquired.isHeld };
};

const slot: Acquire = async (session, member) => {
  const options = { session, resource: "locks", group: "g", member, slots: 1 };
  const shards = new ShardAssignment(options);
  const stopping = new AbortController();
  const running = shards.run(stopping.signal);
  onTestFinished(() => {
    stopping.abort();
    return running;
  });
  const guard = await untilSeen("the slot", async () => shards.guard("any"));
  return { guard, isHeld: () => shards.owns("any") };
};

const data = { resource: "locks", key: "data" };

/** Writes with a compare or without one, and returns what is said of the compare. */
async function write(client: Client, value: string, guard?: Compare): Promise<unknown> {
  const compares = guard === undefined ? [] : [guard];
  const operations = [{ type: "put", ...data, value: Buffer.from(value) }] as const;
  const options = { returnCurrent: true };
  const result = await client.transaction({ compares, operations }, options);
  return { succeeded: result.succeeded, held: result.compares.map(({ held }) => held) };
}

const stored = async (client: Client): Promise<string> =>
  Buffer.from((await client.get(data.resource, data.key)).object.value).toString();

describe.each([
  ["etcd", async () => LeasedService.onEtcd(etcd)],
  ["the embedded store on a file", () => LeasedService.onFile()],
])("On %s", (_, open) => {
  it.each([
    ["lock", lock],
    ["leadership", leadership],
    ["slot", slot],
  ])(
    "a %s guards writes: once another one has it, none has an effect, though the one before does not know",
    async (__, acquire) => {
      const address = await (await open()).start();
      const [client, proxy] = await cuttableClient(address);
      const other = openClient(address);
      // The lease of the first one ends in the test, but not before it is cut off, on a busy machine as well.
      const sessions = [
        Session.open(client, { ttlMs: 5_000, onError: () => {} }),
        Session.open(other, { ttlMs: 120_000, onError: () => {} }),
      ];
      const [before, after] = (await Promise.all(sessions)) as [Session, Session];
      onTestFinished(() => Promise.all([before.close(), after.close()]).then(() => {}));
      const first = await acquire(before, "first");
      expect(await write(client, "of the first", first.guard)).toEqual({
        succeeded: true,
        held: [],
      });

      // Its keep-alives do not arrive, and it sends the next write with what it had before.
      proxy.refuse();
      const second = await acquire(after, "second");
      proxy.accept();
      await untilSeen("its connection", () => client.page("locks"));
      expect([first.isHeld(), second.isHeld()]).toEqual([false, true]);
      expect(await write(other, "of the second", second.guard)).toMatchObject({ succeeded: true });
      const refused = { succeeded: false, held: [false] };
      expect(await write(client, "too late", first.guard)).toEqual(refused);
      expect(await stored(other)).toBe("of the second");
      // Nothing else has kept it from that.
      expect(await write(client, "too late")).toMatchObject({ succeeded: true });
      expect(await stored(other)).toBe("too late");
    },
  );
});
