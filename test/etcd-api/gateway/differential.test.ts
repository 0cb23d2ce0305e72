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

async function post(url: string, path: string, body: string, init: RequestInit = {}): Promise<Response> {
  const response = await fetch(url + path, { method: "POST", body, ...init });
  const text = await response.text();
  const lines = text.trimEnd().split("\n").map((line) => comparable(JSON.parse(line)));
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
  // Before 3.6 an error has its text in both.
  const text = String(message ?? "").replace(/\(line \d+:\d+\)/, "").replace(/[\s\u00a0:]+/g, " ");
  return {
    ...Object.fromEntries(Object.entries(others).filter(([name]) => !varying.includes(name))),
    ...(message === undefined ? {} : { message: text }),
    ...(error === undefined || typeof error === "string" ? {} : { error }),
  };
}

const base64 = (text: string): string => Buffer.from(text).toString("base64");

describe("The JSON gateway responds as etcd's own", () => {
  test("to a put and a range of a cached key", async () => {
    const { etcd, front } = await beside();
    const key = base64("/things/a");
    expect(await post(front.url, "/v3/kv/put", JSON.stringify({ key, value: base64("x") }))).toEqual(
      await post(etcd.url, "/v3/kv/put", JSON.stringify({ key, value: base64("x") })),
    );
    const before = await metricOf(front, "watch_fanout_etcd_api_ranges_total", "cache");
    const range = JSON.stringify({ key });
    const own = await post(front.url, "/v3/kv/range", range);
    expect(own.body).toMatchObject({ kvs: [{ key, value: base64("x") }], count: "1" });
    expect(own).toEqual(await post(etcd.url, "/v3/kv/range", range));
    expect(await metricOf(front, "watch_fanout_etcd_api_ranges_total", "cache")).toBe(before + 1);
  });
});
