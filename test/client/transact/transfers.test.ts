import { afterAll, beforeAll, describe, expect, onTestFinished, test } from "vitest";
import type { Client } from "../../../src/client/client.ts";
import { type Etcd, startEtcd } from "../../etcd/etcd.ts";
import fc, { costlyRuns } from "../../property.ts";
import { clientFor, type Served, serveEtcd, serveFile, serveMemory, serveRelay } from "./tiers.ts";
import { Bank, type Transfer } from "./transfers.ts";

let etcd: Etcd;
let banks = 0;

beforeAll(async () => {
  etcd = await startEtcd();
});

afterAll(() => etcd.stop());

const transfer = fc.record({
  from: fc.nat({ max: 3 }),
  to: fc.nat({ max: 3 }),
  amount: fc.nat({ max: 12 }),
});

/** What each of several clients transfers. */
const plans = fc.array(fc.array(transfer, { maxLength: 6 }), { minLength: 1, maxLength: 5 });

async function relays(): Promise<Served[]> {
  const replicas = await serveEtcd(etcd, 2);
  return [await serveRelay(replicas), await serveRelay(replicas)];
}

describe.each([
  ["two replicas on etcd", () => serveEtcd(etcd, 2)],
  ["the embedded store", async () => [await serveMemory()]],
  ["the embedded store on a file", async () => [await serveFile()]],
  ["two relays of two replicas", relays],
])("Concurrent transactions on %s", (_, open) => {
  test("lose nothing, make nothing, and see no state in between.", async () => {
    const servers = await open();
    const clients = Array.from({ length: 5 }, () => clientFor(servers));
    const observer = clientFor(servers);
    await fc.assert(
      fc.asyncProperty(plans, async (plan) => {
        const bank = new Bank(`bank-${++banks}`);
        await bank.open(observer);
        let isRunning = true;
        const observing = (async () => {
          while (isRunning) expect(await bank.total(observer)).toBe(Bank.sum);
        })();
        const transferring = plan.map((transfers, member) => {
          return bank.transfer(clients[member] ?? observer, member, transfers);
        });
        await Promise.all(transferring).finally(() => {
          isRunning = false;
        });
        await observing;
        expect(await bank.total(observer)).toBe(Bank.sum);
        expect(await bank.counts(observer, plan.length)).toEqual(plan.map(({ length }) => length));
      }),
      { numRuns: costlyRuns(40) },
    );
  });
});

describe.each([
  ["two replicas on etcd", () => serveEtcd(etcd, 2)],
  ["two relays of two replicas", relays],
])("Transactions whose answers are lost, on %s,", (_, open) => {
  /** A client whose network does not fail. */
  function observerOf(servers: readonly Served[]): Client {
    return clientFor(servers.map(({ port }) => ({ network: { port }, port })));
  }

  /** Loses the answers of one server after another, for the time of some writes, and then cuts its connections. */
  async function loseAnswers(servers: readonly Served[], signal: AbortSignal): Promise<number> {
    const observer = observerOf(servers);
    let lost = 0;
    for (; !signal.aborted; lost++) {
      const network = servers[lost % servers.length]?.network;
      network?.loseResponses();
      for (let i = 0; i < 5; i++) await observer.put("a", "fault", Buffer.from(String(lost)));
      network?.heal();
      for (let i = 0; i < 5; i++) await observer.put("a", "fault", Buffer.from(String(lost)));
    }
    return lost;
  }

  test("one is applied once, though its answer is lost, and answered by another server.", async () => {
    const servers = await open();
    const observer = observerOf(servers);
    const client = clientFor(servers, { hedgingDelayMs: 100 });
    const { revision: afterRevision } = await observer.page("a");
    const changes = observer.watch("a", { scope: { key: "k" }, afterRevision });
    // Both servers have a connection.
    for (const _ of servers) await client.page("a");
    let calls = 0;
    const transacted = client.transact(async (tx) => {
      calls++;
      const n = Number((await tx.get("a", "k"))?.value ?? 0);
      tx.put("a", "k", Buffer.from(String(n + 1)));
      for (const { network } of servers) network.loseResponses();
    });
    let change: number | undefined;
    while (change === undefined) change = (await changes.next()).value?.events[0]?.revision;
    for (const { network } of servers) network.heal();
    expect(await transacted).toMatchObject({ revision: change });
    expect(calls).toBe(1);
    const { object } = await observer.get("a", "k");
    expect([Buffer.from(object.value).toString(), object.version]).toEqual(["1", 1]);
    await changes.return();
  });

  test("are applied exactly once.", async () => {
    const servers = await open();
    const bank = new Bank(`bank-${++banks}`);
    const observer = observerOf(servers);
    await bank.open(observer);
    const members = 4;
    const stop = new AbortController();
    onTestFinished(() => stop.abort());
    const losing = loseAnswers(servers, stop.signal);
    const plan = Array.from({ length: 8 }, (_, n): Transfer => {
      return { from: n % 4, to: (n + 1) % 4, amount: 1 };
    });
    const transferring = Array.from({ length: members }, (_, member) => {
      return bank.transfer(clientFor(servers), member, plan);
    });
    await Promise.all(transferring).finally(() => stop.abort());
    expect(await losing).toBeGreaterThan(2);
    expect(await bank.total(observer)).toBe(Bank.sum);
    expect(await bank.counts(observer, members)).toEqual(Array(members).fill(plan.length));
  });
});
