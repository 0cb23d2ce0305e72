import { status } from "@grpc/grpc-js";
import { expect, test } from "vitest";
import { Authorizer } from "../../../src/policy/authorizer.ts";
import type { AuditEntry, AuditLevel } from "../../../src/server/server.ts";
import { listWatchService, writeService } from "../../../src/wire/services.ts";
import { policyOf } from "../../config/parsed-policy.ts";
import { RawConnection } from "../http2/raw-connection.ts";
import { serveThings } from "../served.ts";

const resource = "things";
const { List } = listWatchService;
const { Put } = writeService;
const large = List.requestSerialize({ resource });
const put = Put.requestSerialize({ resource, key: "secret", value: Buffer.alloc(1_000_000) });

function allowing(verbs: string) {
  return policyOf(`
roles: [{ name: all, rules: [{ resources: ["*"], prefixes: ["*"], verbs: [${verbs}] }] }]
bindings: [{ role: all, subjects: [anonymous] }]
`);
}

test.each([
  ["List", List.path, large, "get, watch, put", "writes"],
  ["List", List.path, large, "get, watch, put", "reads"],
  ["Put", Put.path, put, "get, list, watch", "writes"],
] as const)(
  "A %s that waits for its client has no effect once its right is lost, and is audited as denied",
  async (name, path, request, remaining, level: AuditLevel) => {
    const audited: AuditEntry[] = [];
    const audit = { level, record: (entry: AuditEntry) => void audited.push(entry) };
    const authorizer = new Authorizer(allowing("get, list, watch, put"));
    const { server, storage } = await serveThings({ server: { authorizer, audit } });
    for (let i = 0; i < 8; i++) {
      await storage.put({ key: `k${i}`, value: Buffer.alloc(500_000, i) });
    }
    const before = await storage.currentRevision();
    const raw = new RawConnection(server.port, 0);
    // As many pages as its connection may hold, and then the call.
    const full = Array.from({ length: 4 }, () => raw.call(List.path, large));
    const call = raw.call(path, request);
    // Once it waits, its request is charged, for longer than while it is read.
    for (let turns = 0; turns < 50; turns++) {
      await new Promise((resolve) => setImmediate(resolve));
      if (server.stats().requests.bytes === 0) turns = 0;
    }
    authorizer.replace(allowing(remaining));
    audited.length = 0;
    raw.session.settings({ initialWindowSize: 2 ** 24 });
    for (const page of full) page.drain();
    expect((await call.drain().ended).code).toBe(status.PERMISSION_DENIED);
    expect(await storage.currentRevision()).toBe(before);
    const denied = audited.filter(({ allowed, method }) => !allowed && method.endsWith(name));
    expect(new Set(denied.map(({ code }) => code))).toEqual(new Set(["PERMISSION_DENIED"]));
    expect(audited.filter(({ code }) => code === "PERMISSION_DENIED")).toEqual(denied);
    raw.session.destroy();
  },
);
