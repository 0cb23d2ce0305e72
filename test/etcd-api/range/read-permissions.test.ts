import { EventEmitter } from "node:events";
import { constants, type OutgoingHttpHeaders } from "node:http2";
import { beforeEach, expect, test } from "vitest";
import { type RangeRequest, readRangeRequest } from "../../../src/etcd/wire/range-request.ts";
import { ReadPermissions } from "../../../src/etcd-api/range/range-service.ts";
import { FakeClock } from "../../fake-clock.ts";
import { encode } from "../../foreign/protobuf.ts";

const future = "etcdserver: mvcc: required revision is a future revision";
const permits = { "grpc-status": "11", "grpc-message": future };

/** A stream to etcd, which the test answers. */
class Question extends EventEmitter {
  readonly headers: OutgoingHttpHeaders;
  request: Buffer = Buffer.alloc(0);
  closed = false;
  rstCode = 0;

  constructor(headers: OutgoingHttpHeaders) {
    super();
    this.headers = headers;
  }

  write(request: Buffer): void {
    this.request = request;
  }

  end(): void {}

  close(code: number): void {
    this.closed = true;
    this.rstCode = code;
  }

  answer(trailers: Readonly<Record<string, string>>): void {
    this.closed = true;
    this.emit("response", trailers);
    this.emit("close");
  }
}

let questions: Question[];
let clock: FakeClock;
let accessChanges: number;
let permissions: ReadPermissions;

beforeEach(() => {
  questions = [];
  clock = new FakeClock();
  accessChanges = 0;
  const request = (headers: OutgoingHttpHeaders): Question => {
    questions.push(new Question(headers));
    return questions.at(-1) as Question;
  };
  const upstream = {
    whenAvailable: ({ open }: { open: (connection: never) => void }) => open({ request } as never),
  };
  permissions = new ReadPermissions(upstream as never, clock, () => accessChanges);
});

const rangeOf = (key: string, end = ""): RangeRequest =>
  readRangeRequest(encode({ 1: key, 2: end === "" ? undefined : end, 9: true })) as RangeRequest;
const confirm = (token: string, key = "a", end = "") =>
  permissions.confirm(rangeOf(key, end), { token });

test("Permissions to read are remembered for a second, and are few", async () => {
  const asked = confirm("t");
  expect(confirm("t")).toBe(asked);
  questions[0]?.answer(permits);
  expect(await asked).toBe(true);
  expect(confirm("t")).toBeUndefined();
  clock.advance(1_000);
  expect(confirm("t")).toBeInstanceOf(Promise);
  expect(questions).toHaveLength(2);
  for (let i = 0; i < 10_050; i++) {
    void confirm("t", String(i));
    questions.at(-1)?.answer(permits);
  }
  expect(permissions.size).toBe(10_000);
});

test("A permission is of one credential and one range", async () => {
  const asked = permissions.confirm(rangeOf("a", "ab"), { token: "t" });
  questions[0]?.answer(permits);
  await asked;
  expect(permissions.confirm(rangeOf("a", "ab"), { token: "t" })).toBeUndefined();
  for (const [range, metadata] of [
    [rangeOf("a", "ab"), { token: "u" }],
    [rangeOf("a", "ab"), { authorization: "t" }],
    [rangeOf("a", "ab"), { token: "t", authorization: "t" }],
    [rangeOf("a", "ab"), { token: "t", "x-forwarded-client-cert": "URI=spiffe://other" }],
    [rangeOf("aa", "b"), { token: "t" }],
    [rangeOf("aab"), { token: "t" }],
    [rangeOf("a"), { token: "t" }],
    [rangeOf("a", "ac"), { token: "t" }],
  ] as const) {
    expect(permissions.confirm(range, metadata)).toBeInstanceOf(Promise);
  }
});

test("Only etcd's answer behind its check of the permission is one", async () => {
  for (const trailers of [
    { "grpc-status": "0" },
    { "grpc-status": "7", "grpc-message": "etcdserver: permission denied" },
    { "grpc-status": "16", "grpc-message": "etcdserver: invalid auth token" },
    {
      "grpc-status": "11",
      "grpc-message": "etcdserver: mvcc: required revision has been compacted",
    },
    { "grpc-status": "7", "grpc-message": future },
    { "grpc-status": "12", "grpc-message": future },
    { "grpc-message": future },
  ]) {
    const asked = confirm("t");
    questions.at(-1)?.answer(trailers as Record<string, string>);
    expect(await asked, JSON.stringify(trailers)).toBe(false);
    expect(permissions.size).toBe(0);
  }
});

test("Without an answer for 3 s there is no permission", async () => {
  const asked = confirm("t");
  clock.advance(3_000);
  expect(await asked).toBe(false);
  expect(questions[0]?.rstCode).toBe(constants.NGHTTP2_CANCEL);
});

test("Nothing that was permitted before etcd's authentication changed stands", async () => {
  const before = confirm("t");
  questions[0]?.answer(permits);
  await before;
  accessChanges++;
  const during = confirm("t");
  expect(during).toBeInstanceOf(Promise);
  accessChanges++;
  questions[1]?.answer(permits);
  expect(await during).toBe(false);
  expect(confirm("t")).toBeInstanceOf(Promise);
});

test("etcd is asked with the client's metadata, without its deadline and for nothing to read", () => {
  const metadata = {
    token: "t",
    hasleader: "true",
    "grpc-timeout": "1S",
    "grpc-accept-encoding": "gzip",
  };
  void permissions.confirm(rangeOf("k", "l"), metadata);
  expect(questions[0]?.headers).toMatchObject({ token: "t", hasleader: "true" });
  expect(questions[0]?.headers).not.toHaveProperty("grpc-timeout");
  expect(questions[0]?.headers).not.toHaveProperty("grpc-accept-encoding");
  const expected = encode({ 1: "k", 2: "l", 4: 2n ** 63n - 1n, 7: true });
  expect(questions[0]?.request.subarray(5)).toEqual(expected);
});
