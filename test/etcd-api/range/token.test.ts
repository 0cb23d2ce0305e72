import { afterAll, expect, test } from "vitest";
import { etcdOfFile } from "../../etcd/etcd-of-file.ts";
import { encode, type Fields, Message } from "../../foreign/protobuf.ts";
import { frontOfFile, metricOf, startFront, until, untilReady } from "../front.ts";
import { RawGrpc, statusOf } from "../raw-grpc.ts";

const rangePath = "/etcdserverpb.KV/Range";
const grantPath = "Auth/RoleGrantPermission";
const revokePath = "Auth/RoleRevokePermission";
const ann = { 1: "/a/ann/", 2: "/a/ann0" };

const etcdOf = etcdOfFile();
const clients: RawGrpc[] = [];
/** With authentication, a user root, a user ann with the range of her name, and a token of each. */
const worldOf = frontWorld();

afterAll(() => {
  for (const client of clients) client.close();
});

function frontWorld() {
  const frontOf = frontOfFile(async () =>
    startFront([(await etcdOf()).url], {
      ...{ resource: ["a=/a/"], "watch-fanout-api": ["off"] },
      ...{ "etcd-username": ["root"], "etcd-password": ["password"] },
    }),
  );
  let made: Promise<Awaited<ReturnType<typeof make>>> | undefined;
  const make = async () => {
    const direct = new RawGrpc((await etcdOf()).url);
    const call = async (path: string, fields: Fields, token?: string): Promise<Message> => {
      const metadata = token === undefined ? {} : { token };
      const response = await direct.unary(`/etcdserverpb.${path}`, encode(fields), metadata);
      expect(statusOf(response)).toMatchObject({ code: "0" });
      return new Message(response.body.subarray(5));
    };
    await call("Auth/UserAdd", { 1: "root", 2: "password" });
    await call("Auth/UserGrantRole", { 1: "root", 2: "root" });
    await call("Auth/AuthEnable", {});
    const root = (await call("Auth/Authenticate", { 1: "root", 2: "password" })).text(2);
    await call("Auth/RoleAdd", { 1: "ann" }, root);
    await call("Auth/UserAdd", { 1: "ann", 2: "a" }, root);
    await call("Auth/UserGrantRole", { 1: "ann", 2: "ann" }, root);
    const grant = encode({ 1: 0, 2: ann[1], 3: ann[2] });
    await call(grantPath, { 1: "ann", 2: grant }, root);
    const token = (await call("Auth/Authenticate", { 1: "ann", 2: "a" })).text(2);
    for (const key of ["/a/ann/1", "/a/ann/2", "/a/bob/1"]) {
      await call("KV/Put", { 1: key, 2: `of ${key}` }, root);
    }
    const front = await frontOf();
    await untilReady(front);
    const cached = new RawGrpc(front.url);
    clients.push(direct, cached);
    const count = (): Promise<number> =>
      metricOf(front, "watch_fanout_etcd_api_ranges_total", "cache");
    // The first response of etcd shows its header.
    await cached.unary(rangePath, encode(ann), { token });
    return { direct, cached, root, token, count, call, grant };
  };
  return () => {
    made ??= make();
    return made;
  };
}

test("A Range with a token has etcd's answer, from the cache where etcd permits it (etcd issue 22065)", async () => {
  const { direct, cached, root, token, count } = await worldOf();
  const requests: readonly Fields[] = [
    ann,
    { ...ann, 7: true },
    { ...ann, 9: true },
    { ...ann, 3: 1, 5: 2 },
    { 1: "/a/ann/1" },
    { 1: "/a/ann/9" },
    { 1: "/a/bob/1" },
    { 1: "/a/bob/1", 7: true },
    { 1: "/a/bob/1", 9: true },
    { 1: "/a/", 2: "/a0" },
    { 1: "/a/ann/", 2: "/a/ann1" },
    { 1: "/a/ann/", 2: Buffer.of(0) },
    { 1: "/a/anm", 2: "/a/ann/1" },
    { 1: "/a/ann/1", 4: 1 },
    { 1: "/a/ann/1", 4: 99_999 },
  ];
  const permitted = new Set<number>();
  for (let round = 0; round < 2; round++) {
    for (const credential of [token, root, "none.1"]) {
      for (const [index, fields] of requests.entries()) {
        const before = await count();
        const [own, etcds] = await Promise.all(
          [cached, direct].map((client) =>
            client.unary(rangePath, encode(fields), { token: credential }),
          ),
        );
        const what = `${credential} ${JSON.stringify(fields)}`;
        expect(own && statusOf(own), what).toEqual(etcds && statusOf(etcds));
        expect(own?.body, what).toEqual(etcds?.body);
        const isCached = (await count()) > before;
        if (isCached && credential === token) permitted.add(index);
        if (etcds === undefined || statusOf(etcds).code !== "0") expect(isCached, what).toBe(false);
        if (credential === "none.1") expect(isCached).toBe(false);
      }
    }
  }
  // Past revisions may come from either.
  const isNewest = (index: number): boolean => requests[index]?.[4] === undefined;
  expect([...permitted].filter(isNewest).sort()).toEqual([0, 1, 2, 3, 4, 5]);
});

test("A right that is withdrawn through here is lost at once, and one withdrawn elsewhere soon", async () => {
  const { cached, root, token, count, call, grant } = await worldOf();
  const codeOf = async (): Promise<string> =>
    statusOf(await cached.unary(rangePath, encode(ann), { token })).code;
  const revoked = { 1: "ann", 2: ann[1], 3: ann[2] };
  const withRoot = { token: root };
  for (let round = 0; round < 3; round++) {
    const before = await count();
    expect([await codeOf(), await codeOf()]).toEqual(["0", "0"]);
    expect(await count()).toBe(before + 2);
    await cached.unary(`/etcdserverpb.${revokePath}`, encode(revoked), withRoot);
    expect(await codeOf()).toBe("7");
    await cached.unary(`/etcdserverpb.${grantPath}`, encode({ 1: "ann", 2: grant }), withRoot);
  }
  expect(await codeOf()).toBe("0");
  await call(revokePath, revoked, root);
  // The permission was asked for before. That it is kept for a second is exact in read-permissions.test.ts, by a clock of its own.
  await until(async () => (await codeOf()) === "7");
  for (let i = 0; i < 20; i++) expect(await codeOf()).toBe("7");
});
