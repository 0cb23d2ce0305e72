import { describe, expect, it } from "vitest";
import type { Timer } from "../../src/base/clock.ts";
import type { Cacher } from "../../src/cacher/cacher.ts";
import { Warming } from "../../src/xds/warming.ts";
import type { XdsReport } from "../../src/xds/xds-door.ts";
import { FakeClock } from "../fake-clock.ts";
import { until } from "../testing/patient-until.ts";
import { type DiscoveryStream, decoded, type Received } from "./discovery-client.ts";
import { serveXds } from "./serving.ts";

function route(name: string, to: string): object {
  return {
    "@type": "type.googleapis.com/envoy.config.route.v3.RouteConfiguration",
    name,
    virtual_hosts: [
      {
        ...{ name: "all", domains: ["*"] },
        routes: [{ match: { prefix: "/" }, route: { cluster: to } }],
      },
    ],
  };
}

const ofCluster = "envoy.config.cluster.v3.Cluster";
const cds = `type.googleapis.com/${ofCluster}`;

function edsCluster(name: string): object {
  const edsConfig = { eds_config: { ads: {} } };
  return { "@type": cds, name, type: "EDS", eds_cluster_config: edsConfig };
}

/** Its timers fire a millisecond early, as those of Node.js may. */
class EarlyClock extends FakeClock {
  override setTimeout(callback: () => void, ms: number): Timer {
    return super.setTimeout(callback, Math.max(1, ms - 1));
  }
}

/** A client that has one cluster and one route, and has confirmed both. `names`: the clusters that it asks for; none: all. */
async function serveOne({ isDelta = true, names = [] as readonly string[] } = {}) {
  const served = await serveXds({
    stored: {
      "cds/old": edsCluster("old"),
      "rds/main": route("main", "old"),
      "eds/old/1": { address: "10.0.0.1", port: 80 },
      "eds/new/1": { address: "10.0.0.2", port: 80 },
    },
  });
  const stream = isDelta ? served.client.delta() : served.client.state();
  const requests = [
    { type: "cds", names },
    { type: "eds", names: ["old"] },
    { type: "rds", names: ["main"] },
  ];
  for (const [at, request] of requests.entries()) {
    stream.send(request);
    const { nonce } = await until("its response", () => {
      served.clock.advance(100);
      return stream.received[at];
    });
    // In the state of the world each request has all names.
    stream.send(isDelta ? { type: request.type, nonce } : { ...request, nonce });
  }
  return { ...served, stream };
}

function servedOf(door: { report(): XdsReport }, name: string): number | undefined {
  return door.report().types.find(({ type }) => type === name)?.served;
}

async function confirm(stream: DiscoveryStream, at: number): Promise<void> {
  const { type, nonce } = await stream.response(at);
  stream.send({ type, nonce });
}

describe("A route to a new cluster", () => {
  it("is sent when the client has confirmed the cluster and its endpoints", async () => {
    const { stream, put, clock } = await serveOne();
    await put("cds/new", edsCluster("new"));
    await put("rds/main", route("main", "new"));
    const { nonce } = await stream.response(3);
    stream.send({ type: "eds", names: ["new"] });
    expect((await stream.response(4)).type).toBe("eds");
    stream.send({ type: "cds", nonce });
    // What follows shows that the server has read it.
    stream.send({ type: "eds", names: ["other"] });
    expect((await stream.response(5)).type).toBe("eds");
    clock.advance(25);
    stream.send({ type: "eds", names: ["another"] });
    expect((await stream.response(6)).type).toBe("eds");
    await confirm(stream, 6);
    expect((await stream.response(7)).type).toBe("rds");
  });

  it("waits for the client, however long ago other clusters were sent", async () => {
    const { stream, put, clock, door } = await serveOne();
    await put("cds/earlier", edsCluster("earlier"));
    await confirm(stream, 3);
    // What follows shows that the server has read it.
    stream.send({ type: "eds", names: ["earlier"] });
    await confirm(stream, 4);
    clock.advance(60_000);
    await put("cds/new", edsCluster("new"));
    await put("rds/main", route("main", "new"));
    await put("rds/other", route("other", "new"));
    expect((await stream.response(5)).type).toBe("cds");
    // Both routes were committed in order, so that the first one waits for the client alone.
    await until("the routes", () => servedOf(door, "rds") === 2);
    await put("eds/old/2", { address: "10.0.0.9", port: 80 });
    expect((await stream.response(6)).type).toBe("eds");
    await confirm(stream, 5);
    await until("the route", () => {
      clock.advance(25);
      return stream.received[7];
    });
    expect(stream.received[7]?.type).toBe("rds");
  });

  it("is sent after ten seconds to a client that confirms nothing", async () => {
    const { stream, put, clock, door } = await serveOne();
    await put("cds/new", edsCluster("new"));
    expect((await stream.response(3)).type).toBe("cds");
    await put("rds/main", route("main", "new"));
    await put("rds/other", route("other", "new"));
    // Both routes were committed in order, so that the first one waits for the client alone.
    await until("the routes", () => servedOf(door, "rds") === 2);
    clock.advance(9_999);
    // What follows shows that the server sends, and not the route.
    stream.send({ type: "eds", names: ["new"] });
    expect((await stream.response(4)).type).toBe("eds");
    clock.advance(1);
    expect((await stream.response(5)).type).toBe("rds");
  });

  it("does not wait for endpoints that change again and again", async () => {
    const { stream, put, clock } = await serveOne();
    await put("cds/new", edsCluster("new"));
    await put("rds/main", route("main", "new"));
    const { nonce } = await stream.response(3);
    stream.send({ type: "eds", names: ["new"] });
    const endpoints = await stream.response(4);
    stream.send({ type: "cds", nonce });
    stream.send({ type: "eds", names: ["other"] });
    await stream.response(5);
    clock.advance(25);
    await put("eds/new/2", { address: "10.0.0.3", port: 80 });
    expect((await stream.response(6)).type).toBe("eds");
    // The client confirms what it had to confirm, behind a change.
    stream.send({ type: "eds", nonce: endpoints.nonce });
    await confirm(stream, 5);
    expect((await stream.response(7)).type).toBe("rds");
  });

  it("is not sent later because a timer has fired early", () => {
    const clock = new EarlyClock();
    let warmAt: number | undefined;
    const warming = new Warming(clock, () => {
      if (!warming.isActive(undefined)) warmAt ??= clock.now();
    });
    const begun = clock.now();
    warming.begin(1, undefined);
    warming.confirmed(1);
    clock.advance(24);
    expect(warmAt).toBeUndefined();
    clock.advance(2);
    expect(warmAt).toBe(begun + 25);
  });

  it("waits for the cache of clusters, which may learn of them later", async () => {
    const held = Promise.withResolvers<void>();
    const { client, put, cachers } = await serveXds({
      stored: { "rds/main": route("main", "old") },
    });
    const clusters = cachers.get("cds") as Cacher;
    const reach = clusters.reachKnownRevision.bind(clusters);
    clusters.reachKnownRevision = async (...known) => {
      await held.promise;
      return reach(...known);
    };
    const stream = client.delta();
    stream.send({ type: "rds", names: ["main"] });
    await stream.response(0);
    const last = await put("rds/main", route("main", "new"));
    await cachers.get("rds")?.reachKnownRevision(last);
    stream.send({ type: "eds", names: ["any"] });
    expect((await stream.response(1)).type).toBe("eds");
    held.resolve();
    expect((await stream.response(2)).type).toBe("rds");
  });
});

