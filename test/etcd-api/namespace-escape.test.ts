import { expect, onTestFinished, test } from "vitest";
import { startEtcd } from "../etcd/etcd.ts";
import { encode, Message } from "../foreign/protobuf.ts";
import fc, { runs } from "../property.ts";
import { startFront } from "./front.ts";
import { RawGrpc, statusOf } from "./raw-grpc.ts";

/** A number as a varint, with bytes that a shorter one would not need. */
function varint(value: number, padding: number): Buffer {
  const bytes: number[] = [];
  let rest = value;
  for (; rest >= 0x80; rest >>= 7) bytes.push((rest & 0x7f) | 0x80);
  bytes.push(rest, ...new Array<number>(padding).fill(0));
  return Buffer.from(bytes.map((byte, i) => (i + 1 < bytes.length ? byte | 0x80 : byte)));
}

const padding = fc.constantFrom(0, 0, 0, 0, 0, 0, 1, 3);

/** A field, in one of the ways in which it can be encoded. */
const field = (number: number, content: fc.Arbitrary<Buffer>): fc.Arbitrary<Buffer> =>
  fc
    .tuple(content, padding, padding)
    .map(([bytes, atTag, atSize]) =>
      Buffer.concat([varint(number * 8 + 2, atTag), varint(bytes.length, atSize), bytes]),
    );

const numeral = (number: number, max: number): fc.Arbitrary<Buffer> =>
  fc.nat({ max }).map((value) => Buffer.concat([varint(number * 8, 0), varint(value, 0)]));

/** Fields in any order, any number of times. */
const fieldsOf = (...fields: fc.Arbitrary<Buffer>[]): fc.Arbitrary<Buffer> =>
  fc.array(fc.oneof(...fields), { maxLength: 5, size: "max" }).map((parts) => Buffer.concat(parts));

const keyAt = (number: number): fc.Arbitrary<Buffer> =>
  field(
    number,
    fc
      .constantFrom("", "\0", "\0", "a", "b", "zz", "\xff", "outside")
      .map((text) => Buffer.from(text, "latin1")),
  );
/** A field that etcd does not know, and a group with one that looks like a key. */
const unknown = fc
  .constantFrom("d205016b", "e3050a0161e405", "ed0500000000")
  .map((hex) => Buffer.from(hex, "hex"));

const range = fieldsOf(keyAt(1), keyAt(1), keyAt(2), numeral(3, 3), numeral(5, 2), unknown);
const put = fieldsOf(keyAt(1), keyAt(1), field(2, fc.constant(Buffer.from("in"))), unknown);
const deletion = fieldsOf(keyAt(1), keyAt(1), keyAt(2), numeral(3, 1), unknown);
const compare = fieldsOf(keyAt(3), keyAt(64), numeral(1, 3), numeral(2, 4), numeral(4, 2));
const { txn } = fc.letrec<{ txn: Buffer; operation: Buffer }>((tie) => ({
  // A union may have several members.
  operation: fc.oneof(
    { maxDepth: 3, depthIdentifier: "nested" },
    fieldsOf(field(1, range), field(2, put), field(3, deletion)),
    field(4, tie("txn")),
  ),
  txn: fieldsOf(field(1, compare), field(2, tie("operation")), field(3, tie("operation")), unknown),
}));

const request: fc.Arbitrary<readonly [method: string, message: Buffer]> = fc.oneof(
  range.map((message) => ["Range", message] as const),
  put.map((message) => ["Put", message] as const),
  deletion.map((message) => ["DeleteRange", message] as const),
  { arbitrary: txn.map((message) => ["Txn", message] as const), weight: 2 },
);

test("no request reads or writes a key beyond its namespace, however it is encoded", async () => {
  const etcd = await startEtcd();
  onTestFinished(() => etcd.stop());
  const front = await startFront([etcd.url], { "etcd-api-namespace": ["ns/"] });
  onTestFinished(() => front.stop());
  const [client, direct] = [front.url, etcd.url].map((url) => new RawGrpc(url)) as [
    RawGrpc,
    RawGrpc,
  ];
  onTestFinished(() => [client, direct].forEach((one) => void one.close()));
  const secret = "not of the namespace";
  const beyond = ["\0", "a", "b", "ns", "ns.", "ns0", "outside", "zz", "\xff", "\xff\xff"].sort();
  for (const name of beyond) {
    const fields = { 1: Buffer.from(name, "latin1"), 2: secret };
    await direct.unary("/etcdserverpb.KV/Put", encode(fields));
  }
  const seen = new Set<string>();
  await fc.assert(
    fc.asyncProperty(request, async ([method, message]) => {
      const response = await client.unary(`/etcdserverpb.KV/${method}`, message);
      expect(response.body.includes(secret)).toBe(false);
      seen.add(`${method} ${statusOf(response).code}`);
    }),
    { numRuns: runs(2_000), endOnFailure: true },
  );
  expect([...seen]).toEqual(
    expect.arrayContaining(["Range 0", "Put 0", "DeleteRange 0", "Txn 0", "Txn 3"]),
  );
  const { body } = await direct.unary("/etcdserverpb.KV/Range", encode({ 1: "\0", 2: "\0" }));
  const objects = new Message(body.subarray(5)).all(2).map((bytes) => new Message(bytes));
  const names = objects.map((object) => object.all(1).map((name) => name.toString("latin1"))[0]);
  expect(names.filter((name) => name?.startsWith("ns/") === false).sort()).toEqual(beyond);
  expect(names.length).toBeGreaterThan(beyond.length);
  expect(body.toString("latin1").split(secret)).toHaveLength(beyond.length + 1);
});

test("a transaction within seven others is answered with the object before its put, and one within eight refused", async () => {
  const etcd = await startEtcd();
  onTestFinished(() => etcd.stop());
  const front = await startFront([etcd.url], { "etcd-api-namespace": ["ns/"] });
  onTestFinished(() => front.stop());
  const client = new RawGrpc(front.url);
  onTestFinished(() => void client.close());
  const nested = (levels: number): Buffer =>
    levels === 0
      ? encode({ 2: encode({ 2: encode({ 1: "deep", 2: "value", 4: true }) }) })
      : encode({ 2: encode({ 4: nested(levels - 1) }) });
  const put = { 1: "deep", 2: "the value before" };
  await client.unary("/etcdserverpb.KV/Put", encode(put));
  const deepest = await client.unary("/etcdserverpb.KV/Txn", nested(7));
  expect(statusOf(deepest).code).toBe("0");
  expect(deepest.body.includes("the value before")).toBe(true);
  expect(deepest.body.includes("ns/")).toBe(false);
  const deeper = statusOf(await client.unary("/etcdserverpb.KV/Txn", nested(8)));
  expect(deeper.code).toBe("13");
  expect(decodeURIComponent(deeper.message)).toContain("nested too deeply");
});
