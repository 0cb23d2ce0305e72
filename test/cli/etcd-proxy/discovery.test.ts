import { createSocket } from "node:dgram";
import { Resolver } from "node:dns/promises";
import { once } from "node:events";
import { expect, onTestFinished, test } from "vitest";
import {
  type Discovery,
  discoverMembers,
  discoveryOf,
  proxyOptions,
} from "../../../src/cli/etcd-proxy/proxy-options.ts";

/** The data of an SRV record: priority, weight, port, name. */
type Record = readonly [number, number, number, string];

function encodedName(name: string): Buffer {
  const labels = name.split(".").map((label) => {
    return Buffer.concat([Buffer.of(label.length), Buffer.from(label)]);
  });
  return Buffer.concat([...labels, Buffer.of(0)]);
}

/** A name server on a port of its own, with these SRV records, and a resolver that asks it. */
async function resolverOf(
  records: Readonly<{ [name: string]: readonly Record[] }>,
): Promise<Resolver> {
  const server = createSocket("udp4");
  server.on("message", (query, { port, address }) => {
    const labels: string[] = [];
    let at = 12;
    for (let size = query.readUInt8(at); size > 0; size = query.readUInt8(at)) {
      labels.push(query.toString("latin1", at + 1, at + 1 + size));
      at += 1 + size;
    }
    const found = records[labels.join(".")] ?? [];
    const answers = found.map(([priority, weight, to, name]) => {
      const target = encodedName(name);
      const head = Buffer.alloc(18);
      // The name of the question; type SRV, class IN, 1 s.
      head.writeUInt16BE(0xc00c, 0);
      head.writeUInt16BE(33, 2);
      head.writeUInt16BE(1, 4);
      head.writeUInt32BE(1, 6);
      head.writeUInt16BE(6 + target.length, 10);
      head.writeUInt16BE(priority, 12);
      head.writeUInt16BE(weight, 14);
      head.writeUInt16BE(to, 16);
      return Buffer.concat([head, target]);
    });
    const header = Buffer.from(query.subarray(0, 12));
    // A response, without an error or with NXDOMAIN, and without additional records.
    header.writeUInt16BE(found.length > 0 ? 0x8180 : 0x8183, 2);
    header.writeUInt16BE(found.length, 6);
    header.writeUInt16BE(0, 10);
    server.send(Buffer.concat([header, query.subarray(12, at + 5), ...answers]), port, address);
  });
  server.bind(0, "127.0.0.1");
  await once(server, "listening");
  onTestFinished(() => void server.close());
  const resolver = new Resolver({ timeout: 60_000, tries: 1 });
  resolver.setServers([`127.0.0.1:${server.address().port}`]);
  return resolver;
}

const discovery: Discovery = { domain: "example.test", serviceName: undefined, isInsecure: false };

test("members are those of the SRV records with TLS, by priority, then by weight", async () => {
  const resolver = await resolverOf({
    "_etcd-client-ssl._tcp.example.test": [
      [2, 9, 2379, "c.example.test"],
      [1, 1, 2379, "b.example.test"],
      [1, 5, 4001, "a.example.test"],
    ],
    "_etcd-client._tcp.example.test": [[0, 0, 2379, "plain.example.test"]],
  });
  const secure = [
    "https://a.example.test:4001",
    "https://b.example.test:2379",
    "https://c.example.test:2379",
  ];
  expect(await discoverMembers(discovery, resolver)).toEqual(secure);
  expect(await discoverMembers({ ...discovery, isInsecure: true }, resolver)).toEqual(secure);
});

test("members without TLS are used only if that is allowed, also those of a service of another name", async () => {
  const resolver = await resolverOf({
    "_etcd-client-blue._tcp.example.test": [[0, 0, 2379, "a.example.test"]],
  });
  const named = { ...discovery, serviceName: "blue" };
  expect(await discoverMembers({ ...named, isInsecure: true }, resolver)).toEqual([
    "http://a.example.test:2379",
  ]);
  await expect(discoverMembers(named, resolver)).rejects.toThrow(
    '"example.test" has only members without TLS. Use --insecure-discovery if that is right.',
  );
  await expect(discoverMembers(discovery, resolver)).rejects.toThrow(
    /^"example.test" has no members: .*ENOTFOUND _etcd-client-ssl._tcp.example.test; /,
  );
});

test("the flags of discovery say what is looked up", () => {
  expect(discoveryOf({ endpoints: ["a"], "discovery-srv": [""] })).toBeUndefined();
  const typed = { "discovery-srv": ["example.test"], "discovery-srv-name": ["blue"] };
  expect(discoveryOf(typed)).toEqual({ ...discovery, serviceName: "blue" });
  expect(discoveryOf({ ...typed, "insecure-discovery": ["true"] })?.isInsecure).toBe(true);
  const { flags, problems, warnings } = proxyOptions({ ...typed, endpoints: ["https://a:1"] });
  expect([flags.etcd, problems, warnings]).toEqual([["https://a:1"], [], []]);
});
