import { status } from "@grpc/grpc-js";
import { describe, expect, it } from "vitest";
import { encodeAny } from "../../src/xds/response.ts";
import { until } from "../testing/patient-until.ts";
import { cluster, type Received, urlOf } from "./discovery-client.ts";
import { serveXds } from "./serving.ts";

function namesIn({ resources }: Received): string[] {
  return resources.map(({ name = "" }) => name).sort();
}

const cdsType = "type.googleapis.com/envoy.config.cluster.v3.Cluster";

/** An Any with this content. */
function anyOfBytes(url: string, content: Buffer): Buffer {
  const [urlBytes, head] = [Buffer.from(url), Buffer.from([0x12, content.length])];
  return Buffer.concat([Buffer.from([0x0a, urlBytes.length]), urlBytes, head, content]);
}

/** An instance whose metadata has arrays within arrays. */
function nestedMetadata(depth: number): string {
  const nested = "[".repeat(depth) + "]".repeat(depth);
  return `{"address":"10.0.0.2","port":80,"metadata":{"a":${nested}}}`;
}
/** A cluster with the name "bad" and an unknown field whose number has more than 64 bits. */
const clusterBeyond64Bits = encodeAny(
  cdsType,
  Buffer.from([0x0a, 3, ...Buffer.from("bad"), 0xc0, 0x3e, ...Array<number>(9).fill(0xff), 0x7f]),
);

/** Arrays in one another, more than a message may have. */
const deep = JSON.parse(`${"[".repeat(150)}${"]".repeat(150)}`) as unknown;

describe("A stored value", () => {
  it.each<[string, Buffer | string | object, string]>([
    ["of another name", cluster("other"), 'named "other"'],
    [
      "of another type",
      { "@type": "type.googleapis.com/envoy.config.listener.v3.Listener", name: "bad" },
      'not "type.googleapis.com/envoy.config.cluster',
    ],
    [
      "of a type that is not known",
      { "@type": "type.googleapis.com/some.Other" },
      "of a known type",
    ],
    [
      "with a field that its type does not have",
      { "@type": cdsType, name: "bad", colour: "red" },
      "colour",
    ],
    ["that is no JSON", "{ name", "in JSON"],
    ["of other bytes", Buffer.from([0xff, 0x01, 0x02]), "neither JSON nor"],
    ["that is cut off", cluster("bad", { alt_stat_name: "x".repeat(40) }).subarray(0, 70), ""],
    ["that is empty", "", 'type is ""'],
    [
      "whose name is not UTF-8",
      anyOfBytes(cdsType, Buffer.from([0x0a, 0x03, 0x62, 0xff, 0x64])),
      "utf-8",
    ],
    ["with a number of more than 64 bits", clusterBeyond64Bits, "more than 64 bits"],
  ])("%s is not served, and the last valid one stays", async (_, value, why) => {
    const { client, put, door, lines } = await serveXds({
      stored: { "cds/bad": cluster("bad"), "cds/good": cluster("good") },
    });
    const stream = client.delta();
    stream.send({ type: "cds" });
    expect(namesIn(await stream.response(0))).toEqual(["bad", "good"]);
    await put("cds/bad", value);
    await put("cds/bad", value);
    await put("cds/good", cluster("good", { connect_timeout: { seconds: 1 } }));
    expect(namesIn(await stream.response(1))).toEqual(["good"]);
    const [cds] = door.report().types;
    expect(cds?.invalid).toBe(1);
    expect(cds?.firstInvalid[0]).toEqual({ key: "bad", why: expect.stringContaining(why) });
    const logged = lines.logged.filter((line) => line.includes("not served"));
    expect(logged.map((line) => (JSON.parse(line) as { key: string }).key)).toEqual(["bad"]);
    await put("cds/bad", cluster("bad", { connect_timeout: { seconds: 1 } }));
    expect(namesIn(await stream.response(2))).toEqual(["bad"]);
    expect(door.report().types[0]?.invalid).toBe(0);
  });

  it.each([
    ["without a port", { address: "10.0.0.1" }],
    ["with the name of a host", { address: "web.local", port: 80 }],
    ["with a field that it does not have", { address: "10.0.0.1", port: 80, wieght: 2 }],
    ["of etcd without a port", { Op: 0, Addr: "10.0.0.1" }],
    ["of etcd that is a deletion", { Op: 1, Addr: "10.0.0.1:80" }],
    ["with metadata that is nested too deeply", nestedMetadata(100)],
    ["with metadata that is nested far too deeply", nestedMetadata(100_000)],
    ["with metadata nested too deeply", { address: "10.0.0.1", port: 80, metadata: { deep } }],
    ["of etcd with metadata nested too deeply", { Addr: "10.0.0.1:80", Metadata: { deep } }],
    [
      "nested beyond the stack",
      `{"address":"10.0.0.1","port":80,"metadata":{"a":${"[".repeat(8_000)}${"]".repeat(8_000)}}}`,
    ],
    ["with too large a number", `{"address":"10.0.0.1","port":80,"metadata":{"a":1e999}}`],
    ["of more than 16 KiB", { address: "10.0.0.1", port: 80, metadata: { a: "x".repeat(16_384) } }],
  ])("of an instance %s is not served, and the others are", async (_, value) => {
    const { client, put, door } = await serveXds({
      stored: { "eds/web/1": { address: "10.0.0.1", port: 80 }, "eds/web/2": value },
    });
    const stream = client.delta();
    stream.send({ type: "eds", names: ["web"] });
    expect(namesIn(await stream.response(0))).toEqual(["web"]);
    expect(door.report().types[1]).toMatchObject({ instances: 1, invalid: 1 });
    await put("eds/web/2", { address: "10.0.0.2", port: 80 });
    await stream.response(1);
    expect(door.report().types[1]).toMatchObject({ instances: 2, invalid: 0 });
  });
});

