import { pino } from "pino";
import { describe, expect, onTestFinished, test } from "vitest";
import { Cacher } from "../../../src/cacher/cacher.ts";
import { Authorizer } from "../../../src/policy/authorizer.ts";
import type { AuditEntry } from "../../../src/server/server.ts";
import { MemoryStorage } from "../../../src/storage/memory/memory-storage.ts";
import { MemoryStore } from "../../../src/storage/memory/memory-store.ts";
import type { TransactRequest } from "../../../src/wire/generated/watchfanout/v1/TransactRequest.ts";
import { startReady } from "../../cacher/ready.ts";
import { policyOf } from "../../config/parsed-policy.ts";
import { ManualTimers } from "../limits/manual-timers.ts";
import { serve } from "../served.ts";
import { transactingBy } from "../services/transacting.ts";
import { authenticatorsOf, clientAs } from "./callers.ts";

const policy = `
roles:
  - name: app
    rules:
      - { resources: [pods], prefixes: ["a/"], verbs: [get, put, delete] }
      - { resources: [pods], prefixes: ["put/"], verbs: [put] }
      - { resources: [pods], prefixes: ["delete/"], verbs: [delete] }
      - { resources: [secrets], keys: [open], verbs: [get] }
  - name: root
    rules: [{ resources: ["*"], prefixes: ["*"], verbs: ["*"] }]
bindings:
  - { role: app, subjects: [app] }
  - { role: root, subjects: [root] }
`;

async function open() {
  const clock = new ManualTimers();
  const store = new MemoryStore({ clock });
  const caches = new Map<string, Cacher>();
  for (const name of ["pods", "secrets"]) {
    const storage = new MemoryStorage({ store, resource: name });
    const cacher = new Cacher({ name, storage, clock, logger: pino({ level: "silent" }) });
    await startReady(cacher);
    onTestFinished(() => cacher.close());
    caches.set(name, cacher);
  }
  const audited: AuditEntry[] = [];
  const audit = { level: "all" as const, record: (entry: AuditEntry) => void audited.push(entry) };
  const authenticators = authenticatorsOf(["app", "root"]);
  const authorizer = new Authorizer(policyOf(policy));
  const { server } = await serve(caches, clock, { authenticators, authorizer, audit, store });
  const by = (name: string) => transactingBy(clientAs(server, name));
  return { ...{ server, store, audited }, app: by("app"), root: by("root") };
}

const pods = (key: string) => ({ resource: "pods", key });
const put = { put: { value: Buffer.from("1") } };
const remove = { delete: {} };

