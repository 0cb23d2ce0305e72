import { describe, expect, it, onTestFinished } from "vitest";
import { connect } from "../../src/client/connect.ts";
import type { Status } from "../../src/server/admin/status/status.ts";
import { type Served, startServe } from "../cli/serve/serve-process.ts";
import { until } from "../testing/patient-until.ts";
import { DiscoveryClient } from "./discovery-client.ts";

const resources = ["--resource", "clusters=/clusters/", "--resource", "instances=/instances/"];
const xds = ["--xds", "cds=clusters", "--xds", "eds=instances"];

async function start(...args: readonly string[]): Promise<Served> {
  const served = await startServe(args);
  onTestFinished(() => served.process[Symbol.asyncDispose]());
  return served;
}

/** Each returns the root, and the server that clients of xDS use. */
const tiers: readonly (readonly [string, () => Promise<readonly [Served, Served]>])[] = [
  ["the root", async () => ofOne(await start(...resources, ...xds))],
  ["a worker", async () => ofOne(await start(...resources, ...xds, "--workers", "2"))],
  ["a relay", async () => withRelay(await start(...resources))],
];

function ofOne(server: Served): readonly [Served, Served] {
  return [server, server];
}

async function withRelay(root: Served): Promise<readonly [Served, Served]> {
  return [root, await start("--upstream", root.grpc, ...xds)];
}

describe.each(tiers)("xDS at %s", (_, startTier) => {
  it("serves what is stored and computed, drops what expires, and is seen in the metrics", async () => {
    const [root, server] = await startTier();
    const client = connect({ address: root.grpc });
    onTestFinished(() => client.close());
    const put = (resource: string, key: string, value: object, ttlMs?: number) =>
      client.put(resource, key, Buffer.from(JSON.stringify(value)), { ttlMs });
    const type = "type.googleapis.com/envoy.config.cluster.v3.Cluster";
    await put("clusters", "web", { "@type": type, name: "web", connect_timeout: "1s" });
    await put("clusters", "bad", { "@type": type, name: "other" });
    await put("instances", "web/1", { address: "10.0.0.1", port: 80 });

    const stream = new DiscoveryClient(Number(server.grpc.split(":")[1])).delta();
    const known = (): ReadonlyMap<string, string> =>
      new Map(
        stream.received.flatMap((response) =>
          response.resources.map(
            ({ name = "", version = "" }) => [`${response.type} ${name}`, version] as const,
          ),
        ),
      );
    stream.send({ type: "cds", node: "n" });
    stream.send({ type: "eds", names: ["web"] });
    const assigned = (): Buffer | undefined =>
      stream.received.findLast(({ type }) => type === "eds")?.resources[0]?.bytes;
    // A relay may be behind: then the first assignment is empty.
    await until("both", () => known().size === 2 && assigned()?.includes("10.0.0.1"));
    expect([...known().keys()].sort()).toEqual(["cds web", "eds web"]);
    const one = known().get("eds web");

    // So long that it is sent before it ends, by a busy machine as well: changes are collected.
    await put("instances", "web/2", { address: "10.0.0.2", port: 80 }, 5_000);
    await until("the second instance", () => assigned()?.includes("10.0.0.2"));
    expect(known().get("eds web")).not.toBe(one);
    // The version is that of the content.
    await until("its end", () => known().get("eds web") === one);

    const { nonce = "" } = stream.received.findLast(({ type }) => type === "cds") ?? {};
    stream.send({ type: "cds", nonce, refusal: "not this one" });
    const problems = await until("the refusal on the status page", async () => {
      const status = (await (await fetch(`${server.admin}/status.json`)).json()) as Status;
      return status.xds?.problems.length === 2 && status.xds.problems;
    });
    expect(problems).toMatchObject([
      { kind: "refused", type: "cds", text: "not this one", by: "anonymous, n" },
      { kind: "invalid", type: "cds", name: "bad", text: expect.stringContaining("other") },
    ]);
    const metrics = await (await fetch(`${server.admin}/metrics`)).text();
    expect(metrics).toMatch(/watch_fanout_xds_invalid_values\{[^}]*type="cds"[^}]*\} 1\n/);
  });
});

describe("--xds", () => {
  it.each([
    [["cds=nothing"], /--xds: there is no resource "nothing"/],
    [["cds=clusters,cds=instances"], /--xds: the type cds is given twice/],
    [["ads=clusters"], /"ads=clusters" is not TYPE=RESOURCE/],
  ])("%j is refused", async ([value = ""], expected) => {
    const failed = startServe([...resources, "--xds", value]);
    await expect(failed).rejects.toThrow(expected);
  });

  it("of a resource that the upstream of a relay does not serve is refused", async () => {
    const root = await start(...resources);
    const failed = startServe(["--upstream", root.grpc, "--xds", "cds=others"]);
    await expect(failed).rejects.toThrow(/--xds: cds=others: there is no resource "others"/);
  });
});
