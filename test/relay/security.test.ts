import { renameSync, writeFileSync } from "node:fs";
import { expect, onTestFinished, test } from "vitest";
import { tokenDigest } from "../../src/identity/token-file.ts";
import { Relay as Network } from "../faults/relay.ts";
import { Authority } from "../identity/authority.ts";
import { Tier, temporaryFiles, until } from "./tiers.ts";

/** Replaces a file at once. */
function replace(path: string, content: string | Buffer): void {
  writeFileSync(`${path}.new`, content);
  renameSync(`${path}.new`, path);
}

test("A relay authenticates by certificate and token, and applies new ones without an interruption.", async () => {
  const authority = await Authority.create();
  const [server, first, second] = [
    await authority.issueForServer(),
    await authority.issue({ cn: "first" }),
    await authority.issue({ cn: "second" }),
  ];
  const files = temporaryFiles({
    ...{ ca: authority.cert.toString(), cert: server.cert.toString(), key: server.key.toString() },
    ...{ "relay-cert": first.cert.toString(), "relay-key": first.key.toString() },
    tokens: `sha256:${tokenDigest("one")} relay\nsha256:${tokenDigest("two")} relay\n`,
    "relay-token": "one\n",
  });
  const root = await Tier.start({
    ...{ "tls-cert": files.cert, "tls-key": files.key, "tls-client-ca": files.ca },
    "token-file": files.tokens,
  });
  const network = await Network.to(root.port);
  const relay = await Tier.relay(`127.0.0.1:${network.port}`, {
    ...{ "upstream-tls-ca": files.ca, "upstream-tls-cert": files["relay-cert"] },
    ...{ "upstream-tls-key": files["relay-key"], "upstream-token-file": files["relay-token"] },
  });
  onTestFinished(async () => {
    await relay.stop();
    await root.stop();
    await network.close();
  });
  const client = relay.client();
  const put = await client.put("default", "a", Buffer.from("1"));
  const watch = client.watch("default", { afterRevision: put.revision });
  await watch.next();
  replace(files["relay-token"], "two\n");
  replace(files["relay-cert"], second.cert);
  replace(files["relay-key"], second.key);
  const applied = 'watch_fanout_file_reloads_total{file="upstream-certificate",result="applied"}';
  await until(async () => (await relay.metrics()).includes(`${applied} 1`));
  await client.put("default", "b", Buffer.from("1"));
  expect((await watch.next()).value?.events.map(({ object }) => object.key)).toEqual(["b"]);
  expect(await relay.metric("watch_fanout_upstream_reconnects_total")).toBe(0);
  // A new connection has the new ones: the old token is no longer valid.
  replace(files.tokens, `sha256:${tokenDigest("two")} relay\n`);
  await until(async () => {
    const reloads = 'watch_fanout_file_reloads_total{file="token-file",result="applied"}';
    return (await root.metrics()).includes(`${reloads} 1`);
  });
  network.cut();
  const { revision } = await client.put("default", "c", Buffer.from("1"));
  const { value: batch } = await watch.next();
  expect(batch?.revision).toBe(revision);
});
