import { describe, expect, test } from "vitest";
import type { AuditEntry, AuditLevel } from "../../../src/server/server.ts";
import { healthService, listWatchService, writeService } from "../../../src/wire/services.ts";
import { RawConnection } from "../http2/raw-connection.ts";
import { clientAs, headersOf } from "./callers.ts";
import { type Guarded, serveGuarded } from "./guarded.ts";

const policy = `
roles:
  - name: app
    rules: [{ resources: [pods], prefixes: ["a/"], verbs: ["*"] }]
bindings: [{ role: app, subjects: [app] }]
`;

const resource = "pods";

/** `app put a/1 by app[0]: OK` */
function said({ identity, access, allowed, rule, code, method }: AuditEntry): string {
  const scope = access?.scope ?? {};
  const what = access === undefined ? method : `${access.verb} ${Object.values(scope)[0]}`;
  return `${identity.name} ${what} ${allowed ? `by ${rule ?? "no rule"}` : "denied"}: ${code ?? "open"}`;
}

async function makeCalls({ server }: Guarded): Promise<void> {
  const app = clientAs(server, "app");
  await app.put({ resource, key: "a/1", value: Buffer.from("the value") });
  await app.put({ resource, key: "a/1", expected_mod_revision: 77 }).catch(() => {});
  await app.put({ resource, key: "b/1", value: Buffer.from("the value") }).catch(() => {});
  await app.get({ resource, key: "a/1" });
  await app.get({ resource, key: "a/2" }).catch(() => {});
  await app.list({ resource, prefix: "a/" });
  await app.list({ resource, page_token: "x" }).catch(() => {});
  const watch = app.watch({ resource, prefix: "a/" });
  await watch.next();
  watch.cancel();
  await app.watch({ resource, prefix: "a/", label_selector: "=" }).ended;
  await app.watch({ resource }).ended;
  await app.delete({ resource, key: "a/1" });
  await app.unary(healthService.Check, { service: "" });
}

const denied = ["app put b/1 denied: PERMISSION_DENIED", "app list  denied: PERMISSION_DENIED"];
const deniedWatch = "app watch  denied: PERMISSION_DENIED";
const puts = ["app put a/1 by app[0]: OK", "app put a/1 by app[0]: ABORTED"];
const reads = [
  "app get a/1 by app[0]: OK",
  "app get a/2 by app[0]: NOT_FOUND",
  "app list a/ by app[0]: OK",
];
const watches = ["app watch a/ by app[0]: open", "app watch a/ by app[0]: INVALID_ARGUMENT"];
const deletion = "app delete a/1 by app[0]: OK";

test("A History is audited as a Get of its key.", async () => {
  const guarded = await serveGuarded(policy, [resource], "reads");
  const app = clientAs(guarded.server, "app");
  await app.history({ resource, key: "a/1" });
  await app.history({ resource, key: "b/1" }).catch(() => {});
  expect(guarded.audited.map(said)).toEqual([
    "app get a/1 by app[0]: OK",
    "app get b/1 denied: PERMISSION_DENIED",
  ]);
});

describe("The audit", () => {
  test.each<readonly [AuditLevel, readonly string[]]>([
    ["writes", [...puts, ...denied, deniedWatch, deletion]],
    [
      "reads",
      [
        ...[...puts, denied[0] ?? "", ...reads, denied[1] ?? ""],
        ...[...watches, deniedWatch, deletion],
      ],
    ],
    [
      "all",
      [
        ...[...puts, denied[0] ?? "", ...reads, denied[1] ?? ""],
        ...[...watches, deniedWatch, deletion],
        "app grpc.health.v1.Health/Check by no rule: OK",
      ],
    ],
  ])("of %s has denied calls and those", async (level, expected) => {
    const guarded = await serveGuarded(policy, [resource], level);
    await makeCalls(guarded);
    expect(guarded.audited.map(said)).toEqual(expected);
  });

  test("has no values", async () => {
    const guarded = await serveGuarded(policy, [resource]);
    await makeCalls(guarded);
    expect(JSON.stringify(guarded.audited)).not.toContain("the value");
  });

  test("has the address and the trace of the client", async () => {
    const { server, audited } = await serveGuarded(policy, [resource]);
    const raw = new RawConnection(server.port);
    const trace = "0af7651916cd43dd8448eb211c80319c";
    const traceparent = `00-${trace}-b7ad6b7169203331-01`;
    const { Get } = listWatchService;
    const request = Get.requestSerialize({ resource, key: "a/1" });
    await raw.call(Get.path, request, { ...headersOf("app"), traceparent }).ended;
    await raw.call(Get.path, request, { ...headersOf("app"), traceparent: "nonsense" }).ended;
    const address = expect.stringMatching(/^127\.0\.0\.1:\d+$/);
    expect(audited).toMatchObject([
      { address, traceId: trace, code: "NOT_FOUND" },
      { address, traceId: undefined },
    ]);
  });

  test("has calls whose credential is refused", async () => {
    const { server, audited } = await serveGuarded(policy, [resource], "writes");
    const raw = new RawConnection(server.port);
    const { Get } = listWatchService;
    const request = Get.requestSerialize({ resource, key: "a/1" });
    await raw.call(Get.path, request, headersOf("forged")).ended;
    expect(audited).toMatchObject([
      {
        ...{ identity: { name: "anonymous" }, allowed: false, access: undefined },
        ...{ method: "watchfanout.v1.ListWatchService/Get", code: "UNAUTHENTICATED" },
      },
    ]);
  });

  test.each([
    ["client does not wait says that it was cancelled", {}, "CANCELLED"],
    ["deadline passes says that it was exceeded", { "grpc-timeout": "5S" }, "DEADLINE_EXCEEDED"],
  ])("of a write whose %s", async (_, timeout, code) => {
    const { server, audited, storages, clock } = await serveGuarded(policy, [resource], "writes");
    const storage = storages.get(resource);
    if (storage === undefined) throw new Error("There is no storage.");
    const blocked = Promise.withResolvers<never>();
    const started = Promise.withResolvers<void>();
    storage.put = () => {
      started.resolve();
      return blocked.promise;
    };
    const raw = new RawConnection(server.port);
    const { Put } = writeService;
    const request = Put.requestSerialize({ resource, key: "a/1" });
    const call = raw.call(Put.path, request, { ...headersOf("app"), ...timeout });
    await started.promise;
    if (code === "CANCELLED") call.stream.close(8);
    else clock.advance(5_000);
    while (audited.length === 0) await new Promise((resolve) => setImmediate(resolve));
    expect(audited.map(said)).toEqual([`app put a/1 by app[0]: ${code}`]);
    blocked.reject(new Error("The test is over."));
  });
});
