import { describe, expect, test } from "vitest";
import { besideEtcdOfFile } from "../beside-etcd.ts";
import { metricOf } from "../front.ts";

const beside = besideEtcdOfFile({ resource: ["things=/things/"] });

/** What a gateway responds. */
interface Response {
  readonly status: number;
  readonly type: string | null;
  readonly body: unknown;
}

async function post(
  url: string,
  path: string,
  body: string,
  init: RequestInit = {},
): Promise<Response> {
  const response = await fetch(url + path, { method: "POST", body, ...init });
  const text = await response.text();
  const lines = text
    .trimEnd()
    .split("\n")
    .filter((line) => line !== "")
    .map((line) => comparable(JSON.parse(line)));
  return {
    status: response.status,
    type: response.headers.get("content-type"),
    body: lines.length === 1 ? lines[0] : lines,
  };
}

/** The fields that differ between two stores, or from call to call. */
const varying = ["cluster_id", "member_id", "raft_term", "revision", "raftIndex", "raftTerm"];

/** Without what varies. The texts of etcd's errors also have positions, and spaces that differ between its builds. */
function comparable(value: unknown): unknown {
  if (Array.isArray(value)) return value.map(comparable);
  if (typeof value !== "object" || value === null) return value;
  const fields = Object.entries(value).map(([name, each]) => [name, comparable(each)] as const);
  const { error, message, ...others } = Object.fromEntries(fields);
  // What is left of a lease: seconds pass between the two calls.
  if (Number(others["TTL"]) > 400) others["TTL"] = "500, less what has passed";
  // Before 3.6 an error has its text in both.
  const text = String(message ?? "")
    .replace(/\(line \d+:\d+\)/, "")
    .replace(/[\s\u00a0:]+/g, " ");
  return {
    ...Object.fromEntries(Object.entries(others).filter(([name]) => !varying.includes(name))),
    ...(message === undefined ? {} : { message: text }),
    ...(error === undefined || typeof error === "string" ? {} : { error }),
  };
}

const base64 = (text: string): string => Buffer.from(text).toString("base64");

/** Makes a call of each gateway, with the number of the gateway for `{N}`, and expects that both respond the same. */
async function compare(path: string, body: string, init?: RequestInit): Promise<Response> {
  const { etcd, front } = await beside();
  const responses: Response[] = [];
  for (const [index, { url }] of [etcd, front].entries()) {
    const request = body.replaceAll("{N}", `${index + 1}`);
    responses.push(await post(url, `/v3/${path}`, request, init));
  }
  const [its, own] = responses;
  const text = JSON.stringify(own);
  const asFirst = body.includes("{N}")
    ? text.replaceAll("70002", "70001").replaceAll("name-2", "name-1")
    : text;
  expect(JSON.parse(asFirst)).toEqual(its);
  return own as Response;
}

const a = base64("/things/a");
const b = base64("/things/b");
const outside = base64("outside");
const prefixEnd = base64("/things0");
const put = (key: string, value: string): string => JSON.stringify({ key, value: base64(value) });

