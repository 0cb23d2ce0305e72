import { expect, onTestFinished, test } from "vitest";
import { etcdOfFile } from "../../etcd/etcd-of-file.ts";
import { encode, type Fields, Message } from "../../foreign/protobuf.ts";
import { RawGrpc, statusOf } from "../raw-grpc.ts";
import { startTier, type Tier } from "./limited-tiers.ts";

const etcdOf = etcdOfFile();

/** Calls etcd's API at a server, with these metadata. Resolves to gRPC's code and the message. */
function caller(url: string, metadata: Readonly<Record<string, string>>) {
  const client = new RawGrpc(url);
  onTestFinished(() => client.close());
  return async (path: string, fields: Fields): Promise<[code: string, message: Message]> => {
    const response = await client.unary(`/etcdserverpb.${path}`, encode(fields), metadata);
    return [statusOf(response).code, new Message(response.body.subarray(5))];
  };
}

test.each<Tier>(["root", "relay"])(
  "A limited caller of a namespace, at a %s, has its rights by the names that it sees",
  async (tier) => {
    const etcd = await etcdOf();
    // At a relay it is a prefix of the upstream's keys.
    const front = await startTier(tier, etcd.url, {}, { "etcd-api-namespace": ["/r/"] });
    const editor = caller(front.url, { authorization: "Bearer editor" });
    const inEtcd = caller(etcd.url, {});
    const [, granted] = await editor("Lease/LeaseGrant", { 1: 1_000 });
    const lease = granted.integer(2);
    expect((await editor("KV/Put", { 1: "pods/d/1", 2: "v", 3: lease }))[0]).toBe("0");
    expect((await editor("KV/Put", { 1: "/r/pods/d/2", 2: "v", 3: lease }))[0]).toBe("7");
    expect((await editor("KV/Put", { 1: "raw/d/1", 2: "v", 3: lease }))[0]).toBe("7");
    const [code, read] = await editor("Lease/LeaseTimeToLive", { 1: lease, 2: true });
    expect([code, read.all(5).map(String)]).toEqual(["0", ["pods/d/1"]]);
    const [, stored] = await inEtcd("Lease/LeaseTimeToLive", { 1: lease, 2: true });
    expect(stored.all(5).map(String)).toEqual(["/r/pods/d/1"]);

    // A key beyond the namespace that would be the caller's by its name within one.
    await inEtcd("KV/Put", { 1: "pods/d/1", 2: "v", 3: lease });
    expect((await editor("Lease/LeaseTimeToLive", { 1: lease, 2: true }))[0]).toBe("7");
    expect((await editor("Lease/LeaseRevoke", { 1: lease }))[0]).toBe("7");
    await inEtcd("KV/DeleteRange", { 1: "pods/d/1" });
    expect((await inEtcd("KV/Range", { 1: "/r/pods/d/1" }))[1].all(2)).toHaveLength(1);
    await expect.poll(async () => (await editor("Lease/LeaseRevoke", { 1: lease }))[0]).toBe("0");
    expect((await inEtcd("KV/Range", { 1: "/r/pods/d/1" }))[1].all(2)).toEqual([]);
  },
);
