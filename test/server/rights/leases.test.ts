import { status } from "@grpc/grpc-js";
import { expect, onTestFinished, test } from "vitest";
import { listWatchService, writeService } from "../../../src/wire/services.ts";
import { RawConnection } from "../http2/raw-connection.ts";
import { clientAs, headersOf } from "./callers.ts";
import { serveGuarded } from "./guarded.ts";

const policy = `
roles:
  - { name: app, rules: [{ resources: [pods], prefixes: ["a/"], verbs: [put, delete] }] }
  - { name: writer, rules: [{ resources: [pods], prefixes: ["a/"], verbs: [put] }] }
  - { name: root, rules: [{ resources: ["*"], prefixes: ["*"], verbs: ["*"] }] }
bindings:
  - { role: app, subjects: [app] }
  - { role: writer, subjects: [bob] }
  - { role: root, subjects: [root] }
`;

const { List } = listWatchService;
const { Put } = writeService;
const resource = "pods";
const ttl = { seconds: 60 };
const denied = { reason: "PERMISSION_DENIED" };

test("A put with a lease needs the right to delete the key, as the end of the lease does", async () => {
  const { server, storages, audited, authorizer } = await serveGuarded(policy, [resource]);
  const bob = clientAs(server, "bob");
  await bob.put({ resource, key: "a/1" });
  const { object } = await clientAs(server, "app").put({ resource, key: "a/2", ttl });
  audited.length = 0;
  const before = await storages.get(resource)?.currentRevision();
  await expect(bob.put({ resource, key: "a/1", ttl })).rejects.toMatchObject({
    ...denied,
    message: expect.stringContaining('may not delete the key "a/1"'),
  });
  const lease = object?.lease ?? "";
  await expect(bob.put({ resource, key: "a/2", lease })).rejects.toMatchObject(denied);
  expect(await storages.get(resource)?.currentRevision()).toBe(before);
  expect(audited.map(({ access, allowed }) => [access?.verb, allowed])).toEqual([
    ["delete", false],
    ["delete", false],
  ]);
  expect(authorizer.denied).toMatchObject({ put: 0, delete: 2 });
});

test("A put of a limited caller may name a lease all of whose objects it may put and delete", async () => {
  const { server, storages, audited, authorizer } = await serveGuarded(policy, [resource]);
  const [app, bob, root] = [
    clientAs(server, "app"),
    clientAs(server, "bob"),
    clientAs(server, "root"),
  ];
  const own = (await app.put({ resource, key: "a/1", ttl })).object?.lease ?? "";
  const others = (await root.put({ resource, key: "b/1", ttl })).object?.lease ?? "";
  expect([own, others]).not.toContain("0");
  for (const key of ["a/1", "a/2"]) {
    expect((await app.put({ resource, key, lease: own })).object?.lease).toBe(own);
  }
  // The object has it already, though it may not be kept alive.
  await root.put({ resource, key: "a/3", lease: others });
  expect((await app.put({ resource, key: "a/3", lease: others })).object?.lease).toBe(others);
  const before = await storages.get(resource)?.currentRevision();
  audited.length = 0;
  await expect(app.put({ resource, key: "a/1", lease: others })).rejects.toMatchObject({
    ...denied,
    message: expect.stringContaining(`may not attach objects to the lease ${others}`),
    metadata: { lease: others },
  });
  await expect(bob.put({ resource, key: "a/1", lease: own })).rejects.toMatchObject(denied);
  const gone = { reason: "LEASE_NOT_FOUND" };
  await expect(app.put({ resource, key: "a/1", lease: "77" })).rejects.toMatchObject(gone);
  expect(await storages.get(resource)?.currentRevision()).toBe(before);
  expect(audited.map(({ access, allowed, code }) => [access?.verb, allowed, code])).toEqual([
    ["put", false, "PERMISSION_DENIED"],
    ["delete", false, "PERMISSION_DENIED"],
    ["put", true, "FAILED_PRECONDITION"],
  ]);
  expect(authorizer.denied).toMatchObject({ put: 1, delete: 1 });
  // With an object of others in it the lease is no longer for the caller.
  await root.put({ resource, key: "b/2", lease: own });
  await storages.get(resource)?.delete({ key: "a/2" });
  await expect(app.put({ resource, key: "a/4", lease: others })).rejects.toMatchObject(denied);
});

test("A caller that becomes limited while its put waits may no longer attach an object to another lease", async () => {
  const root = "{ role: root, subjects: [app] }";
  const { server, storages, audited, authorizer, change } = await serveGuarded(
    policy.replace("{ role: root, subjects: [root] }", root),
    [resource],
  );
  const storage = storages.get(resource);
  const app = clientAs(server, "app");
  const { object } = await app.put({ resource, key: "b/other", ttl });
  const lease = object?.lease ?? "";
  for (let i = 0; i < 8; i++) await storage?.put({ key: `k${i}`, value: Buffer.alloc(500_000, i) });
  const before = await storage?.currentRevision();
  // As many pages as its connection may hold, and then the put.
  const raw = new RawConnection(server.port, 0);
  onTestFinished(() => raw.session.destroy());
  const list = List.requestSerialize({ resource });
  const full = Array.from({ length: 4 }, () => raw.call(List.path, list, headersOf("app")));
  const put = { resource, key: "a/1", value: Buffer.alloc(1_000_000), lease };
  const call = raw.call(Put.path, Put.requestSerialize(put), headersOf("app"));
  // Once it waits, it is in progress and its request is charged, for longer than while it is read.
  for (let turns = 0; turns < 50; turns++) {
    await new Promise((resolve) => setImmediate(resolve));
    const { requests, callers } = server.stats();
    if (requests.bytes === 0 || callers.most.requests === 0) turns = 0;
  }
  change(policy);
  audited.length = 0;
  raw.session.settings({ initialWindowSize: 2 ** 24 });
  for (const page of full) page.drain();
  const { code, message } = await call.drain().ended;
  expect([code, message]).toEqual([
    status.PERMISSION_DENIED,
    expect.stringContaining(`may not attach objects to the lease ${lease}`),
  ]);
  expect(await storage?.currentRevision()).toBe(before);
  const puts = audited.filter(({ method }) => method.endsWith("Put"));
  expect(puts.map(({ allowed, code }) => [allowed, code])).toEqual([[false, "PERMISSION_DENIED"]]);
  expect(authorizer.denied.put).toBe(1);
});
