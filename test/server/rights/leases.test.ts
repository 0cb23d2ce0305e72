import { expect, test } from "vitest";
import { clientAs } from "./callers.ts";
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

test("A put of a limited caller may name the lease that the object has, and no other", async () => {
  const { server, storages, audited, authorizer } = await serveGuarded(policy, [resource]);
  const [app, root] = [clientAs(server, "app"), clientAs(server, "root")];
  const own = (await app.put({ resource, key: "a/1", ttl })).object?.lease ?? "";
  const others = (await root.put({ resource, key: "b/1", ttl })).object?.lease ?? "";
  expect([own, others]).not.toContain("0");
  expect((await app.put({ resource, key: "a/1", lease: own })).object?.lease).toBe(own);
  const before = await storages.get(resource)?.currentRevision();
  audited.length = 0;
  // Of another object, of other callers, and one that does not exist: the refusal does not say which.
  for (const [key, lease] of [
    ["a/2", own],
    ["a/1", others],
    ["a/1", "77"],
  ] as const) {
    await expect(app.put({ resource, key, lease })).rejects.toMatchObject({
      ...denied,
      message: expect.stringContaining(`attach the key "${key}" to the lease ${lease}`),
      metadata: { key, lease },
    });
  }
  expect(await storages.get(resource)?.currentRevision()).toBe(before);
  expect(
    audited.map(({ access, allowed, rule, code }) => [access?.verb, allowed, rule, code]),
  ).toEqual(Array(3).fill(["put", false, undefined, "PERMISSION_DENIED"]));
  expect(authorizer.denied.put).toBe(3);
  // A caller that may do everything attaches any key to any lease.
  expect((await root.put({ resource, key: "a/2", lease: others })).object?.lease).toBe(others);
});