describe("A cluster that is removed with the route to it", () => {
  it("is removed behind the change of the route", async () => {
    const { stream, remove, put } = await serveOne();
    await remove("cds/old");
    await put("rds/main", route("main", "other"));
    const [first, second] = [await stream.response(3), await stream.response(4)];
    expect([first.type, second.type, second.removed]).toEqual(["rds", "cds", ["old"]]);
  });

  it.each([
    { isDelta: true, names: [] },
    { isDelta: false, names: [] },
    { isDelta: true, names: ["old", "new", "third"] },
    { isDelta: false, names: ["old", "new", "third"] },
  ])("stays while others are added, until the route is sent: %j", async (asked) => {
    const { stream, put, remove, clock, door } = await serveOne(asked);
    await put("cds/new", edsCluster("new"));
    expect((await stream.response(3)).type).toBe("cds");
    await put("rds/main", route("main", "new"));
    await remove("cds/old");
    await until("the removal", () => servedOf(door, "cds") === 1);
    await put("cds/third", edsCluster("third"));
    const third = await stream.response(4);
    expect([third.type, third.removed]).toEqual(["cds", []]);
    const clustersIn = ({ resources }: Received) =>
      resources.map(({ bytes }) => (decoded(ofCluster, bytes) as { name: string }).name).sort();
    expect(clustersIn(third)).toEqual(asked.isDelta ? ["third"] : ["new", "old", "third"]);
    stream.send({ type: "cds", names: asked.isDelta ? [] : asked.names, nonce: third.nonce });
    await until("what follows", () => {
      clock.advance(25);
      return stream.received[6];
    });
    const [moved, removal] = stream.received.slice(5) as [Received, Received];
    expect([moved.type, removal.type]).toEqual(["rds", "cds"]);
    if (asked.isDelta) expect([removal.resources, removal.removed]).toEqual([[], ["old"]]);
    else expect(clustersIn(removal)).toEqual(["new", "third"]);
  });
});

describe("Changes of instances", () => {
  it("are collected no longer once a route waits for them", async () => {
    const { client, put } = await serveXds({
      debounceMs: 60_000,
      stored: { "eds/web/1": { address: "10.0.0.1", port: 80 } },
    });
    const stream = client.delta();
    stream.send({ type: "eds", names: ["web"] });
    await stream.response(0);
    const second = await put("eds/web/2", { address: "10.0.0.2", port: 80 });
    await put("rds/main", route("main", "web"));
    expect(Number((await stream.response(1)).version)).toBeGreaterThanOrEqual(second);
  });

  it("are one change of the assignment if they come within the time to collect", async () => {
    const { client, put, clock, cachers } = await serveXds({
      debounceMs: 500,
      stored: { "eds/web/1": { address: "10.0.0.1", port: 80 } },
    });
    const stream = client.delta();
    stream.send({ type: "eds", names: ["web"] });
    await stream.response(0);
    let last = 0;
    for (let n = 2; n <= 6; n++)
      last = await put(`eds/web/${n}`, { address: `10.0.0.${n}`, port: 80 });
    await cachers.get("eds")?.reachKnownRevision(last);
    await until("the last of them", () => {
      clock.advance(100);
      return stream.received[1];
    });
    expect(stream.received[1]?.version).toBe(String(last));
    await put("eds/web/7", { address: "10.0.0.7", port: 80 });
    await until("a further one", () => {
      clock.advance(100);
      return stream.received[2];
    });
  });
});
