import { describe, expect, test } from "vitest";
import type { RawGrpc } from "../etcd-api/raw-grpc.ts";
import { encode, Message } from "../foreign/protobuf.ts";
import fc, { runs } from "../property.ts";
import { callBoth, revisionOf, storesOfFile } from "./compared-stores.ts";
import { anyCall, leases, type MadeCall } from "./random-requests.ts";

const stores = storesOfFile();

/** The leases of a store, with their granted time to live and their keys. */
async function leasesOf(client: RawGrpc): Promise<unknown> {
  const { body } = await client.unary("/etcdserverpb.Lease/LeaseLeases", Buffer.of());
  const ids = new Message(body.subarray(5)).all(2).map((each) => new Message(each).integer(1));
  const states = leases.map(async (id) => {
    const request = encode({ 1: id, 2: true });
    const response = await client.unary("/etcdserverpb.Lease/LeaseTimeToLive", request);
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
    const both = await callBoth(its, own, path, request);
    if (both === undefined) continue;
    const asked = { path, request: request.toString("hex") };
    expect({ ...asked, ...both.ours }).toEqual({ ...asked, ...both.theirs });
  }
  expect(await revisionOf(own)).toBe(await revisionOf(its));
  expect(await leasesOf(own)).toEqual(await leasesOf(its));
}

describe.each([
  ["The embedded store", stores.served],
  ["A service with the embedded store", stores.service],
])("%s responds byte by byte as a real etcd", (_name, newOwn) => {
  test("to random requests of KV and Lease", async () => {
    const [its, own] = await Promise.all([stores.etcd(), newOwn()]);
    await fc.assert(
      fc.asyncProperty(fc.array(anyCall, { minLength: 1, maxLength: 30, size: "max" }), (calls) =>
        compareCalls(its, own, calls),
      ),
      // A failure is not reduced: what came before has changed both stores.
      { numRuns: runs(200), endOnFailure: true },
    );
  });
});
