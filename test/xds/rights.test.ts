import { status } from "@grpc/grpc-js";
import { describe, expect, it } from "vitest";
import { Authorizer } from "../../src/policy/authorizer.ts";
import type { AuditEntry } from "../../src/server/server.ts";
import { policyOf } from "../config/parsed-policy.ts";
import { authenticatorsOf } from "../server/rights/callers.ts";
import { cluster, DiscoveryClient } from "./discovery-client.ts";
import { serveXds } from "./serving.ts";

const policy = (prefix: string) => `
roles:
  - name: mesh
    rules:
      - verbs: [watch]
        resources: [eds]
        prefixes: ["${prefix}"]
      - verbs: [watch]
        resources: [cds]
        keys: [a]
  - name: all
    rules:
      - verbs: [watch]
        resources: ["*"]
        prefixes: ["*"]
bindings:
  - role: mesh
    subjects: [app]
  - role: all
    subjects: [root]
`;

async function serveGuarded() {
  const authorizer = new Authorizer(policyOf(policy("web/")));
  const audited: AuditEntry[] = [];
  const audit = { level: "all" as const, record: (entry: AuditEntry) => void audited.push(entry) };
  const authenticators = authenticatorsOf(["app", "root"]);
  const served = await serveXds({
    server: { authorizer, audit, authenticators },
    stored: {
      ...{ "cds/a": cluster("a"), "cds/b": cluster("b") },
      "eds/web/1": { address: "10.0.0.1", port: 80 },
    },
  });
  return { ...served, authorizer, audited };
}

function as(port: number, token: string): DiscoveryClient {
  return new DiscoveryClient(port, { token });
}

describe("A caller with rights to a part", () => {
  it.each([
    ["eds", ["web"]],
    ["cds", ["a"]],
  ] as const)("gets what it asks for by name: %s", async (type, names) => {
    const { server } = await serveGuarded();
    const stream = as(server.port, "app").delta();
    stream.send({ type, names });
    expect((await stream.response(0)).resources.map(({ name }) => name)).toEqual(names);
  });

  it.each([
    ["eds", ["web", "db"], 'the keys that begin with "db/"'],
    ["eds", ["we"], 'the keys that begin with "we/"'],
    ["cds", ["b"], 'the key "b"'],
    ["cds", ["*"], "all keys"],
    ["cds", [], "all keys"],
    ["lds", ["any"], 'the resource "lds"'],
  ] as const)("is refused what it has no right to: %s %j", async (type, names, what) => {
    const { server, audited } = await serveGuarded();
    const stream = as(server.port, "app").state();
    stream.send({ type, names, node: "root" });
    expect(await stream.end()).toMatchObject({
      code: status.PERMISSION_DENIED,
      details: expect.stringContaining(what),
    });
    expect(stream.received).toEqual([]);
    expect(audited.filter(({ allowed }) => !allowed)).toMatchObject([
      { identity: { name: "app" }, code: "PERMISSION_DENIED", access: { verb: "watch" } },
    ]);
  });

  it("is audited with each name that it asks for", async () => {
    const { server, audited } = await serveGuarded();
    const stream = as(server.port, "app").delta();
    stream.send({ type: "eds", names: ["web"] });
    await stream.response(0);
    const named = audited.filter(({ access }) => access !== undefined);
    expect(named).toMatchObject([
      {
        method: "envoy.service.discovery.v3.AggregatedDiscoveryService/DeltaAggregatedResources",
        access: { verb: "watch", resource: "eds", scope: { prefix: "web/" } },
        allowed: true,
      },
    ]);
  });

  it("loses its stream with its right, and another keeps it", async () => {
    const { server, authorizer, put } = await serveGuarded();
    const [app, root] = [as(server.port, "app").delta(), as(server.port, "root").delta()];
    for (const stream of [app, root]) {
      stream.send({ type: "eds", names: ["web"] });
      await stream.response(0);
    }
    authorizer.replace(policyOf(policy("other/")));
    expect(await app.end()).toMatchObject({ code: status.PERMISSION_DENIED });
    await put("eds/web/2", { address: "10.0.0.2", port: 80 });
    await root.response(1);
    expect(app.received.length).toBe(1);
  });
});

it("A caller without a token is refused where one is needed", async () => {
  const { server } = await serveGuarded();
  const stream = new DiscoveryClient(server.port, { token: "stranger" }).state();
  stream.send({ type: "cds" });
  expect(await stream.end()).toMatchObject({ code: status.UNAUTHENTICATED });
});

describe("A stream of xDS", () => {
  it("counts as a stream of its caller, and ends with DRAINING when the server does", async () => {
    const { server, client, clock } = await serveXds();
    const stream = client.state();
    stream.send({ type: "cds" });
    await stream.response(0);
    expect(server.openStreams).toBe(1);
    const drained = server.drain(1_000);
    expect(await stream.end()).toMatchObject({ code: status.UNAVAILABLE });
    clock.advance(1_000);
    await drained;
  });

  it("beyond the streams that a caller may have is refused", async () => {
    const { client } = await serveXds({ server: { limits: { maxStreams: 1 } } });
    const first = client.state();
    first.send({ type: "cds" });
    await first.response(0);
    const second = client.state();
    second.send({ type: "cds" });
    expect(await second.end()).toMatchObject({ code: status.RESOURCE_EXHAUSTED });
  });

  it("ends when it has reached its maximum age", async () => {
    const { client, clock } = await serveXds({ server: { limits: { maxStreamAgeMs: 60_000 } } });
    const stream = client.state();
    stream.send({ type: "cds" });
    await stream.response(0);
    clock.advance(61_000);
    expect(await stream.end()).toMatchObject({ code: status.UNAVAILABLE });
  });
});