describe("The JSON gateway responds as etcd's own", () => {
  test("to a put and a range of a cached key, which it reads from the cache", async () => {
    const { front } = await beside();
    await compare("kv/put", put(a, "x"));
    const before = await metricOf(front, "watch_fanout_etcd_api_ranges_total", "cache");
    const { body } = await compare("kv/range", JSON.stringify({ key: a }));
    expect(body).toMatchObject({ kvs: [{ key: a, value: base64("x") }], count: "1" });
    expect(await metricOf(front, "watch_fanout_etcd_api_ranges_total", "cache")).toBe(before + 1);
  });

  test.each([
    ["kv/put", put(outside, "1")],
    ["kv/put", JSON.stringify({ key: a, value: "", prevKv: false })],
    ["kv/put", `{"key":"${a}","value":"eA","lease":"1"}`],
    ["kv/put", `{"key":"${a}","ignoreValue":true}`],
    ["kv/range", JSON.stringify({ key: outside })],
    ["kv/range", JSON.stringify({ key: a, range_end: prefixEnd, limit: 1 })],
    ["kv/range", JSON.stringify({ key: a, rangeEnd: prefixEnd, limit: "1", sortOrder: "DESCEND" })],
    ["kv/range", JSON.stringify({ key: a, range_end: prefixEnd, count_only: true })],
    ["kv/range", JSON.stringify({ key: a, keys_only: true, serializable: true })],
    ["kv/range", `{"key":"${a}","revision":"1"}`],
    ["kv/range", `{"key":"${a}","revision":999999}`],
    ["kv/range", `{"key":"AA==","range_end":"AA==","limit":"2"}`],
    [
      "kv/txn",
      `{"compare":[{"key":"${b}","target":"VERSION","version":"99"}],"success":[{"request_put":{"key":"${b}","value":"eA=="}}],"failure":[{"requestDeleteRange":{"key":"${b}","prev_kv":true}},{"request_range":{"key":"${a}"}}]}`,
    ],
    [
      "kv/txn",
      `{"compare":[{"key":"${a}","target":"VALUE","result":"GREATER","value":"/w=="}],"failure":[{"request_txn":{"success":[{"request_range":{"key":"${outside}"}}]}}]}`,
    ],
    ["kv/txn", `{"success":[{"request_put":{"key":"${b}"}},{"request_put":{"key":"${b}"}}]}`],
    ["kv/deleterange", JSON.stringify({ key: base64("absent"), prev_kv: true })],
    ["kv/compaction", `{"revision":"999999"}`],
    ["lease/grant", `{"TTL":"500","ID":"{N}0000"}`.replace("{N}0000", "7000{N}")],
    ["lease/timetolive", `{"ID":7000{N},"keys":true}`],
    ["kv/lease/timetolive", `{"ID":"7000{N}"}`],
    ["lease/keepalive", `{"ID":7000{N}}`],
    ["lease/keepalive", `{"ID":7000{N}}{"ID":"12345"}`],
    ["lease/keepalive", ""],
    ["lease/leases", "{}"],
    ["kv/lease/leases", ""],
    ["lease/revoke", `{"ID":7000{N}}`],
    ["kv/lease/revoke", `{"ID":7000{N}}`],
    ["cluster/member/list", "{}"],
    ["cluster/member/remove", `{"ID":"77"}`],
    ["cluster/member/add", `{"peerURLs":["no url"]}`],
    ["maintenance/status", "{}"],
    ["maintenance/alarm", `{"action":"GET"}`],
    ["maintenance/hash", "{}"],
    ["maintenance/transfer-leadership", `{"targetID":"5"}`],
    ["maintenance/downgrade", `{"action":"VALIDATE","version":"x"}`],
    ["auth/status", "{}"],
    ["auth/authenticate", `{"name":"a","password":"b"}`],
    ["auth/disable", "{}"],
    ["auth/role/add", `{"name":"name-{N}"}`],
    [
      "auth/role/grant",
      `{"name":"name-{N}","perm":{"permType":"READWRITE","key":"${a}","range_end":"${prefixEnd}"}}`,
    ],
    ["auth/role/get", `{"role":"name-{N}"}`],
    ["auth/user/add", `{"name":"name-{N}","options":{"no_password":true}}`],
    ["auth/user/grant", `{"user":"name-{N}","role":"name-{N}"}`],
    ["auth/user/get", `{"name":"name-{N}"}`],
    ["auth/user/revoke", `{"name":"name-{N}","role":"name-{N}"}`],
    ["auth/role/revoke", `{"role":"name-{N}","key":"${a}","range_end":"${prefixEnd}"}`],
    ["auth/user/changepw", `{"name":"name-{N}","password":"x"}`],
    ["auth/user/list", "{}"],
    ["auth/user/delete", `{"name":"absent"}`],
    ["auth/role/list", "{}"],
    ["auth/role/delete", `{"role":"absent"}`],
    ["auth/enable", "{}"],
    ["election/leader", `{"name":"bm9uZQ=="}`],
    ["election/proclaim", `{"leader":{"name":"bm9uZQ==","key":"eA==","rev":"1","lease":"1"}}`],
    ["election/resign", `{"leader":{"name":"bm9uZQ==","key":"eA==","rev":"1","lease":"1"}}`],
    ["lock/unlock", `{"key":"eA=="}`],
    ["nothing", "{}"],
    ["kv/range/", "{}"],
  ])("%s %s", async (path, body) => {
    await compare(path, body);
  });

  test.each([
    ["no body", "kv/range", ""],
    ["half an object", "kv/range", `{"key":"${a}"`],
    ["no JSON", "kv/range", "xxx"],
    ["an array", "kv/range", "[]"],
    ["null", "kv/range", "null"],
    ["a string", "kv/range", `"a"`],
    ["more behind the object", "kv/range", `{"key":"${a}"} trailing`],
    ["an unknown field", "kv/range", `{"key":"${a}","more":{"and":[1,2]}}`],
    ["an unknown name of an enum", "kv/range", `{"key":"${a}","sort_order":"UP"}`],
    ["an enum as a number", "kv/range", `{"key":"${a}","sort_order":2}`],
    ["an unknown number of an enum", "kv/range", `{"key":"${a}","sort_order":7}`],
    ["an enum that is a bool", "kv/range", `{"key":"${a}","sort_order":true}`],
    ["a number as text", "kv/range", `{"key":"${a}","limit":"2"}`],
    ["a number with a fraction of zeros", "kv/range", `{"key":"${a}","limit":1.0}`],
    ["a number with an exponent", "kv/range", `{"key":"${a}","limit":1e3}`],
    ["a number with a fraction", "kv/range", `{"key":"${a}","limit":1.5}`],
    ["a number beyond 64 bits", "kv/range", `{"key":"${a}","limit":99999999999999999999}`],
    ["the greatest number", "kv/range", `{"key":"${a}","revision":9223372036854775807}`],
    ["text that is no number", "kv/range", `{"key":"${a}","limit":"x"}`],
    ["space before a number", "kv/range", `{"key":"${a}","limit":" 1"}`],
    ["no digits", "kv/range", `{"key":"${a}","limit":""}`],
    ["a bool as a number", "kv/range", `{"key":"${a}","limit":true}`],
    ["text as a bool", "kv/range", `{"key":"${a}","serializable":"true"}`],
    ["invalid base64", "kv/range", `{"key":"%%%"}`],
    ["base64 of one character", "kv/range", `{"key":"Z"}`],
    ["base64 without padding", "kv/range", `{"key":"Zm8"}`],
    ["base64 for URLs", "kv/range", `{"key":"_-8="}`],
    ["both alphabets", "kv/range", `{"key":"_+8="}`],
    ["too much padding", "kv/range", `{"key":"Zm9v="}`],
    ["a key that is a number", "kv/range", `{"key":5}`],
    ["a key that is null", "kv/range", `{"key":null}`],
    ["a key that is an object", "kv/range", `{"key":{}}`],
    ["a field twice", "kv/range", `{"key":"${a}","rangeEnd":"AA==","range_end":"AA=="}`],
    [
      "two of a oneof",
      "kv/txn",
      `{"success":[{"request_range":{"key":"${a}"},"request_put":{"key":"${a}"}}]}`,
    ],
    ["a list that is an object", "kv/txn", `{"success":{"request_range":{"key":"${a}"}}}`],
    ["a list with null", "kv/txn", `{"success":[null]}`],
    ["a list with a number", "kv/txn", `{"success":[5]}`],
    ["a list that is null", "kv/txn", `{"success":null}`],
    ["an operation that is empty", "kv/txn", `{"success":[{}]}`],
    ["a name that is a number", "auth/user/add", `{"name":5}`],
    ["text beyond ASCII", "auth/user/get", `{"name":"\u00e9\\u0000"}`],
    ["a request that is too large for etcd", "kv/put", put(a, "x".repeat(1_700_000))],
  ])("to a request with %s", async (_, path, body) => {
    await compare(path, body);
  });

  test("to a method of HTTP that it has not", async () => {
    await compare("kv/range", "{}", { method: "PUT" });
  });

  test("to a timeout and a token", async () => {
    const late = await compare("kv/range", JSON.stringify({ key: outside }), {
      headers: { "grpc-timeout": "1n" },
    });
    expect(late.status).toBe(504);
    await compare("kv/range", JSON.stringify({ key: outside }), {
      headers: { authorization: "x" },
    });
  });
});
