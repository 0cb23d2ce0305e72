import { expect, test } from "vitest";
import { etcdOfFile } from "../../etcd/etcd-of-file.ts";
import { encode, Message } from "../../foreign/protobuf.ts";
import { type Front, startFront, until } from "../front.ts";
import { startGrpcProxy } from "../grpc-proxy.ts";
import { RawGrpc, statusOf } from "../raw-grpc.ts";

const etcdOf = etcdOfFile();
const prefix = "/proxies";

/** The client URLs that MemberList names, and whether each member has a name. */
async function membersOf(url: string): Promise<readonly string[]> {
  const client = new RawGrpc(url);
  const response = await client.unary("/etcdserverpb.Cluster/MemberList", Buffer.of());
  client.close();
  expect(statusOf(response).code).toBe("0");
  const members = new Message(response.body.subarray(5)).all(2).map((each) => new Message(each));
  expect(members.every((member) => (member.bytes(2)?.length ?? 0) > 0)).toBe(true);
  return members.flatMap((member) => member.all(4).map(String)).sort();
}

interface Registered {
  readonly key: string;
  readonly value: Record<string, unknown>;
  readonly lease: string;
}

async function registeredIn(url: string): Promise<readonly Registered[]> {
  const client = new RawGrpc(url);
  const request = encode({ 1: `${prefix}/`, 2: `${prefix}0` });
  const { body } = await client.unary("/etcdserverpb.KV/Range", request);
  client.close();
  return new Message(body.subarray(5)).all(2).map((each) => {
    const kv = new Message(each);
    const value = JSON.parse(String(kv.bytes(5))) as Record<string, unknown>;
    return { key: String(kv.bytes(1)), value, lease: String(kv.integer(6)) };
  });
}

function frontAt(etcdUrl: string, url: string): Promise<Front> {
  const own = { "advertise-client-url": [url], "resolver-prefix": [prefix], "resolver-ttl": ["5"] };
  return startFront([etcdUrl], own);
}

test("Replicas and the real grpc-proxy name one another, and write the same; one that stops is gone", async ({
  onTestFinished,
}) => {
  const etcd = await etcdOf();
  const own = ["http://10.0.0.1:2379", "http://10.0.0.2:2379"];
  const [first, second] = await Promise.all(own.map((url) => frontAt(etcd.url, url)));
  if (first === undefined || second === undefined) throw new Error("There are two.");
  onTestFinished(() => first.stop());
  const proxy = await startGrpcProxy(etcd, `--resolver-prefix=${prefix}`, "--resolver-ttl=5");
  const everyone = [...own, proxy.replace("http://", "")].sort();
  for (const url of [first.url, second.url, proxy]) {
    await until(async () => (await membersOf(url)).join() === everyone.join());
  }
  const registered = await registeredIn(etcd.url);
  const [name] = registered.map(({ value }) => value["Metadata"]);
  for (const { key, value, lease } of registered) {
    const url = key.slice(prefix.length + 1);
    expect(everyone).toContain(url);
    expect(value).toEqual({ Op: 0, Addr: url, Metadata: name });
    expect(lease).not.toBe("0");
  }
  await second.stop();
  expect((await registeredIn(etcd.url)).map(({ key }) => key)).not.toContain(`${prefix}/${own[1]}`);
  await until(async () => (await membersOf(first.url)).length === 2);
});

test("A replica whose lease was lost is registered again", async ({ onTestFinished }) => {
  const etcd = await etcdOf();
  const url = "http://10.0.0.3:2379";
  const front = await frontAt(etcd.url, url);
  onTestFinished(() => front.stop());
  const ofFront = async (): Promise<Registered | undefined> =>
    (await registeredIn(etcd.url)).find(({ key }) => key === `${prefix}/${url}`);
  await until(async () => (await ofFront()) !== undefined);
  const before = await ofFront();
  const client = new RawGrpc(etcd.url);
  onTestFinished(() => client.close());
  const lease = BigInt(before?.lease ?? 0);
  const revoked = await client.unary("/etcdserverpb.Lease/LeaseRevoke", encode({ 1: lease }));
  expect(statusOf(revoked).code).toBe("0");
  await until(async () => (await ofFront()) !== undefined);
  expect((await ofFront())?.lease).not.toBe(before?.lease);
});

test("A thousand registered services are named, and no more", async ({ onTestFinished }) => {
  const etcd = await etcdOf();
  const client = new RawGrpc(etcd.url);
  onTestFinished(() => client.close());
  const put = async (i: number): Promise<void> => {
    const value = JSON.stringify({ Op: 0, Addr: `10.1.0.${i}`, Metadata: '{"name":"many"}' });
    const request = encode({ 1: `/many/${i}`, 2: value });
    expect(statusOf(await client.unary("/etcdserverpb.KV/Put", request)).code).toBe("0");
  };
  await Promise.all(Array.from({ length: 1_010 }, (_, i) => put(i)));
  const own = { "advertise-client-url": ["http://10.0.0.4:2379"], "resolver-prefix": ["/many"] };
  const front = await startFront([etcd.url], own);
  onTestFinished(() => front.stop());
  await until(async () => (await membersOf(front.url)).length > 1);
  expect(await membersOf(front.url)).toHaveLength(1_000);
});
