import { afterAll, describe, expect, test } from "vitest";
import { startEmbedded, untilReady } from "../etcd-api/front.ts";
import { type RawResponse, RawGrpc, statusOf } from "../etcd-api/raw-grpc.ts";
import { startEtcd } from "../etcd/etcd.ts";
import { encode, Message } from "../foreign/protobuf.ts";
import fc, { runs } from "../property.ts";
import { anyCall, leases, type MadeCall } from "./random-requests.ts";
import { serveStore } from "./served-store.ts";

const closing: (() => Promise<void> | void)[] = [];
afterAll(async () => {
  for (const close of closing.splice(0).reverse()) await close();
});

/** A new etcd, in which nothing was written. */
async function newEtcd(): Promise<RawGrpc> {
  const etcd = await startEtcd();
  closing.push(() => etcd.stop());
  return clientOf(etcd.url);
}

function clientOf(url: string): RawGrpc {
  const client = new RawGrpc(url);
  closing.push(() => client.close());
  return client;
}

async function newServed(): Promise<RawGrpc> {
  const served = await serveStore();
  closing.push(() => served.close());
  return served.client;
}

async function newFront(): Promise<RawGrpc> {
  const front = await startEmbedded({ resource: ["all="] });
  closing.push(() => front.stop());
  await untilReady(front);
  return clientOf(front.url);
}

/** What two stores with the same past respond the same: all but the ids and the term in the header. */
function comparable(response: RawResponse): unknown {
  const { code, message } = statusOf(response);
  if (code !== "0") return { code, message: decodeURIComponent(message) };
  const { revision, rest } = parts(response.body.subarray(5));
  return { code, revision, rest: rest.toString("hex") };
}

/** The header's revision, and everything behind the header, whose field is the first. */
function parts(message: Buffer): { readonly revision: number; readonly rest: Buffer } {
  const size = message.readUInt8(1);
  const header = new Message(message.subarray(2, 2 + size));
  return { revision: header.number(3), rest: message.subarray(2 + size) };
}

async function revisionOf(client: RawGrpc): Promise<number> {
  const request = encode({ 1: "none" });
  const { body } = await client.unary("/etcdserverpb.KV/Range", request);
  return parts(body.subarray(5)).revision;
}

/** The leases of a store, with their granted time to live and their keys. */
async function leasesOf(client: RawGrpc): Promise<unknown> {
  const { body } = await client.unary("/etcdserverpb.Lease/LeaseLeases", Buffer.of());
  const ids = new Message(body.subarray(5)).all(2).map((each) => new Message(each).integer(1));
  const states = [...leases].map(async (id) => {
    const response = await client.unary("/etcdserverpb.Lease/LeaseTimeToLive", encode({ 1: id, 2: true }));
    const message = new Message(response.body.subarray(5));
    const keys = message.all(5).map((each) => each.toString("hex"));
    return { id, granted: message.number(4), isOver: message.number(3) < 0, keys: keys.sort() };
  });
  return { ids: ids.map(String).sort(), states: await Promise.all(states) };
}

/** Makes the same calls of both, in their order. */
async function compareCalls(its: RawGrpc, own: RawGrpc, calls: readonly MadeCall[]): Promise<void> {
  for (const { path, make } of calls) {
    const request = make(await revisionOf(its));
    const theirs = comparable(await its.unary(path, request));
    const ours = comparable(await own.unary(path, request));
    expect({ path, request: request.toString("hex"), ...(ours as object) }).toEqual({
      ...{ path, request: request.toString("hex") },
      ...(theirs as object),
    });
  }
  expect(await revisionOf(own)).toBe(await revisionOf(its));
  expect(await leasesOf(own)).toEqual(await leasesOf(its));
}

describe.each([
  ["The embedded store", newServed],
  ["A service with the embedded store", newFront],
])("%s responds byte by byte as a real etcd", (_name, newOwn) => {
  test("to random requests of KV and Lease", async () => {
    const [its, own] = await Promise.all([newEtcd(), newOwn()]);
    await fc.assert(
      fc.asyncProperty(fc.array(anyCall, { minLength: 1, maxLength: 30, size: "max" }), (calls) =>
        compareCalls(its, own, calls),
      ),
      // A failure is not reduced: what came before has changed both stores.
      { numRuns: runs(200), endOnFailure: true },
    );
  });
});