describe("A secret", () => {
  it.each([
    ["without its message", `"generic_secret":{"secret":"hunter2"}`, "DataSource"],
    [
      "of another type",
      `"generic_secret":{"secret":{"inline_string":["hunter2"]}}`,
      "inline_string",
    ],
    ["that is no JSON", `"generic_secret":{"secret":{"inline_string":hunter2}}`, "parsed"],
    ["in an unknown field", `"hunter2":1`, "Secret"],
  ])(
    "%s is not served, and no part of it is in the log or on the status page",
    async (_, fields, why) => {
      const { door, lines } = await serveXds({
        types: ["sds"],
        stored: {
          "sds/a": `{"@type":"${urlOf("sds")}","name":"a",${fields}}`,
        },
      });
      await until("the invalid value", () => door.report().types[0]?.invalid === 1);
      const [report] = door.report().types;
      expect(report?.firstInvalid[0]?.why).toContain(why);
      expect(JSON.stringify(report)).not.toContain("hunter2");
      expect(lines.logged.join()).toContain("not served");
      expect(lines.logged.join()).not.toContain("hunter2");
    },
  );
});

describe("A response that the client refuses", () => {
  it("is logged once, counted each time and shown, and not sent again until it changes", async () => {
    const { client, put, door, lines } = await serveXds({
      stored: { "cds/a": cluster("a"), "cds/b": cluster("b") },
    });
    const streams = [client.delta(), client.delta()];
    for (const [index, stream] of streams.entries()) {
      stream.send({ type: "cds", names: ["a"], node: `node-${index}` });
      const { nonce } = await stream.response(0);
      stream.send({ type: "cds", nonce, refusal: "no such cluster type" });
    }
    await until("two refusals", () => door.report().refused.cds === 2);
    expect(door.report().refusals).toEqual([
      {
        ...{ type: "cds", message: "no such cluster type", count: 2 },
        resources: [expect.stringMatching(/^a@\d+-/)],
        ...{ identity: "anonymous", node: "node-1" },
      },
    ]);
    expect(lines.logged.filter((line) => line.includes("refuses")).length).toBe(1);
    const [stream] = streams;
    stream?.send({ type: "cds", names: ["b"] });
    expect(await stream?.response(1)).toMatchObject({ resources: [{ name: "b" }] });
    await put("cds/a", cluster("a", { connect_timeout: { seconds: 1 } }));
    expect(await stream?.response(2)).toMatchObject({ resources: [{ name: "a" }] });
  });
});

describe("A stream with a request", () => {
  it.each([
    ["that names nothing by an empty text", { type: "cds", names: [""] }, "A name is empty"],
    ["of another type than that of its service", { type: "cds" }, "aggregated discovery"],
  ])("%s ends with INVALID_ARGUMENT", async (_, request, text) => {
    const { client } = await serveXds();
    const service = "/envoy.service.listener.v3.ListenerDiscoveryService";
    const isOfService = text.includes("aggregated");
    const stream = isOfService ? client.state(`${service}/StreamListeners`) : client.state();
    stream.send(request);
    expect(await stream.end()).toMatchObject({
      code: status.INVALID_ARGUMENT,
      details: expect.stringContaining(text),
    });
  });

  it("with more names than a stream may have ends with RESOURCE_EXHAUSTED", async () => {
    const { client } = await serveXds({ server: { limits: { maxSubscribeWatches: 3 } } });
    const stream = client.delta();
    stream.send({ type: "eds", names: ["a", "b"] });
    await stream.response(0);
    stream.send({ type: "eds", names: ["c", "d"] });
    expect(await stream.end()).toMatchObject({ code: status.RESOURCE_EXHAUSTED });
  });
});