describe("A transaction", () => {
  test.each<[string, TransactRequest, boolean]>([
    [
      "puts, deletes, and compares what may be got",
      {
        compares: [{ ...pods("a/1"), exists: false }],
        operations: [
          { ...pods("a/1"), ...put },
          { ...pods("a/2"), ...remove },
        ],
        return_previous: true,
      },
      true,
    ],
    [
      "compares a key of another resource",
      {
        compares: [{ resource: "secrets", key: "open", exists: false }],
        operations: [{ ...pods("a/1"), ...put }],
      },
      true,
    ],
    [
      "compares a hidden key",
      {
        compares: [{ resource: "secrets", key: "hidden", exists: false }],
        operations: [{ ...pods("a/1"), ...put }],
      },
      false,
    ],
    ["compares what may only be put", { compares: [{ ...pods("put/1"), exists: false }] }, false],
    ["puts what may only be put", { operations: [{ ...pods("put/1"), ...put }] }, true],
    [
      "returns what may only be put",
      {
        operations: [{ ...pods("put/1"), ...put }],
        return_previous: true,
      },
      false,
    ],
    ["deletes what may only be put", { operations: [{ ...pods("put/1"), ...remove }] }, false],
    [
      "attaches what may only be put to a lease",
      {
        operations: [{ ...pods("put/1"), put: { ttl: { seconds: 60 } } }],
      },
      false,
    ],
    [
      "deletes what may only be deleted",
      { operations: [{ ...pods("delete/1"), ...remove }] },
      true,
    ],
    ["puts what may only be deleted", { operations: [{ ...pods("delete/1"), ...put }] }, false],
    [
      "has one operation of many that is not allowed",
      {
        operations: [...["a/1", "a/2", "b/1", "a/3"].map((key) => ({ ...pods(key), ...put }))],
      },
      false,
    ],
    [
      "is only validated, without a right",
      {
        operations: [{ ...pods("b/1"), ...put }],
        validate_only: true,
      },
      false,
    ],
    [
      "names a resource that does not exist",
      {
        operations: [
          { ...pods("a/1"), ...put },
          { resource: "none", key: "k", ...put },
        ],
      },
      false,
    ],
  ])("that %s needs the right of each: allowed %#", async (_name, request, isAllowed) => {
    const { app, store } = await open();
    const call = app.transact(request);
    if (isAllowed) {
      expect(await call).toMatchObject({ succeeded: true });
      return;
    }
    await expect(call).rejects.toMatchObject({ reason: "PERMISSION_DENIED" });
    expect(
      (
        await store.transact({
          compares: [{ resource: "pods", key: "x", exists: false }],
          operations: [],
        })
      ).revision,
    ).toBe(1);
  });

  test("is refused in the same way whether or not what it names exists", async () => {
    const { app, root } = await open();
    const refused = async (): Promise<unknown> => {
      const request = {
        compares: [{ resource: "secrets", key: "hidden", exists: true }],
        operations: [{ ...pods("a/1"), ...put }],
        return_current: true,
      };
      return app.transact(request).catch(({ message, metadata }) => ({ message, metadata }));
    };
    const before = await refused();
    await root.client.put({ resource: "secrets", key: "hidden" });
    expect(await refused()).toEqual(before);
  });

  test("is audited once, by its first operation or what was denied", async () => {
    const { app, audited } = await open();
    const operations = [
      { ...pods("a/1"), ...put },
      { ...pods("a/2"), ...remove },
    ];
    await app.transact({ operations, compares: [{ ...pods("a/3"), exists: false }] });
    await app.transact({ operations: [...operations, { ...pods("b/1"), ...put }] }).catch(() => {});
    await app.transact({}).catch(() => {});
    const seen = audited.map(({ method, access, allowed, code }) => [
      ...[method.split("/")[1], access?.verb, access?.scope, allowed, code],
    ]);
    expect(seen).toEqual([
      ["Transact", "put", { key: "a/1" }, true, "OK"],
      ["Transact", "put", { key: "b/1" }, false, "PERMISSION_DENIED"],
      ["Transact", undefined, undefined, true, "INVALID_ARGUMENT"],
    ]);
  });

  test("of another caller does not have its ids", async () => {
    const { app, root } = await open();
    const request = { operations: [{ ...pods("a/1"), ...put }], request_id: "1" };
    const first = await app.transact(request);
    const second = await root.transact(request);
    expect(Number(second.revision)).toBe(Number(first.revision) + 1);
    expect((await app.transact(request)).revision).toBe(first.revision);
  });
});

test("DeletePrefix needs the right to delete the whole prefix", async () => {
  const { app, root } = await open();
  for (const key of ["a/1", "delete/1", "b/1"]) await root.client.put(pods(key));
  expect((await app.deletePrefix({ resource: "pods", prefix: "delete/" })).deleted).toBe("1");
  for (const request of [{ prefix: "delete" }, { prefix: "put/" }, { every_key: true }]) {
    await expect(app.deletePrefix({ resource: "pods", ...request })).rejects.toMatchObject({
      reason: "PERMISSION_DENIED",
    });
  }
  expect((await root.deletePrefix({ resource: "pods", every_key: true })).deleted).toBe("2");
});

test("BatchGet needs the right to get each object", async () => {
  const { app, root } = await open();
  await root.client.put(pods("a/1"));
  const secret = { resource: "secrets", key: "open" };
  const { objects } = await app.batchGet({ objects: [pods("a/1"), secret] });
  expect(objects.map(({ object }) => object?.key)).toEqual(["a/1", undefined]);
  await expect(app.batchGet({ objects: [pods("a/1"), pods("put/1")] })).rejects.toMatchObject({
    ...{ reason: "PERMISSION_DENIED", metadata: { verb: "get", key: "put/1" } },
  });
});

test("return_current needs the right to get", async () => {
  const { app } = await open();
  await app.client.put({ ...pods("put/1"), expected_mod_revision: "0" });
  for (const call of [
    () => app.client.put({ ...pods("put/1"), return_current: true }),
    () => app.client.delete({ ...pods("delete/1"), return_current: true }),
  ]) {
    await expect(call()).rejects.toMatchObject({
      ...{ reason: "PERMISSION_DENIED", metadata: { verb: "get" } },
    });
  }
});
