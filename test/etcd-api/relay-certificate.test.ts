import { renameSync, writeFileSync } from "node:fs";
import { expect, onTestFinished, test } from "vitest";
import { etcdOfFile } from "../etcd/etcd-of-file.ts";
import { Relay as Network } from "../faults/relay.ts";
import { encode, Message } from "../foreign/protobuf.ts";
import { Authority } from "../identity/authority.ts";
import { temporaryFiles } from "../relay/tiers.ts";
import { metricOf, startFront, startRelay, until, untilReady } from "./front.ts";
import { RawGrpc, statusOf } from "./raw-grpc.ts";

const etcdOf = etcdOfFile();

/** Replaces a file at once. */
function replace(path: string, content: string | Buffer): void {
  writeFileSync(`${path}.new`, content);
  renameSync(`${path}.new`, path);
}

test("A relay of etcd's API connects with a replaced certificate, of another authority, and its watches continue", async () => {
  const [old, next] = [await Authority.create(), await Authority.create("CN=Next")];
  const server = await old.issueForServer();
  const [first, second] = [await old.issue({ cn: "relay" }), await next.issue({ cn: "relay" })];
  const files = temporaryFiles({
    ...{ ca: old.cert.toString(), clients: old.cert.toString() },
    ...{ cert: server.cert.toString(), key: server.key.toString() },
    ...{ "relay-cert": first.cert.toString(), "relay-key": first.key.toString() },
  });
  const root = await startFront([(await etcdOf()).url], {
    resource: ["all=/"],
    ...{ "tls-cert": [files.cert], "tls-key": [files.key], "tls-client-ca": [files.clients] },
  });
  const network = await Network.to(Number(root.address.split(":")[1]));
  const relay = await startRelay([`127.0.0.1:${network.port}`], {
    ...{ "upstream-tls-ca": [files.ca], "upstream-tls-cert": [files["relay-cert"]] },
    "upstream-tls-key": [files["relay-key"]],
  });
  onTestFinished(async () => {
    await relay.stop();
    await root.stop();
    await network.close();
  });
  await untilReady(relay);
  const client = new RawGrpc(relay.url);
  onTestFinished(() => client.close());
  const put = async (key: string): Promise<string> =>
    statusOf(await client.unary("/etcdserverpb.KV/Put", encode({ 1: key }))).code;
  // The watch comes from the cache of the relay, the keepalives from etcd by its upstream.
  const cached = client.open("/etcdserverpb.Watch/Watch");
  cached.send(encode({ 1: encode({ 1: "/a", 2: "/b" }) }));
  const keepalives = client.open("/etcdserverpb.Lease/LeaseKeepAlive");
  keepalives.send(encode({ 1: 1 }));
  await Promise.all([cached.untilMessages(1), keepalives.untilMessages(1)]);
  replace(files["relay-cert"], second.cert);
  replace(files["relay-key"], second.key);
  const applied = (file: string) => `file="${file}",result="applied"`;
  const reloads = async (front: typeof root, file: string): Promise<boolean> =>
    (await (await fetch(`${front.admin}/metrics`)).text()).includes(
      `watch_fanout_file_reloads_total{${applied(file)}} 1`,
    );
  await until(() => reloads(relay, "upstream-certificate"));
  expect(await put("/a/1")).toBe("0");
  keepalives.send(encode({ 1: 1 }));
  await Promise.all([cached.untilMessages(2), keepalives.untilMessages(2)]);
  expect(await metricOf(relay, "watch_fanout_upstream_reconnects_total", "all")).toBe(0);
  // The first certificate is no longer accepted. Connections that are lost are made again with the second.
  replace(files.clients, next.cert);
  await until(() => reloads(root, "client-ca"));
  network.cut();
  let code = "";
  await until(async () => {
    code = await put("/a/2");
    return code !== "14";
  });
  expect(code).toBe("0");
  const events = async (count: number): Promise<string[]> =>
    (await cached.untilMessages(count)).flatMap((bytes) =>
      new Message(bytes).all(11).map((event) => String(new Message(event).message(2)?.bytes(1))),
    );
  expect(await events(3)).toEqual(["/a/1", "/a/2"]);
});
