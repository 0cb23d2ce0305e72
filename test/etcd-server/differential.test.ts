import { gzipSync } from "node:zlib";
import { describe, expect, test } from "vitest";
import { type RawGrpc, statusOf } from "../etcd-api/raw-grpc.ts";
import { encode, Message } from "../foreign/protobuf.ts";
import fc, { costlyRuns } from "../property.ts";
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
      { numRuns: costlyRuns(200), endOnFailure: true },
    );
  });

  test("to requests that are too large, compressed, or missing", async () => {
    const [its, own] = await Promise.all([stores.etcd(), newOwn()]);
    const path = "/etcdserverpb.KV/Put";
    const bytesOfPut = 1.5 * 1024 ** 2;
    for (const size of [bytesOfPut - 100, bytesOfPut, 2 * 1024 ** 2 + 1, 3 * 1024 ** 2]) {
      const both = await callBoth(its, own, path, encode({ 1: "a", 2: Buffer.alloc(size) }));
      expect({ size, ...both?.ours }).toEqual({ size, ...both?.theirs });
    }
    const codeOf = async (encoding: string, message: Buffer, client: RawGrpc): Promise<string> => {
      const call = client.open(path, { "grpc-encoding": encoding });
      const prefix = Buffer.of(1, 0, 0, 0, 0);
      prefix.writeUInt32BE(message.length, 1);
      call.stream.end(Buffer.concat([prefix, message]));
      return statusOf(await call.response).code;
    };
    const large = encode({ 1: "b", 2: Buffer.alloc(3 * 1024 ** 2) });
    const compressed: [encoding: string, message: Buffer, code: string][] = [
      ["gzip", gzipSync(encode({ 1: "b", 2: "1" })), "0"],
      ["gzip", gzipSync(large), "8"],
      ["gzip", Buffer.from("no gzip"), "13"],
      ["none", Buffer.of(0), "12"],
    ];
    for (const [encoding, message, code] of compressed) {
      expect(await codeOf(encoding, message, its)).toBe(code);
      expect(await codeOf(encoding, message, own)).toBe(code);
    }
    expect(await revisionOf(own)).toBe(await revisionOf(its));
    const [theirs, ours] = [its, own].map(async (client) => {
      const call = client.open(path);
      call.halfClose();
      return statusOf(await call.response);
    });
    expect(await ours).toEqual(await theirs);
  });

  test("to requests with fields of other types than their protos say", async () => {
    const [its, own] = await Promise.all([stores.etcd(), newOwn()]);
    const requests = [
      // In place of the key, behind it, and with what another decoder would take for the key.
      ...["Range 0801", "Range 0a01610802", "Range 0a016108026801", "Range 0d61000000"],
      ...["Range 1201621000", "Range 0a01611a00", "Range 0a01616a00", "Compact 0a00"],
      ...[
        "Put 0a0161120176080268000a",
        "Put 0a01611001",
        "Put 0a01611a00",
        "DeleteRange 0a01611001",
      ],
      // In operations, also in those of a nested transaction, and in comparisons.
      ...[
        "Txn 1001",
        "Txn 12020801",
        "Txn 12040a020801",
        "Txn 1a041a020801",
        "Txn 120822060a040a020801",
      ],
      ...["Txn 1208220612040a020801", "Txn 0a021801", "Txn 0a050a001a0161", "Txn 0a03800400"],
      // Of no field that there is.
      ...["Range 0a0161a20600", "Range 0a0161a006ff01", "Put 0a0161a506000000000a0162"],
    ];
    for (const text of requests) {
      const [method, hex = ""] = text.split(" ");
      const path = `/etcdserverpb.KV/${method}`;
      const both = await callBoth(its, own, path, Buffer.from(hex, "hex"));
      expect({ text, ...both?.ours }).toEqual({ text, ...both?.theirs });
    }
  });
});
