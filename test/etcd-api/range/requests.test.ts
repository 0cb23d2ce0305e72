import { describe, expect, test } from "vitest";
import { NewestHeader, type ResponseSource } from "../../../src/etcd-api/cached/newest-header.ts";
import { MemberRouting, type Route } from "../../../src/etcd-api/calls/member-routing.ts";
import { FakeClock } from "../../fake-clock.ts";
import { encode, type Fields } from "../../foreign/protobuf.ts";

const framed = (message: Buffer): Buffer => {
  const prefix = Buffer.alloc(5);
  prefix.writeUInt32BE(message.length, 1);
  return Buffer.concat([prefix, message]);
};

describe("A serializable Range that is relayed", () => {
  const clock = new FakeClock();
  const source = { isInUse: true };
  /** Where a request goes, when etcd has sent revision 5 and clients here have seen `floor`. */
  const routed = (fields: Fields, floor: number): Route => {
    const newestHeader = new NewestHeader();
    newestHeader.observe(source, framed(encode({ 1: encode({ 1: 7, 2: 8, 3: 5, 4: 2 }) })));
    newestHeader.raise(floor);
    const upstream = {
      isSpread: false,
      find: (suits: (each: ResponseSource) => boolean) => (suits(source) ? source : undefined),
    };
    const routing = new MemberRouting(upstream as never, newestHeader, clock);
    return routing.routeOf("/etcdserverpb.KV/Range", "byRequest", framed(encode(fields)));
  };

  test("goes to a member that has what the client may have seen", () => {
    expect(routed({ 1: "a", 7: true }, 5)).toEqual({ connection: source });
  });

  test("waits for a member to show that, if the client may have seen more than it has", () => {
    const fields = { 1: "a", 2: "b", 3: 4, 7: true, 8: true };
    expect(routed(fields, 6)).toEqual({ after: "its revision" });
  });

  test("goes anywhere if it is linearizable, or only etcd can read it", () => {
    expect(routed({ 1: "a" }, 6)).toEqual({});
    expect(routed({ 1: "a", 7: true, 99: 1 }, 6)).toEqual({});
  });
});
