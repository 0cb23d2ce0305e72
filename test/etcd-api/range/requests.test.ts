import { describe, expect, test } from "vitest";
import { readRangeRequest } from "../../../src/etcd/wire/range-request.ts";
import { CachedResources } from "../../../src/etcd-api/cached/cached-resources.ts";
import { NewestHeader } from "../../../src/etcd-api/cached/newest-header.ts";
import type { EtcdCall } from "../../../src/etcd-api/calls/etcd-call.ts";
import { RangeService } from "../../../src/etcd-api/range/range-service.ts";
import { Rounds } from "../../../src/server/kernel/rounds.ts";
import { FakeClock } from "../../fake-clock.ts";
import { encode, type Fields } from "../../foreign/protobuf.ts";

const framed = (message: Buffer): Buffer => {
  const prefix = Buffer.alloc(5);
  prefix.writeUInt32BE(message.length, 1);
  return Buffer.concat([prefix, message]);
};

describe("A serializable Range that is relayed", () => {
  const clock = new FakeClock();
  /** What etcd gets of a request, when it has sent revision 5 and clients here have seen `floor`. */
  const relayed = (fields: Fields, floor: number): Buffer => {
    const newestHeader = new NewestHeader();
    const source = { isInUse: true };
    newestHeader.observe(source, framed(encode({ 1: encode({ 1: 7, 2: 8, 3: 5, 4: 2 }) })));
    newestHeader.raise(floor);
    const calls = new Rounds<EtcdCall>(clock, {
      intervalMs: 1_000,
      visitsPerStep: 1,
      visit: () => {},
    });
    const cached = new CachedResources(clock, newestHeader);
    const upstream = { available: () => source, whenAvailable: () => {} };
    const deps = { calls, cached, newestHeader, upstream, clock, relay: () => {} };
    const service = new RangeService(deps);
    const message = encode(fields);
    return service.forwardedRequest(framed(message), readRangeRequest(message));
  };

  test("is passed on as it is, if the member has what the client may have seen", () => {
    expect(relayed({ 1: "a", 7: true }, 5)).toEqual(framed(encode({ 1: "a", 7: true })));
  });

  test("becomes linearizable, if the client may have seen more than the member has", () => {
    const fields = { 1: "a", 2: "b", 3: 4, 7: true, 8: true };
    const request = relayed(fields, 6);
    expect(request.readUInt32BE(1)).toBe(request.length - 5);
    const { serializable, ...others } = readRangeRequest(request.subarray(5)) ?? {};
    const { serializable: _, ...asked } = readRangeRequest(encode(fields)) ?? {};
    expect(serializable).toBe(false);
    expect(others).toEqual(asked);
  });

  test("is not changed if it is linearizable, or only etcd can read it", () => {
    expect(relayed({ 1: "a" }, 6)).toEqual(framed(encode({ 1: "a" })));
    expect(relayed({ 1: "a", 7: true, 99: 1 }, 6)).toEqual(
      framed(encode({ 1: "a", 7: true, 99: 1 })),
    );
  });
});
