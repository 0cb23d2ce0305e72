import { describe, expect, it } from "vitest";
import { versionAt } from "../../src/xds/stored-types.ts";
import { until } from "../testing/patient-until.ts";
import { cluster, type Received } from "./discovery-client.ts";
import { serveXds } from "./serving.ts";

function namesIn({ resources }: Received): string[] {
  return resources.map(({ name = "" }) => name).sort();
}

function versionsIn({ resources }: Received): Record<string, string> {
  return Object.fromEntries(resources.map(({ name = "", version = "" }) => [name, version]));
}

describe("A delta stream", () => {
  it("gets all clusters, then each change alone, and what was removed", async () => {
    const { client, put, remove, clock } = await serveXds({
      stored: { "cds/a": cluster("a"), "cds/b": cluster("b") },
    });
    const stream = client.delta();
    stream.send({ type: "cds" });
    expect(namesIn(await stream.response(0))).toEqual(["a", "b"]);
    await put("cds/c", cluster("c"));
    const added = await stream.response(1);
    expect(namesIn(added)).toEqual(["c"]);
    stream.send({ type: "cds", nonce: added.nonce });
    await remove("cds/a");
    const removal = await until("the removal", () => {
      clock.advance(25);
      return stream.received[2];
    });
    expect(removal).toMatchObject({ resources: [], removed: ["a"] });
  });

  it("gets as version the revision of the last change, with the history that it belongs to", async () => {
    const { client, put, cachers } = await serveXds();
    const revision = await put("cds/a", cluster("a"));
    const stream = client.delta();
    stream.send({ type: "cds", names: ["a"] });
    const historyId = cachers.get("cds")?.currentHistoryId ?? "";
    expect(versionsIn(await stream.response(0))).toEqual({
      a: versionAt(revision, historyId, Buffer.alloc(0)),
    });
    expect((await stream.response(0)).version).toBe(String(revision));
  });

  it("gets all again when it asks for all again", async () => {
    const { client } = await serveXds({
      stored: { "cds/a": cluster("a"), "cds/b": cluster("b") },
    });
    const stream = client.delta();
    stream.send({ type: "cds", names: ["*"] });
    const { nonce } = await stream.response(0);
    stream.send({ type: "cds", nonce, names: ["*"] });
    expect(namesIn(await stream.response(1))).toEqual(["a", "b"]);
  });

  it("gets as version in an unknown history the content, beside the revision", () => {
    const [one, other] = [Buffer.from("a"), Buffer.from("b")];
    expect(versionAt(7, "", one)).toBe(versionAt(7, "", Buffer.from("a")));
    expect(versionAt(7, "", one)).not.toBe(versionAt(7, "", other));
    expect(versionAt(7, "known", one)).toBe(versionAt(7, "known", other));
  });

  it("gets only what differs from the versions that it has when it comes back", async () => {
    const { client, put, remove, door, clock } = await serveXds({
      stored: { "cds/a": cluster("a"), "cds/b": cluster("b"), "cds/c": cluster("c") },
    });
    const first = client.delta();
    first.send({ type: "cds" });
    const versions = versionsIn(await first.response(0));
    first.cancel();
    await put("cds/b", cluster("b", { connect_timeout: { seconds: 2 } }));
    await put("cds/d", cluster("d"));
    await until("the new cluster", () => door.report().types[0]?.served === 4);
    await remove("cds/c");
    await until("the removal", () => door.report().types[0]?.served === 3);
    const second = client.delta();
    second.send({ type: "cds", versions });
    const changed = await second.response(0);
    expect([namesIn(changed), changed.removed]).toEqual([["b", "d"], []]);
    // Behind what refers to clusters, which it may ask for now.
    second.send({ type: "cds", nonce: changed.nonce });
    const removal = await until("the removal", () => {
      clock.advance(25);
      return second.received[1];
    });
    expect([namesIn(removal), removal.removed]).toEqual([[], ["c"]]);
  });

  it("gets nothing when it comes back with everything, until something changes", async () => {
    const { client, put } = await serveXds({
      stored: { "cds/a": cluster("a"), "eds/web/1": { address: "10.0.0.1", port: 80 } },
    });
    const first = client.delta();
    first.send({ type: "cds" });
    first.send({ type: "eds", names: ["web", "none"] });
    await first.response(1);
    const [clusters = {}, services = {}] = first.received.map(versionsIn);
    first.cancel();
    const second = client.delta();
    second.send({ type: "cds", versions: clusters });
    second.send({ type: "eds", names: ["web", "none"], versions: services });
    second.send({ type: "lds" });
    expect((await second.response(0)).type).toBe("lds");
    await put("eds/web/2", { address: "10.0.0.2", port: 80 });
    expect(namesIn(await second.response(1))).toEqual(["web"]);
  });

  it("learns once that a name does not exist, and gets it when it is stored", async () => {
    const { client, put } = await serveXds();
    const stream = client.delta();
    stream.send({ type: "rds", names: ["r"] });
    expect(await stream.response(0)).toMatchObject({ resources: [], removed: ["r"] });
    await put("rds/r", {
      "@type": "type.googleapis.com/envoy.config.route.v3.RouteConfiguration",
      name: "r",
    });
    expect(namesIn(await stream.response(1))).toEqual(["r"]);
  });

  it("gets a resource again that it asks for again", async () => {
    const { client } = await serveXds({ stored: { "cds/a": cluster("a") } });
    const stream = client.delta();
    stream.send({ type: "cds", names: ["a"] });
    const { nonce } = await stream.response(0);
    stream.send({ type: "cds", names: ["a"], nonce });
    const again = await stream.response(1);
    expect(namesIn(again)).toEqual(["a"]);
    expect(again.nonce).not.toBe(nonce);
  });

  it("gets nothing more of what it has unsubscribed from", async () => {
    const { client, put } = await serveXds({
      stored: { "cds/a": cluster("a"), "cds/b": cluster("b") },
    });
    const stream = client.delta();
    stream.send({ type: "cds", names: ["a", "b"] });
    await stream.response(0);
    stream.send({ type: "cds", unsubscribe: ["a"] });
    stream.send({ type: "eds", names: ["web"] });
    await stream.response(1);
    await put("cds/a", cluster("a", { connect_timeout: { seconds: 2 } }));
    await put("cds/b", cluster("b", { connect_timeout: { seconds: 2 } }));
    expect(namesIn(await stream.response(2))).toEqual(["b"]);
  });

  it("keeps the names that it has when it no longer asks for all", async () => {
    const { client, put } = await serveXds({
      stored: { "cds/a": cluster("a"), "cds/b": cluster("b") },
    });
    const stream = client.delta();
    stream.send({ type: "cds" });
    await stream.response(0);
    stream.send({ type: "cds", names: ["a"] });
    expect(namesIn(await stream.response(1))).toEqual(["a"]);
    stream.send({ type: "cds", unsubscribe: ["*"] });
    stream.send({ type: "eds", names: ["web"] });
    await stream.response(2);
    await put("cds/b", cluster("b", { connect_timeout: { seconds: 2 } }));
    await put("cds/a", cluster("a", { connect_timeout: { seconds: 2 } }));
    expect(namesIn(await stream.response(3))).toEqual(["a"]);
  });

  it("gets again, or as removed, a name that it unsubscribes from while it asks for all", async () => {
    const { client } = await serveXds({ stored: { "cds/a": cluster("a") } });
    const stream = client.delta();
    stream.send({ type: "cds", names: ["*", "a", "b"] });
    expect(await stream.response(0)).toMatchObject({ removed: ["b"] });
    stream.send({ type: "cds", unsubscribe: ["a", "b"] });
    const answer = await stream.response(1);
    expect([namesIn(answer), answer.removed]).toEqual([["a"], ["b"]]);
  });

  it("gets nothing again of a name that it unsubscribes from together with all", async () => {
    const { client } = await serveXds({ stored: { "cds/a": cluster("a") } });
    const stream = client.delta();
    stream.send({ type: "cds", names: ["*", "a"] });
    await stream.response(0);
    stream.send({ type: "cds", unsubscribe: ["a", "*"] });
    stream.send({ type: "eds", names: ["web"] });
    expect((await stream.response(1)).type).toBe("eds");
  });

  it("gets what many changes came to while it did not read, not each of them", async () => {
    const { client, put, cachers } = await serveXds({ stored: { "cds/a": cluster("a") } });
    const stream = client.delta();
    stream.send({ type: "cds" });
    await stream.response(0);
    stream.pause();
    const changes = 40;
    let last = 0;
    for (let change = 1; change <= changes; change++) {
      last = await put("cds/a", cluster("a", { alt_stat_name: "x".repeat(200_000 + change) }));
      await cachers.get("cds")?.reachKnownRevision(last);
    }
    stream.resume();
    const isLast = ({ resources: [first] }: Received) =>
      first?.version?.startsWith(`${last}-`) === true;
    await until("the last change", () => stream.received.some(isLast));
    expect(stream.received.length).toBeLessThan(changes / 2);
  });

  it("is served by the service of one type, which needs no type in its requests", async () => {
    const { client } = await serveXds({
      stored: { "eds/web/1": { address: "10.0.0.1", port: 80 } },
    });
    const service = "/envoy.service.endpoint.v3.EndpointDiscoveryService";
    const stream = client.delta(`${service}/DeltaEndpoints`);
    stream.send({ names: ["web"] });
    expect(namesIn(await stream.response(0))).toEqual(["web"]);
  });
});
