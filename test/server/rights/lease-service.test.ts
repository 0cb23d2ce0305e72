import { setImmediate as nextTurn } from "node:timers/promises";
import { expect, test } from "vitest";
import { Authorizer } from "../../../src/policy/authorizer.ts";
import {
  attaching,
  keepingAlive,
  LeaseAuthorizer,
  reading,
  revoking,
} from "../../../src/server/calls/lease-authorizer.ts";
import { Callers } from "../../../src/server/limits/callers.ts";
import { defaultServerLimits } from "../../../src/server/limits/server-limits.ts";
import { endedLease, leaseNotFound } from "../../../src/storage/lease-renewals.ts";
import type { Leases } from "../../../src/storage/store.ts";
import { policyOf } from "../../config/parsed-policy.ts";
import { ManualTimers } from "../limits/manual-timers.ts";
import { clientAs } from "./callers.ts";
import { serveGuarded } from "./guarded.ts";

const policy = `
roles:
  - { name: app, rules: [{ resources: [pods], prefixes: ["a/"], verbs: [get, put, delete] }] }
  - { name: writer, rules: [{ resources: [pods], prefixes: ["a/"], verbs: [put] }] }
  - { name: reader, rules: [{ resources: [pods], prefixes: ["a/"], verbs: [get] }] }
  - { name: root, rules: [{ resources: ["*"], prefixes: ["*"], verbs: ["*"] }] }
bindings:
  - { role: app, subjects: [app] }
  - { role: writer, subjects: [bob] }
  - { role: reader, subjects: [cid] }
  - { role: root, subjects: [root] }
`;

const resource = "pods";
const denied = { reason: "PERMISSION_DENIED" };

/** What KeepAlive says of a lease. */
const renewed = 60_000;
const refused = expect.stringMatching(/may not keep alive/);
const ended = expect.stringMatching(/There is no such lease/);

async function serveLeases() {
  const guarded = await serveGuarded(policy, [resource]);
  const [app, bob, cid] = ["app", "bob", "cid"].map((name) => clientAs(guarded.server, name));
  if (app === undefined || bob === undefined || cid === undefined) throw new Error();
  return { ...guarded, app, bob, cid, root: clientAs(guarded.server, "root") };
}

test("A lease is for callers with the rights that each use needs, to each attached object", async () => {
  const { app, bob, cid, root, audited, authorizer } = await serveLeases();
  const own = await app.grant(60);
  await app.put({ resource, key: "a/1", lease: own });
  const others = await root.grant(60);
  await root.put({ resource, key: "a/2", lease: others });
  await root.put({ resource, key: "b/2", lease: others });
  const [byApp, byBob] = [app.keepAlive(), bob.keepAlive()];
  expect(await byApp.renew(own, others, own)).toEqual([renewed, refused, renewed]);
  // A caller that may only put keeps it alive, and does not end it or read it.
  expect(await byBob.renew(own, others)).toEqual([renewed, refused]);
  audited.length = 0;
  const before = { ...authorizer.denied };
  for (const lease of [own, others]) {
    await expect(bob.revoke(lease)).rejects.toMatchObject(denied);
    await expect(bob.timeToLive(lease)).rejects.toMatchObject(denied);
    await expect(cid.revoke(lease)).rejects.toMatchObject(denied);
  }
  expect((await cid.timeToLive(own)).objects).toEqual([{ resource, key: "a/1" }]);
  await expect(cid.timeToLive(others)).rejects.toMatchObject(denied);
  await expect(app.timeToLive(others)).rejects.toMatchObject(denied);
  await expect(app.revoke(others)).rejects.toMatchObject(denied);
  expect(authorizer.denied).toMatchObject({ delete: before.delete + 5, get: before.get + 4 });
  const id = BigInt(others).toString(16).padStart(16, "0");
  expect(audited.at(-1)).toMatchObject({
    ...{ method: "watchfanout.v1.LeaseService/Revoke", allowed: false, code: "PERMISSION_DENIED" },
    access: { verb: "delete", resource: "*", scope: { key: `lease ${id}` } },
  });
  await app.revoke(own);
  expect(await byApp.renew(own)).toEqual([ended]);
  const gone = { reason: "LEASE_NOT_FOUND" };
  await expect(app.revoke(own)).rejects.toMatchObject(gone);
  await expect(app.timeToLive(own)).rejects.toMatchObject(gone);
  expect((await root.timeToLive(others)).objects).toHaveLength(2);
});

test("A grant needs the right to put something, and is audited", async () => {
  const { app, bob, cid, audited } = await serveLeases();
  audited.length = 0;
  await app.grant(60);
  await bob.grant(60);
  await expect(cid.grant(60)).rejects.toMatchObject(denied);
  const method = "watchfanout.v1.LeaseService/Grant";
  expect(audited.map((entry) => [entry.method, entry.allowed, entry.code])).toEqual([
    [method, true, "OK"],
    [method, true, "OK"],
    [method, false, "PERMISSION_DENIED"],
  ]);
  // Nor may it keep any lease alive.
  const stream = cid.keepAlive();
  stream.send(1n);
  expect(await stream.ended).toMatchObject(denied);
});

