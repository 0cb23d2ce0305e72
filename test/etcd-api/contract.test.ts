import { describe, expect, test } from "vitest";
import { requestHeaders } from "../../src/etcd/client/call-headers.ts";
import { withClientUrls } from "../../src/etcd/wire/member-list.ts";
import { UnreadableMessage } from "../../src/etcd/wire/messages.ts";
import { etcdMethodAt, etcdMethods } from "../../src/etcd/wire/methods.ts";
import { behindRoom } from "../../src/etcd/wire/namespace.ts";
import { readResponseHeader } from "../../src/etcd/wire/response-header.ts";
import { NewestHeader } from "../../src/etcd-api/cached/newest-header.ts";
import { MessageStarts, MessageTranslator } from "../../src/etcd-api/calls/passing-messages.ts";
import { WireFault } from "../../src/protobuf/message-cursor.ts";
import { encode, Message } from "../foreign/protobuf.ts";
import fc, { runs } from "../property.ts";

function framed(message: Buffer, flag = 0): Buffer {
  const prefix = Buffer.alloc(5);
  prefix[0] = flag;
  prefix.writeUInt32BE(message.length, 1);
  return Buffer.concat([prefix, message]);
}

describe("A MemberListResponse", () => {
  const translator = (url: string): MessageTranslator =>
    new MessageTranslator(
      behindRoom((message) => withClientUrls(message, url)),
      1_024,
    );
  const header = encode({ 1: 2n ** 63n, 2: 7n, 4: 3 });
  const member = encode({ 1: 2n ** 63n + 1n, 2: "a", 3: "http://peer", 9: "new" });
  const started = Buffer.concat([member, encode({ 4: ["http://a:2379", "http://b:2379"] })]);

  test("has the URL for every member that has started, and all else as before", () => {
    const response = framed(encode({ 1: header, 2: [started, member], 15: 4 }));
    const [changed = Buffer.of()] = translator("http://front:2379").pass(response);
    expect(changed.readUInt32BE(1)).toBe(changed.length - 5);
    const message = new Message(changed.subarray(5));
    expect(message.bytes(1)).toEqual(header);
    expect(message.number(15)).toBe(4);
    const [first, second] = message.messages(2);
    expect(first?.text(4)).toBe("http://front:2379");
    expect([first?.text(2), first?.text(3), first?.text(9)]).toEqual(["a", "http://peer", "new"]);
    expect(first?.integer(1)).toBe(BigInt.asIntN(64, 2n ** 63n + 1n));
    expect(second?.has(4)).toBe(false);
  });

  test.each([
    ["compressed", framed(encode({ 1: header }), 1), UnreadableMessage],
    ["too large", framed(Buffer.alloc(1_025)), UnreadableMessage],
    ["invalid", framed(Buffer.from([0x12, 0x7f, 0x01])), WireFault],
  ])("that is %s can't be changed", (_, bytes, error) => {
    expect(() => translator("http://front").pass(bytes)).toThrow(error);
  });

  test("is changed once it is complete, in whatever parts it arrives", () => {
    const [one, parts] = [translator("http://front"), translator("http://front")];
    const response = framed(encode({ 1: header, 2: [started] }));
    const whole = one.pass(response);
    expect([whole.length, one.isMidMessage]).toEqual([1, false]);
    for (const byte of response.subarray(0, -1)) expect(parts.pass(Buffer.of(byte))).toEqual([]);
    expect([parts.isMidMessage, parts.heldBytes > 0]).toEqual([true, true]);
    expect(parts.pass(response.subarray(-1))).toEqual(whole);
    expect([parts.isMidMessage, parts.heldBytes]).toEqual([false, 0]);
  });
});

