import { Client, credentials } from "@grpc/grpc-js";
import { expect, onTestFinished, test } from "vitest";
import { startTestService } from "../../src/testing/test-service.ts";
import { transactingBy } from "../server/services/transacting.ts";
import { TestClient } from "../server/test-client.ts";

async function opened() {
  const service = await startTestService({ resources: ["pods", "services"] });
  const connection = new Client(service.address, credentials.createInsecure());
  onTestFinished(async () => {
    connection.close();
    await service.close();
  });
  return { service, ...transactingBy(new TestClient(connection)) };
}

const value = Buffer.from("1");
const both = [
  { resource: "pods", key: "a", put: { value } },
  { resource: "services", key: "a", put: { value } },
];

test("A transaction changes several resources at one revision", async () => {
  const { service, transact } = await opened();
  const { succeeded, revision } = await transact({ operations: both });
  expect(succeeded).toBe(true);
  const read = async (resource: string) => (await service.client.get(resource, "a")).object;
  expect([await read("pods"), await read("services")].map((each) => each.modRevision)).toEqual([
    Number(revision),
    Number(revision),
  ]);
});

test("The faults of a key happen in transactions that write it", async () => {
  const { service, transact } = await opened();
  await service.client.put("services", "a", value);
  const { object } = await service.client.get("services", "a");
  service.conflict("services", "a");
  const compares = [{ resource: "services", key: "a", mod_revision: object.modRevision }];
  expect(await transact({ compares, operations: both })).toMatchObject({ succeeded: false });
  for (const isApplied of [false, true]) {
    service.loseResponse("pods", "a", isApplied);
    const lost = transact({ operations: both });
    await expect(lost).rejects.toMatchObject({ reason: "OUTCOME_UNKNOWN" });
    const { items } = await service.client.page("pods");
    expect(items).toHaveLength(isApplied ? 1 : 0);
  }
  const fault = service.loseStore();
  await expect(transact({ operations: both })).rejects.toMatchObject({
    reason: "UPSTREAM_UNAVAILABLE",
  });
  fault.end();
});

test("holdCalls holds the deletion of a prefix, and loseStore fails it", async () => {
  const { service } = await opened();
  const { client } = service;
  await client.put("pods", "a", value);
  const held = service.holdCalls("pods");
  const deleting = client.deletePrefix("pods", "a");
  await held.happened;
  held.end();
  expect((await deleting).deleted).toBe(1);
  using _ = service.loseStore();
  const once = service.connect({ maxAttempts: 1 });
  await expect(once.deletePrefix("pods", "a")).rejects.toMatchObject({
    reason: "UPSTREAM_UNAVAILABLE",
  });
});

test("Leases are unavailable while the store is lost, and kept alive after that", async () => {
  const { service } = await opened();
  const { leases } = service.connect({ maxAttempts: 1 });
  const lease = await leases.grant(60_000);
  const lost = service.loseStore();
  const unavailable = { reason: "UPSTREAM_UNAVAILABLE" };
  expect(await leases.renew([lease.id], 10_000)).toMatchObject({ outcomes: [unavailable] });
  await expect(leases.grant(60_000)).rejects.toMatchObject(unavailable);
  await expect(leases.timeToLive(lease.id)).rejects.toMatchObject(unavailable);
  await expect(leases.revoke(lease.id)).rejects.toMatchObject(unavailable);
  lost.end();
  expect(await leases.renew([lease.id], 10_000)).toMatchObject({ outcomes: [60_000] });
});

test("A restore restores what transactions have written to several resources", async () => {
  const { service, transact } = await opened();
  const { revision } = await transact({ operations: both });
  await transact({ operations: both.map(({ key, resource }) => ({ resource, key, delete: {} })) });
  await service.restore(Number(revision));
  for (const resource of ["pods", "services"]) {
    const { object } = await service.client.get(resource, "a");
    expect(object.modRevision).toBe(Number(revision));
  }
});
