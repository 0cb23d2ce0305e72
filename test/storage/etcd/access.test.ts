import { execFile } from "node:child_process";
import { mkdtemp, readFile, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { promisify } from "node:util";
import { afterEach, describe, expect, test } from "vitest";
import type { EtcdClientOptions } from "../../../src/etcd/client/etcd-client.ts";
import { EtcdStorage } from "../../../src/storage/etcd/etcd-storage.ts";
import type { WatchRequest } from "../../../src/storage/storage.ts";
import { type Etcd, startEtcd } from "../../etcd/etcd.ts";
import { etcdOfFile } from "../../etcd/etcd-of-file.ts";
import { Authority } from "../../identity/authority.ts";
import { bytes, linearizable } from "../conformance/opened.ts";
import { StreamReader } from "../conformance/stream-reader.ts";
import { clientOf, eventually } from "./source.ts";

const run = promisify(execFile);
const closings: (() => Promise<void>)[] = [];

afterEach(async () => {
  for (const close of closings.splice(0).reverse()) await close();
});

function storageOf(etcd: Etcd, options: Partial<EtcdClientOptions>): EtcdStorage {
  const client = clientOf(etcd, options);
  const storage = new EtcdStorage(client, { prefix: "p/" });
  closings.push(async () => {
    await storage.close();
    await client.close();
  });
  return storage;
}

const all: WatchRequest = { scope: { prefix: "" }, withPrevious: false, afterRevision: undefined };
const value = bytes("1");

/** Calls of every kind, by name. */
function calls(storage: EtcdStorage): [string, () => Promise<unknown>][] {
  return [
    ["get", () => storage.get({ key: "a", at: linearizable })],
    ["list", () => storage.list({ prefix: "", limit: 0, at: linearizable })],
    ["put", () => storage.put({ key: "a", value })],
    ["delete", () => storage.delete({ key: "a" })],
    ["currentRevision", () => storage.currentRevision()],
    ["watch", async () => Promise.reject(await new StreamReader(storage, all).end())],
  ];
}

describe("an etcd with authentication", () => {
  const auth = { username: "root", password: "secret" };
  const etcdOf = etcdOfFile({ rootPassword: auth.password });

  test("is read, written and watched with it", async () => {
    const storage = storageOf(await etcdOf(), { auth });
    const { revision } = await storage.put({ key: "a", value });
    const reader = new StreamReader(storage, { ...all, afterRevision: revision - 1 });
    expect((await reader.through(revision)).map(({ key }) => key)).toEqual(["a"]);
  });

  const strangers: [string, EtcdClientOptions["auth"], string][] = [
    ["the wrong password", { ...auth, password: "wrong" }, "authentication failed"],
    ["a user that does not exist", { ...auth, username: "nobody" }, "authentication failed"],
    ["no user", undefined, "user name is empty"],
  ];
  for (const [name, stranger, message] of strangers) {
    test(`denies everything to ${name}, and returns UPSTREAM_DENIED`, async () => {
      const storage = storageOf(await etcdOf(), { auth: stranger });
      for (const [name, call] of calls(storage)) {
        await expect(call(), name).rejects.toMatchObject({
          reason: "UPSTREAM_DENIED",
          message: expect.stringContaining(message),
        });
      }
    });
  }

  test("denies a service without a user, and says that it needs one", async () => {
    const storage = storageOf(await etcdOf(), {});
    await expect(storage.get({ key: "a", at: linearizable })).rejects.toMatchObject({
      message: expect.stringMatching(/which has no user: .*empty\. Set --etcd-username/),
    });
  });

  test("denies what the user's roles do not allow", async () => {
    const etcd = await etcdOf();
    const { token } = await gateway(etcd, "authenticate", { ...auth, name: "root" });
    await gateway(etcd, "user/add", { name: "guest", password: "guest" }, token);
    const storage = storageOf(etcd, { auth: { username: "guest", password: "guest" } });
    const ranges: Readonly<Record<string, string>> = {
      ...{ get: 'the key "p/a"', put: 'the key "p/a"', delete: 'the key "p/a"' },
      ...{ list: 'the keys with the prefix "p/"', watch: 'the keys with the prefix "p/"' },
    };
    for (const [name, call] of calls(storage)) {
      // The current revision is read by a key that no store needs to have.
      const range = ranges[name] ?? "the key ";
      await expect(call(), name).rejects.toMatchObject({
        reason: "UPSTREAM_DENIED",
        message: expect.stringMatching(`own user ${range}.*permission denied`),
      });
    }
  });

  test("gets a request with a new token when it has forgotten the old one", async () => {
    const etcd = await startEtcd({ rootPassword: auth.password });
    closings.push(() => etcd.stop());
    const storage = storageOf(etcd, { auth });
    const { revision } = await storage.put({ key: "a", value });
    const forget = async (): Promise<void> => {
      await etcd.kill(); // a token of the simple kind lives in the memory of its member
      await etcd.start();
    };
    // A write is the first to find out.
    await forget();
    const again = await eventually(() => storage.put({ key: "a", value }));
    expect(again.object.version).toBe(2);
    // A watch is the first to find out.
    await forget();
    const events = await eventually(async () => {
      const reader = new StreamReader(storage, { ...all, afterRevision: revision });
      if ((await reader.next()) === undefined) throw reader.stream.ended;
      return reader.events;
    });
    expect(events.map((event) => event.revision)).toEqual([again.revision]);
  });
});

async function gateway(
  etcd: Etcd,
  path: string,
  body: object,
  token?: string,
): Promise<{ token: string }> {
  const response = await fetch(`${etcd.url}/v3/auth/${path}`, {
    method: "POST",
    body: JSON.stringify(body),
    headers: token === undefined ? {} : { authorization: token },
    signal: AbortSignal.timeout(60_000),
  });
  if (!response.ok) throw new Error(await response.text());
  return (await response.json()) as { token: string };
}

describe("an etcd without authentication", () => {
  test("is used even if one is configured", async () => {
    const etcd = await startEtcd();
    closings.push(() => etcd.stop());
    const storage = storageOf(etcd, { auth: { username: "root", password: "secret" } });
    const { revision } = await storage.put({ key: "a", value });
    await new StreamReader(storage, { ...all, afterRevision: revision }).through(revision);
  });
});

describe("an etcd with TLS", () => {
  test("is trusted by its authority, and trusts the client by its certificate", async () => {
    const folder = await mkdtemp(join(tmpdir(), "etcd-tls-"));
    closings.push(() => rm(folder, { recursive: true, force: true }));
    const path = (name: string): string => join(folder, name);
    await makeAuthority(path);
    await makeCertificate(path, "server");
    await makeCertificate(path, "client");
    const etcd = await startEtcd({
      tls: { cert: path("server.pem"), key: path("server.key"), clientCa: path("ca.pem") },
    });
    closings.push(() => etcd.stop());
    const ca = await readFile(path("ca.pem"));
    const client = {
      cert: await readFile(path("client.pem")),
      key: await readFile(path("client.key")),
    };

    const storage = storageOf(etcd, { tls: { ca, client } });
    const { revision } = await storage.put({ key: "a", value });
    await new StreamReader(storage, { ...all, afterRevision: revision }).through(revision);

    const strangers: [string, EtcdClientOptions["tls"]][] = [
      ["without the authority", { client }],
      ["without a certificate", { ca }],
    ];
    for (const [name, tls] of strangers) {
      const stranger = storageOf(etcd, { tls, requestTimeoutMs: 10_000 });
      await expect(stranger.currentRevision(), name).rejects.toMatchObject({
        reason: "UPSTREAM_UNAVAILABLE",
      });
    }
  });
});

describe("The certificates for an etcd", () => {
  test("are replaced while they are in use, for new connections", async () => {
    const [authority, other] = [await Authority.create(), await Authority.create("CN=Other")];
    const folder = await mkdtemp(join(tmpdir(), "etcd-tls-"));
    closings.push(() => rm(folder, { recursive: true, force: true }));
    const path = (name: string): string => join(folder, name);
    const server = await authority.issueForServer();
    await writeFile(path("server.pem"), server.cert);
    await writeFile(path("server.key"), server.key);
    await writeFile(path("ca.pem"), authority.cert);
    const etcd = await startEtcd({
      tls: { cert: path("server.pem"), key: path("server.key"), clientCa: path("ca.pem") },
    });
    closings.push(() => etcd.stop());
    const tls = { ca: other.cert, client: await other.issue() };
    const client = clientOf(etcd, { tls, requestTimeoutMs: 10_000 });
    const storage = new EtcdStorage(client, { prefix: "p/" });
    closings.push(async () => {
      await storage.close();
      await client.close();
    });
    const unavailable = { reason: "UPSTREAM_UNAVAILABLE" };
    await expect(storage.currentRevision()).rejects.toMatchObject(unavailable);
    client.replaceAuthorities(authority.cert);
    await expect(storage.currentRevision()).rejects.toMatchObject(unavailable);
    const next = await authority.issue();
    expect(() => client.replaceCertificate({ ...next, key: server.key })).toThrow("can't be used");
    client.replaceCertificate(next);
    const { revision } = await eventually(() => storage.put({ key: "a", value }));
    const reader = new StreamReader(storage, { ...all, afterRevision: revision });
    await reader.through(revision);

    // Open connections continue: the watch gets what is written afterwards.
    client.replaceAuthorities(other.cert);
    client.replaceCertificate(await other.issue());
    const written = await storage.put({ key: "b", value });
    expect((await reader.through(written.revision)).map(({ key }) => key)).toEqual(["b"]);
  });
});

async function makeAuthority(path: (name: string) => string): Promise<void> {
  await run("openssl", [
    ..."req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 2".split(" "),
    ...["-subj", "/CN=test authority", "-keyout", path("ca.key"), "-out", path("ca.pem")],
  ]);
}

async function makeCertificate(path: (name: string) => string, name: string): Promise<void> {
  await writeFile(
    path(`${name}.ext`),
    "subjectAltName=IP:127.0.0.1\nextendedKeyUsage=serverAuth,clientAuth\n",
  );
  await run("openssl", [
    ..."req -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes".split(" "),
    ...["-subj", `/CN=${name}`, "-keyout", path(`${name}.key`), "-out", path(`${name}.csr`)],
  ]);
  await run("openssl", [
    ..."x509 -req -days 2 -CAcreateserial".split(" "),
    ...["-in", path(`${name}.csr`), "-CA", path("ca.pem"), "-CAkey", path("ca.key")],
    ...["-extfile", path(`${name}.ext`), "-out", path(`${name}.pem`)],
  ]);
}