describe("The header of a response", () => {
  const bytes = framed(encode({ 1: encode({ 1: 2n ** 64n - 1n, 2: 5, 3: 77, 4: 9 }), 2: "rest" }));

  test("is read from its first bytes", () => {
    const header = { clusterId: 2n ** 64n - 1n, memberId: 5n, revision: 77, raftTerm: 9 };
    expect(readResponseHeader(bytes)).toEqual(header);
    // The rest of the message may be missing.
    expect(readResponseHeader(bytes.subarray(0, bytes.length - 6))).toEqual(header);
  });

  test("is not known if it is not all there, compressed, or not the first field", () => {
    for (let length = 0; length < 15; length++) {
      expect(readResponseHeader(bytes.subarray(0, length))).toBeUndefined();
    }
    expect(readResponseHeader(framed(bytes.subarray(5), 1))).toBeUndefined();
    expect(readResponseHeader(framed(encode({ 2: "a" })))).toBeUndefined();
  });

  test("is found in the first field of a message that is the first field", () => {
    const header = encode({ 1: 7, 2: 5, 3: 77, 4: 9 });
    const nested = framed(encode({ 1: encode({ 1: header, 2: "a".repeat(1000) }) }));
    const read = { clusterId: 7n, memberId: 5n, revision: 77, raftTerm: 9 };
    expect(readResponseHeader(nested, "nested")).toEqual(read);
    expect(readResponseHeader(nested.subarray(0, 30), "nested")).toEqual(read);
    const without = framed(encode({ 1: encode({ 2: "a" }) }));
    expect(readResponseHeader(without, "nested")).toBeUndefined();
    expect(readResponseHeader(framed(Buffer.of()), "nested")).toBeUndefined();
  });

  describe("of all responses", () => {
    const inUse = { isInUse: true };
    const observe = (
      newest: NewestHeader,
      cluster: number,
      member: number,
      revision: number,
      source = inUse,
    ): void => {
      const header = encode({ 1: cluster, 2: member, 3: revision });
      newest.observe(source, framed(encode({ 1: header })));
    };

    test("raises the floor, which falls only with another cluster", () => {
      const newest = new NewestHeader();
      observe(newest, 1, 5, 10);
      observe(newest, 1, 6, 8);
      expect([newest.floor, newest.header?.revision]).toEqual([10, 8]);
      // As from etcd grpc-proxy, which may answer without the ids.
      observe(newest, 0, 0, 9);
      expect([newest.floor, newest.header?.clusterId]).toEqual([10, 1n]);
      observe(newest, 0, 0, 11);
      expect([newest.floor, newest.header?.clusterId]).toEqual([11, 1n]);
      observe(newest, 2, 5, 3);
      expect([newest.floor, newest.header?.revision]).toEqual([3, 3]);
    });

    test("is not that of a member that was left, which clients have seen nevertheless", () => {
      const newest = new NewestHeader();
      const left = { isInUse: false };
      // No other is known.
      observe(newest, 1, 5, 10, left);
      expect(newest.header).toMatchObject({ memberId: 5n });
      observe(newest, 1, 6, 9);
      observe(newest, 1, 5, 11, left);
      expect([newest.floor, newest.header?.memberId]).toEqual([11, 6n]);
      observe(newest, 2, 5, 50, left);
      expect([newest.floor, newest.header?.memberId]).toEqual([11, 6n]);
    });

    test("show of each connection alone that its member is not behind what clients know of", () => {
      const newest = new NewestHeader();
      const [one, other] = [{ isInUse: true }, { isInUse: true }];
      const behind = () => [one, other, undefined].map((source) => newest.mayBeBehind(source));
      expect(behind()).toEqual([false, false, false]);
      observe(newest, 1, 5, 10, one);
      expect(behind()).toEqual([false, true, true]);
      observe(newest, 1, 5, 12, other);
      observe(newest, 1, 5, 11, other);
      expect(behind()).toEqual([true, false, true]);
      newest.raise(13);
      expect(behind()).toEqual([true, true, true]);
      newest.historyChanged();
      observe(newest, 1, 5, 3, one);
      expect(behind()).toEqual([false, true, true]);
    });

    test("is the newest of the member that responded last", () => {
      const newest = new NewestHeader();
      const revision = (): number | undefined => newest.header?.revision;
      observe(newest, 1, 5, 10);
      // A page of a slow stream, and a response of Cluster, whose headers have no revision.
      observe(newest, 1, 5, 8);
      observe(newest, 1, 5, 0);
      expect(revision()).toBe(10);
      observe(newest, 1, 6, 9);
      expect(revision()).toBe(9);
      observe(newest, 1, 6, 11);
      expect(revision()).toBe(11);
      newest.historyChanged();
      expect([newest.floor, revision()]).toEqual([0, 0]);
      observe(newest, 1, 6, 4);
      expect([newest.floor, revision()]).toEqual([4, 4]);
    });
  });
});

describe("The messages of a stream", () => {
  test("are found in any pieces, as far as they are looked at", () => {
    const sizes = fc.array(fc.oneof(fc.nat(80), fc.nat(5_000)), { maxLength: 8 });
    const cuts = fc.array(fc.oneof(fc.integer({ min: 1, max: 9 }), fc.nat(2_000)));
    fc.assert(
      fc.property(sizes, cuts, (all, pieces) => {
        const messages = all.map((size, i) => framed(Buffer.alloc(size, i + 1)));
        const found: string[] = [];
        const starts = new MessageStarts((start) => found.push(start.toString("hex")));
        let rest = Buffer.concat(messages);
        for (const size of [...pieces, rest.length]) {
          starts.pass(rest.subarray(0, size));
          rest = rest.subarray(size);
        }
        expect(found).toEqual(messages.map((message) => message.subarray(0, 69).toString("hex")));
      }),
      { numRuns: runs(300) },
    );
  });
});

describe("The headers of a request", () => {
  test("are passed on without those of a connection, which Node.js throws an error for", () => {
    const own = { "http2-settings": "AAA", "proxy-connection": "close", host: "a", ":path": "/b" };
    expect(requestHeaders("/c", { ...own, hasleader: "true" })).toEqual({
      ...{ ":method": "POST", ":path": "/c", te: "trailers", hasleader: "true" },
    });
  });
});

describe("A path", () => {
  test("of etcd's packages is one of its methods, known or not", () => {
    expect([...etcdMethods.keys()]).toContain("/etcdserverpb.KV/Range");
    expect(etcdMethodAt("/etcdserverpb.KV/Range")).toMatchObject({
      kind: "unary",
      mayWrite: false,
    });
    expect(etcdMethodAt("/etcdserverpb.Future/Method")).toMatchObject({ mayWrite: true });
  });

  test.each([
    ["/etcdserverpb.KV/Range", true],
    ["/etcdserverpb.Watch/Watch", true],
    ["/etcdserverpb.Lease/LeaseKeepAlive", true],
    ["/etcdserverpb.KV/Put", false],
    ["/etcdserverpb.KV/Txn", false],
    ["/v3lockpb.Lock/Lock", false],
    ["/etcdserverpb.Future/Method", false],
  ])("%s may be repeated without knowing whether it was done: %s", (path, isRepeatable) => {
    expect(etcdMethodAt(path)).toMatchObject({ isRepeatable });
  });

  test.each([
    "/etcdserverpb/KV",
    "/etcdserverpbx.KV/Range",
    "/x.etcdserverpb.KV/Range",
    "/etcdserverpb.KV/Range/more",
    "/etcdserverpb.KV/",
    `/etcdserverpb.KV/${"a".repeat(65)}`,
    "/authpb.User/Get",
  ])("that is not one of etcd's methods is not: %s", (path) => {
    expect(etcdMethodAt(path)).toBeUndefined();
  });
});
