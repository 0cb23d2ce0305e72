import { status } from "@grpc/grpc-js";
import { beforeEach, expect, test } from "vitest";
import { GroupedOwner } from "../../../src/base/fair-queue.ts";
import type { UpstreamAnswer } from "../../../src/etcd/client/upstream-call.ts";
import {
  attaching,
  keepingAlive,
  LeaseRights,
  type LeaseUse,
  type LimitedCall,
  revoking,
} from "../../../src/etcd-api/rights/lease-rights.ts";
import { WatchFanoutError } from "../../../src/index.ts";
import { FakeClock } from "../../fake-clock.ts";
import { encode, Message } from "../../foreign/protobuf.ts";

class Owner extends GroupedOwner {}

/** The questions that etcd has not answered, with the lease of each. */
let questions: { readonly lease: bigint; readonly resolve: (answer: UpstreamAnswer) => void }[];
let asked: number;
let clock: FakeClock;
let leases: LeaseRights;
/** The keys that the caller may use begin with this. */
let own: string;
let generation: number;

beforeEach(() => {
  [questions, asked, own, generation] = [[], 0, "own", 0];
  clock = new FakeClock();
  leases = new LeaseRights((_path, _metadata, request) => {
    asked++;
    const { promise, resolve } = Promise.withResolvers<UpstreamAnswer>();
    questions.push({ lease: new Message(request).integer(1), resolve });
    return promise;
  }, clock);
});

const groups = new Map<string, object>();

function callOf(name: string, signal: AbortSignal = new AbortController().signal): LimitedCall {
  const group = groups.get(name) ?? {};
  groups.set(name, group);
  const identity = { name, groups: [], source: "token", expiresAt: undefined } as const;
  const rights = {
    get generation() {
      return generation;
    },
    mayAll: (_: unknown, keys: readonly Buffer[]) =>
      keys.every((key) => key.toString().startsWith(own)),
    refuseLease: (_: unknown, lease: bigint, isTooLarge: boolean) =>
      new WatchFanoutError("PERMISSION_DENIED", `${lease} ${isTooLarge}`),
  };
  const call = { identity, owner: new Owner(group) };
  return { call, metadata: {}, rights, signal } as unknown as LimitedCall;
}

const turn = (): Promise<void> => new Promise(setImmediate);

async function answer(...keys: readonly string[]): Promise<void> {
  await turn();
  const message = encode({ 5: [...keys] });
  questions.shift()?.resolve({ code: status.OK, details: "", message });
}

/** "allowed", or the text of the refusal. */
async function use(
  lease: number,
  how: LeaseUse,
  bytes?: number,
  caller: string = "ann",
): Promise<string> {
  const refusal = await leases.refusal(callOf(caller), BigInt(lease), how, bytes);
  return refusal?.details ?? "allowed";
}

test("Whether a caller may use a lease is remembered for as long as the use allows it", async () => {
  const first = use(1, keepingAlive);
  await answer("own1");
  expect(await first).toBe("allowed");
  clock.advance(999);
  expect([await use(1, attaching, 70), await use(1, keepingAlive), asked]).toEqual([
    ...["allowed", "allowed"],
    1,
  ]);
  clock.advance(1);
  const attached = use(1, attaching, 70);
  await answer("own1");
  expect([await attached, asked]).toEqual(["allowed", 2]);
  const revoked = use(1, revoking);
  await answer("own1");
  expect([await revoked, asked]).toEqual(["allowed", 3]);
  clock.advance(9_999);
  expect([await use(1, keepingAlive), asked]).toEqual(["allowed", 3]);
  clock.advance(1);
  const last = use(1, keepingAlive);
  await answer("foreign");
  expect([await last, asked]).toEqual(["1 false", 4]);
  // A refusal is remembered for a second, for each use.
  clock.advance(999);
  for (const how of [keepingAlive, attaching, revoking]) expect(await use(1, how)).toBe("1 false");
  expect(asked).toBe(4);
  clock.advance(1);
  const again = use(1, revoking);
  await answer("own1");
  expect([await again, asked]).toEqual(["allowed", 5]);
});

test("What is remembered is of one caller, one lease and one policy", async () => {
  const first = use(1, keepingAlive);
  await answer();
  await first;
  const others = [use(2, keepingAlive), use(1, keepingAlive, 0, "bob")];
  await turn();
  expect(questions).toHaveLength(2);
  await answer();
  await answer();
  await Promise.all(others);
  generation++;
  void use(1, keepingAlive);
  await turn();
  expect(questions).toHaveLength(1);
});

