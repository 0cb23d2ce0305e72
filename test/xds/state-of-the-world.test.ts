import { status } from "@grpc/grpc-js";
import { describe, expect, it } from "vitest";
import { until } from "../testing/patient-until.ts";
import { cluster, decoded } from "./discovery-client.ts";
import { serveXds } from "./serving.ts";

const ofCluster = "envoy.config.cluster.v3.Cluster";

function namesIn({ resources }: { readonly resources: readonly { readonly bytes: Buffer }[] }) {
  return resources.map(({ bytes }) => (decoded(ofCluster, bytes) as { name: string }).name).sort();
}

describe("A state-of-the-world stream", () => {
  it("gets all clusters for a first request without names, and all of them again with each change", async () => {
    const { client, put, remove, cachers, clock } = await serveXds({
      stored: { "cds/a": cluster("a"), "cds/b": cluster("b") },
    });
    const stream = client.state();
    stream.send({ type: "cds" });
    const first = await stream.response(0);
    expect(namesIn(first)).toEqual(["a", "b"]);
    expect(first.version).toBe(String(cachers.get("cds")?.revision));
    stream.send({ type: "cds", nonce: first.nonce });
    await put("cds/c", cluster("c"));
    const second = await stream.response(1);
    expect(namesIn(second)).toEqual(["a", "b", "c"]);
    stream.send({ type: "cds", nonce: second.nonce });
    await remove("cds/a");
    const third = await until("the removal", () => {
      clock.advance(25);
      return stream.received[2];
    });
    expect(namesIn(third)).toEqual(["b", "c"]);
  });

  it("gets what is stored byte by byte", async () => {
    const stored = cluster("a", { connect_timeout: { seconds: 7 } });
    const { client } = await serveXds({ stored: { "cds/a": stored } });
    const stream = client.state();
    stream.send({ type: "cds", names: ["*"] });
    const { resources } = await stream.response(0);
    expect(stored.subarray(-(resources[0]?.bytes.length ?? 0))).toEqual(resources[0]?.bytes);
  });

  it("learns which of the clusters that it names do not exist, and of one when it is stored", async () => {
    const { client, put } = await serveXds({ stored: { "cds/a": cluster("a") } });
    const stream = client.state();
    stream.send({ type: "cds", names: ["a", "b"] });
    expect(namesIn(await stream.response(0))).toEqual(["a"]);
    await put("cds/other", cluster("other"));
    await put("cds/b", cluster("b"));
    expect(namesIn(await stream.response(1))).toEqual(["a", "b"]);
  });

  it("gets nothing more of a type once it names nothing of it, although it has named something", async () => {
    const { client, put } = await serveXds({ stored: { "cds/a": cluster("a") } });
    const stream = client.state();
    stream.send({ type: "cds", names: ["a"] });
    const first = await stream.response(0);
    stream.send({ type: "cds", nonce: first.nonce });
    stream.send({ type: "eds", names: ["web"] });
    expect((await stream.response(1)).type).toBe("eds");
    await put("cds/a", cluster("a", { connect_timeout: { seconds: 1 } }));
    await put("eds/web/1", { address: "10.0.0.1", port: 80 });
    expect((await stream.response(2)).type).toBe("eds");
  });

  it.each([
    ["from the first request on", [["*"]]],
    ["behind a first request without names", [[], ["*"]]],
  ])(
    "that asks for all by name, %s, gets nothing more once it names nothing",
    async (_, requests) => {
      const { client, put } = await serveXds({ stored: { "cds/a": cluster("a") } });
      const stream = client.state();
      for (const names of requests) stream.send({ type: "cds", names });
      const first = await stream.response(0);
      stream.send({ type: "cds", nonce: first.nonce });
      stream.send({ type: "eds", names: ["web"] });
      expect((await stream.response(1)).type).toBe("eds");
      await put("cds/a", cluster("a", { connect_timeout: { seconds: 1 } }));
      await put("eds/web/1", { address: "10.0.0.1", port: 80 });
      expect((await stream.response(2)).type).toBe("eds");
    },
  );

  it("may name others than before, as many as a stream may have", async () => {
    const { client } = await serveXds({ server: { limits: { maxSubscribeWatches: 3 } } });
    const stream = client.state();
    stream.send({ type: "eds", names: ["a", "b", "c"] });
    await stream.response(0);
    stream.send({ type: "eds", names: ["c", "d", "e"] });
    const { resources } = await stream.response(1);
    expect(resources.map(({ bytes }) => addressesIn(bytes))).toEqual([["d"], ["e"]]);
  });

  it("gets an assignment alone when an instance changes, and the empty one of a service without instances", async () => {
    const { client, put, remove } = await serveXds({
      stored: {
        "eds/web/1": { address: "10.0.0.1", port: 80 },
        "eds/db/1": { address: "10.0.0.9", port: 5432 },
      },
    });
    const stream = client.state();
    stream.send({ type: "eds", names: ["web", "db", "none"] });
    const first = await stream.response(0);
    expect(first.resources.map(({ bytes }) => addressesIn(bytes))).toEqual([
      ["web", "10.0.0.1:80"],
      ["db", "10.0.0.9:5432"],
      ["none"],
    ]);
    await put("eds/web/2", { address: "10.0.0.2", port: 80 });
    const second = await stream.response(1);
    expect(second.resources.map(({ bytes }) => addressesIn(bytes))).toEqual([
      ["web", "10.0.0.1:80", "10.0.0.2:80"],
    ]);
    await remove("eds/db/1");
    const third = await stream.response(2);
    expect(third.resources.map(({ bytes }) => addressesIn(bytes))).toEqual([["db"]]);
  });

  it("is not answered before the caches have the whole state", async () => {
    const { client, start } = await serveXds({
      stored: { "cds/a": cluster("a") },
      start: false,
    });
    const stream = client.state();
    stream.send({ type: "cds" });
    await start();
    expect(namesIn(await stream.response(0))).toEqual(["a"]);
  });

  it("is answered with nothing if nothing is stored", async () => {
    const { client } = await serveXds();
    const stream = client.state();
    stream.send({ type: "lds" });
    expect((await stream.response(0)).resources).toEqual([]);
  });

  it("gets what it waits for in the order of the types, whatever has changed first", async () => {
    const { client, put, cachers, clock } = await serveXds({
      stored: { "eds/web/1": { address: "10.0.0.1", port: 80 }, "rds/r": route("r") },
    });
    const stream = client.state();
    stream.send({ type: "rds", names: ["r"] });
    stream.send({ type: "eds", names: ["web"] });
    stream.send({ type: "lds" });
    stream.send({ type: "cds" });
    await stream.response(3);
    stream.pause();
    // More than the client's flow control takes.
    await put("cds/large", cluster("large", { alt_stat_name: "x".repeat(1_000_000) }));
    await until("the large cluster", () => cachers.get("cds")?.revision === 4);
    await put("rds/r", route("r"));
    await put("lds/l", listener("l"));
    await put("eds/web/2", { address: "10.0.0.2", port: 80 });
    const last = await put("cds/b", cluster("b"));
    for (const cacher of cachers.values()) await cacher.reachKnownRevision(last);
    stream.resume();
    // The client confirms nothing.
    await until("all changes", () => {
      clock.advance(100);
      return stream.received[8];
    });
    const types = stream.received.slice(4).map(({ type }) => type);
    expect(types).toEqual(["cds", "cds", "eds", "lds", "rds"]);
  });

  it("gets what it names in responses of at most a thousand resources", async () => {
    const { client } = await serveXds({
      stored: { "eds/s7/1": { address: "10.0.0.1", port: 80 } },
    });
    const stream = client.state();
    const names = Array.from({ length: 2_500 }, (_, n) => `s${n}`);
    stream.send({ type: "eds", names });
    await stream.response(2);
    expect(stream.received.map(({ resources }) => resources.length)).toEqual([1_000, 1_000, 500]);
    const received = stream.received.flatMap(({ resources }) => resources);
    expect(received.map(({ bytes }) => addressesIn(bytes)[0])).toEqual(names);
  });

  it("gets what it names in responses that clients of gRPC accept", async () => {
    const names = ["r0", "r1", "r2", "r3"];
    const routeOf = (name: string) => ({
      ...{ "@type": "type.googleapis.com/envoy.config.route.v3.RouteConfiguration", name },
      virtual_hosts: [{ name: "x".repeat(400_000), domains: ["*"] }],
    });
    const { client } = await serveXds({
      stored: Object.fromEntries(names.map((name) => [`rds/${name}`, routeOf(name)])),
    });
    const stream = client.state();
    stream.send({ type: "rds", names });
    await stream.response(1);
    expect(stream.received.map(({ resources }) => resources.length)).toEqual([3, 1]);
  });

  it("ends with OK when the client ends it, and is counted by its method", async () => {
    const { client, recorder } = await serveXds();
    const stream = client.state();
    stream.send({ type: "cds" });
    await stream.response(0);
    stream.halfClose();
    expect(await stream.end()).toBe("ok");
    await recorder.untilEnded(1);
    const method =
      "envoy.service.discovery.v3.AggregatedDiscoveryService/StreamAggregatedResources";
    expect(recorder.calls).toEqual([{ method, code: "OK" }]);
  });

  it.each([
    ["envoy.Unknown", "not one of xDS"],
    ["envoy.extensions.transport_sockets.tls.v3.Secret", "--xds sds=RESOURCE"],
  ])("ends with what is wrong for the type %s", async (name, text) => {
    const { client } = await serveXds();
    const stream = client.state();
    stream.send({ type: "cds", node: "n" });
    await stream.response(0);
    stream.sendRaw({ type_url: `type.googleapis.com/${name}` });
    expect(await stream.end()).toMatchObject({
      code: status.INVALID_ARGUMENT,
      details: expect.stringContaining(text),
    });
  });
});

function listener(name: string): object {
  return { "@type": "type.googleapis.com/envoy.config.listener.v3.Listener", name };
}

function route(name: string): object {
  return { "@type": "type.googleapis.com/envoy.config.route.v3.RouteConfiguration", name };
}

interface Address {
  readonly address: { readonly socket_address: { address: string; port_value: number } };
}

/** The name of a service, and the addresses of its instances. */
function addressesIn(bytes: Buffer): string[] {
  const assignment = decoded("envoy.config.endpoint.v3.ClusterLoadAssignment", bytes) as {
    readonly cluster_name: string;
    readonly endpoints?: readonly { readonly lb_endpoints: readonly { endpoint: Address }[] }[];
  };
  const endpoints = (assignment.endpoints ?? []).flatMap(({ lb_endpoints }) => lb_endpoints);
  const addresses = endpoints.map(({ endpoint }) => {
    const { address, port_value } = endpoint.address.socket_address;
    return `${address}:${port_value}`;
  });
  return [assignment.cluster_name, ...addresses];
}
