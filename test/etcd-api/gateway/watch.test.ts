import { request as httpRequest } from "node:http";
import { describe, expect, onTestFinished, test } from "vitest";
import { besideEtcdOfFile, watchesServedBy } from "../beside-etcd.ts";
import { until } from "../front.ts";
import { connectTo, requestOf, watchByHttp1, watchByHttp2 } from "./http.ts";

const beside = besideEtcdOfFile({
  resource: ["things=/things/"],
  "watch-progress-notify-interval": ["1s"],
});

const base64 = (text: string): string => Buffer.from(text).toString("base64");

async function put(url: string, key: string, value: string): Promise<void> {
  const body = JSON.stringify({ key: base64(key), value: base64(value) });
  expect((await fetch(`${url}/v3/kv/put`, { method: "POST", body })).status).toBe(200);
}

describe.each([
  ["HTTP/1.1", watchByHttp1],
  ["HTTP/2", watchByHttp2],
])("A watch by %s", (_, watch) => {
  test.each([
    ["a cached key", "/things/a", "cache"],
    ["a key that no cache has", "elsewhere", "etcd"],
  ])("of %s has the events in the form of etcd's", async (_name, key, source) => {
    const { front, etcd } = await beside();
    const before = await watchesServedBy(front, source);
    const body = JSON.stringify({ create_request: { key: base64(key), prevKv: true } });
    const [own, its] = [await watch(front.url, body), await watchByHttp1(etcd.url, body)];
    expect(own.status).toBe(200);
    const created = await own.next();
    expect(created.result?.created).toBe(true);
    expect({ ...created.result, header: 0 }).toEqual({ ...(await its.next()).result, header: 0 });
    expect(await watchesServedBy(front, source)).toBe(before + 1);
    await put(etcd.url, key, "1");
    await put(front.url, key, "");
    const key64 = base64(key);
    await fetch(`${front.url}/v3/kv/deleterange`, { method: "POST", body: `{"key":"${key64}"}` });
    for (let event = 0; event < 3; event++) expect(await own.next()).toEqual(await its.next());
    await own.cancel();
    await until(async () => (await watchesServedBy(front, source)) === before);
  });

  test("from a revision in the past, and with a fragment of the events", async () => {
    const { front, etcd } = await beside();
    await put(front.url, "/things/past", "1");
    const request = { key: base64("/things/past"), start_revision: 1, filters: ["NODELETE"] };
    const body = JSON.stringify({ create_request: { ...request, fragment: true } });
    const [own, its] = [await watch(front.url, body), await watchByHttp1(etcd.url, body)];
    expect((await own.next()).result?.created).toBe((await its.next()).result?.created);
    const { header: _, ...event } = (await own.next()).result ?? {};
    const { header: __, ...expected } = (await its.next()).result ?? {};
    expect(event).toEqual(expected);
  });

  test("with several requests in its body creates and cancels", async () => {
    const { front } = await beside();
    const create = (key: string): string => `{"create_request":{"key":"${base64(key)}"}}`;
    const body = `${create("/things/x")}${create("elsewhere")} {"cancelRequest":{"watch_id":"1"}}`;
    const own = await watch(front.url, body);
    expect((await own.next()).result).toMatchObject({ created: true });
    expect((await own.next()).result).toMatchObject({ created: true, watch_id: "1" });
    expect((await own.next()).result).toMatchObject({ canceled: true, watch_id: "1" });
    await put(front.url, "/things/x", "1");
    expect((await own.next()).result?.events).toHaveLength(1);
  });
});

describe("A watch by HTTP/1.1", () => {
  test("reads all of its requests, however many and small", async () => {
    const { front } = await beside();
    const create = `{"create_request":{"key":"${base64("/things/m")}"}}`;
    const own = await watchByHttp1(front.url, "{}".repeat(20_000) + create);
    expect((await own.next()).result?.created).toBe(true);
  });

  test("has progress at intervals, as APISIX asks for it", async () => {
    const { front } = await beside();
    const create = {
      key: base64("/things/"),
      range_end: base64("/things0"),
      progress_notify: true,
    };
    const own = await watchByHttp1(front.url, JSON.stringify({ create_request: create }));
    expect((await own.next()).result?.created).toBe(true);
    const { result } = await own.next();
    expect(result?.events).toBeUndefined();
    expect(Number(result?.header.revision)).toBeGreaterThan(0);
  });

  test("takes requests while it is open", async () => {
    const { front } = await beside();
    const request = httpRequest(`${front.url}/v3/watch`, { method: "POST", agent: false });
    onTestFinished(() => void request.destroy());
    const response = new Promise<AsyncIterator<Buffer>>((resolve) =>
      request.on("response", (incoming) => resolve(incoming[Symbol.asyncIterator]())),
    );
    request.on("error", () => {});
    request.write(`{"create_request":{"key":"${base64("/things/d")}"}}{"progress_`);
    const chunks = await response;
    expect(String((await chunks.next()).value)).toContain(`"created":true`);
    request.write(`request":{}}`);
    expect(String((await chunks.next()).value)).toContain(`"revision"`);
    request.end(`{"cancel_request":{}}`);
    expect(String((await chunks.next()).value)).toContain(`"canceled":true`);
  });

  test("ends when its client closes its direction of the connection", async () => {
    const { front } = await beside();
    const before = await watchesServedBy(front, "cache");
    const body = `{"create_request":{"key":"${base64("/things/c")}"}}`;
    const {
      socket,
      until: untilReceived,
      closed,
    } = connectTo(front.address, requestOf("/v3/watch", body));
    await untilReceived(/"created":true/);
    expect(await watchesServedBy(front, "cache")).toBe(before + 1);
    socket.end();
    await closed;
    await until(async () => (await watchesServedBy(front, "cache")) === before);
  });

  test.each([
    ["half a request", `{"create_request":{"key":"Zm9v"`],
    ["what is no request", `{"create_request":5}`],
    ["invalid base64", `{"create_request":{"key":"%"}}`],
  ])("with %s is refused", async (_, body) => {
    const { front } = await beside();
    const response = await fetch(`${front.url}/v3/watch`, { method: "POST", body });
    expect(response.status).toBe(400);
    expect(await response.json()).toMatchObject({ error: { grpc_code: 3, code: 3 } });
  });
});