test("A lease gets no keys beyond what can be checked later", async () => {
  const first = use(1, attaching, 1_000);
  await answer("own");
  expect(await first).toBe("allowed");
  const rest = 256 * 1_024 - 1_000 - (3 + 64);
  expect(await use(1, attaching, rest + 1)).toBe("1 true");
  expect(await use(1, attaching, rest)).toBe("allowed");
  expect(await use(1, attaching, 1)).toBe("1 true");
  // More than the half: it may be used, but gets no more.
  clock.advance(1_000);
  const full = use(1, attaching, 1);
  await answer(`own${"x".repeat(128 * 1_024)}`);
  expect([await full, await use(1, keepingAlive)]).toEqual(["1 true", "allowed"]);
  const large = use(2, keepingAlive);
  await answer(`own${"x".repeat(256 * 1_024)}`);
  expect(await large).toBe("2 true");
});

test("A key that is attached again and again does not fill its lease", async () => {
  const first = use(1, attaching, 256 * 1_024 - (3 + 64));
  await answer("own");
  expect(await first).toBe("allowed");
  clock.advance(99);
  expect([await use(1, attaching, 70), await use(1, keepingAlive), asked]).toEqual([
    ...["1 true", "allowed"],
    1,
  ]);
  clock.advance(1);
  const several = Array.from({ length: 5 }, () => use(1, attaching, 70));
  for (let i = 0; i < 4; i++) await answer("own");
  expect(await Promise.all(several)).toEqual(several.map(() => "allowed"));
  expect([await use(1, attaching, 70), asked]).toEqual(["allowed", 5]);
});

test("Without an answer of etcd the call ends, and nothing is remembered but that it is too large", async () => {
  const refused = use(1, keepingAlive);
  await turn();
  const details = "etcdserver: invalid auth token";
  questions.shift()?.resolve({ code: status.UNAUTHENTICATED, details, message: undefined });
  await expect(refused).rejects.toMatchObject({ status: { code: 16, details } });
  expect(leases.size).toBe(0);
  const large = use(1, keepingAlive);
  await turn();
  const answered = { code: status.UNAVAILABLE, details: "", message: undefined };
  questions.shift()?.resolve({ ...answered, isTooLarge: true });
  expect([await large, await use(1, revoking), asked]).toEqual(["1 true", "1 true", 2]);
  const invalid = use(2, keepingAlive);
  await turn();
  questions.shift()?.resolve({ code: status.OK, details: "", message: Buffer.of(0x2a, 9) });
  await expect(invalid).rejects.toMatchObject({ status: { code: 13 } });
});

test("Few questions are at etcd at once, fewer of one caller, and they wait for a while", async () => {
  const ofAnn = Array.from({ length: 40 }, (_, i) => use(i + 1, revoking));
  const same = use(1, keepingAlive);
  await turn();
  expect(questions).toHaveLength(4);
  const others = Array.from({ length: 40 }, (_, i) => use(1, revoking, 0, `other ${i}`));
  await turn();
  expect(questions).toHaveLength(16);
  const settled = Promise.allSettled([...ofAnn, same, ...others]);
  clock.advance(3_000);
  for (const { resolve } of questions.splice(0)) {
    resolve({ code: status.OK, details: "", message: encode({}) });
  }
  const results = await settled;
  const allowed = results.filter((result) => result.status === "fulfilled");
  expect(allowed).toHaveLength(16);
  const late = results.find((result) => result.status === "rejected");
  expect(late?.reason).toMatchObject({ status: { code: 14 } });
  expect(asked).toBe(16);
});

test("A call that has ended waits no longer", async () => {
  for (const lease of [1, 2, 3, 4]) void use(lease, revoking);
  const gone = new AbortController();
  const waiting = leases.refusal(callOf("ann", gone.signal), 5n, revoking);
  gone.abort(new Error("gone"));
  await expect(waiting).rejects.toThrow("gone");
  expect(asked).toBe(4);
});

test("Calls of a caller for the same lease share the answer to the first", async () => {
  const several = Array.from({ length: 20 }, () => use(1, keepingAlive));
  for (let i = 0; i < 4; i++) await answer();
  expect(await Promise.all(several)).toEqual(several.map(() => "allowed"));
  expect(asked).toBe(4);
});

test("Few verdicts are remembered", async () => {
  for (let i = 0; i < 10_010; i++) {
    const used = use(i + 1, keepingAlive);
    for (;;) {
      const question = questions.shift();
      question?.resolve({ code: status.OK, details: "", message: encode({}) });
      if (question !== undefined) break;
      await Promise.resolve();
    }
    await used;
  }
  expect(leases.size).toBe(10_000);
  expect(await use(10_010, keepingAlive)).toBe("allowed");
  void use(1, keepingAlive);
  await turn();
  expect(questions).toHaveLength(1);
});