test("What is attached is asked for again once it matters", async () => {
  const { app, bob, root, clock } = await serveLeases();
  const lease = await app.grant(60);
  const stream = bob.keepAlive();
  expect(await stream.renew(lease)).toEqual([renewed]);
  expect(await app.keepAlive().renew(lease)).toEqual([renewed]);
  await root.put({ resource, key: "b/1", lease });
  // To revoke it would delete the other object.
  await expect(app.revoke(lease)).rejects.toMatchObject(denied);
  // It may be kept alive for some seconds more.
  expect(await stream.renew(lease)).toEqual([renewed]);
  clock.advance(10_000);
  expect(await stream.renew(lease)).toEqual([refused]);
  await root.delete({ resource, key: "b/1" });
  clock.advance(1_000);
  expect(await stream.renew(lease)).toEqual([renewed]);
});

test("A policy that is replaced decides the next renewal", async () => {
  const { app, change } = await serveLeases();
  const lease = await app.grant(60);
  await app.put({ resource, key: "a/1", lease });
  const stream = app.keepAlive();
  expect(await stream.renew(lease)).toEqual([renewed]);
  change(
    policy.replace(
      '[pods], prefixes: ["a/"], verbs: [get, put',
      '[pods], prefixes: ["c/"], verbs: [get, put',
    ),
  );
  expect(await stream.renew(lease)).toEqual([refused]);
  change(policy.replace("{ role: app, subjects: [app] }", "{ role: reader, subjects: [app] }"));
  stream.send(lease);
  expect(await stream.ended).toMatchObject(denied);
});

/** Decides about leases of a store that says this of them. */
function authorizerOf(leases: Pick<Leases, "timeToLive"> | undefined) {
  const clock = new ManualTimers();
  const authorizer = new Authorizer(policyOf(policy));
  const resources = new Map([[resource, undefined]]);
  const rights = new LeaseAuthorizer({
    ...{ leases: leases as Leases | undefined, authorizer, clock, resources },
  });
  const callers = new Callers(clock, defaultServerLimits);
  const user = (name: string) => {
    const identity = { name, groups: [], source: "token", expiresAt: undefined } as const;
    const connection = {};
    callers.connected(connection, "10.0.0.1");
    const owner = callers.ownerOf({ connection, identity, address: "10.0.0.1:1" });
    return { identity, owner, signal: new AbortController().signal };
  };
  return { rights, user, clock };
}

test("A lease with keys of no resource, with too many objects, or of which nothing is known is for no limited caller", async () => {
  const answers = [
    { objects: [], others: 1 },
    { objects: new Array(4_000).fill({ resource, key: "a/1" }), others: 0 },
    undefined,
  ];
  for (const answer of answers) {
    const leases = answer && {
      timeToLive: async () => ({ ttlMs: 1, grantedTtlSeconds: 1, ...answer }),
    };
    const { rights, user } = authorizerOf(leases);
    for (const use of [keepingAlive, attaching, revoking, reading]) {
      expect(await rights.refusal(user("app"), 1n, use)).toMatchObject(denied);
      expect(await rights.refusal(user("root"), 1n, use)).toBeUndefined();
    }
  }
});

test("Few questions about leases are asked at once, and few verdicts are remembered", async () => {
  const asked: (() => void)[] = [];
  let open = 0;
  let most = 0;
  const leases: Pick<Leases, "timeToLive"> = {
    timeToLive: async () => {
      most = Math.max(most, ++open);
      await new Promise<void>((resolve) => asked.push(resolve));
      open--;
      return { ttlMs: 1, grantedTtlSeconds: 1, objects: [], others: 0 };
    },
  };
  const { rights, user, clock } = authorizerOf(leases);
  const [app, bob] = [user("app"), user("bob")];
  const ask = (by: typeof app, lease: number) =>
    rights.refusal(by, BigInt(lease), keepingAlive).catch((error: unknown) => error);
  const first = Array.from({ length: 6 }, (_, i) => ask(app, i + 1));
  const other = ask(bob, 1);
  await nextTurn();
  expect([open, most]).toEqual([5, 5]);
  clock.advance(3_000);
  const late = expect.objectContaining({ reason: "OVERLOADED" });
  expect(await Promise.all(first.slice(4))).toEqual([late, late]);
  for (const answer of asked.splice(0)) answer();
  expect(await Promise.all([...first.slice(0, 4), other])).toEqual(new Array(5).fill(undefined));
  for (let lease = 10; lease < 10_020; lease++) {
    const answer = ask(app, lease);
    while (asked.length === 0) await nextTurn();
    asked.pop()?.();
    expect(await answer).toBeUndefined();
  }
  expect(rights.size).toBe(10_000);
  expect(most).toBe(5);
});

test("Thousands of leases are asked about a few at a time, and those that would wait too long are refused", async () => {
  let asked = 0;
  const leases: Pick<Leases, "timeToLive"> = {
    timeToLive: async (lease) => {
      asked++;
      if (asked === 40) clock.advance(3_000);
      throw leaseNotFound(lease);
    },
  };
  const { rights, user, clock } = authorizerOf(leases);
  const all = Array.from({ length: 10_000 }, (_, i) => BigInt(i + 1));
  const refusals = await rights.refusals(user("app"), all, keepingAlive);
  expect(refusals).toHaveLength(10_000);
  expect(new Set(refusals.slice(0, 32))).toEqual(new Set([endedLease]));
  expect(new Set(refusals.slice(48))).toEqual(
    new Set([expect.objectContaining({ reason: "OVERLOADED" })]),
  );
  expect(asked).toBeLessThan(50);
});
