import { expect, onTestFinished, test } from "vitest";
import { startEtcd } from "../../etcd/etcd.ts";
import { encode, type Fields, Message } from "../../foreign/protobuf.ts";
import fc from "../../property.ts";
import { RawGrpc, type RawResponse, statusOf } from "../raw-grpc.ts";
import { nearKeys, storedKeys } from "./key-requests.ts";
import { callers, mayKey } from "./limited-callers.ts";
import { startTier } from "./limited-tiers.ts";

/** Number of leases for each tier. `npm run rights` takes 10,000 requests. */
const leases = Math.ceil(Number(process.env["RIGHTS_REQUESTS"] ?? 600) / 15);

/** What a caller does with a lease. */
const uses = ["keepAlive", "timeToLive", "keys", "put", "txn", "nested", "revoke"] as const;
type Use = (typeof uses)[number];

interface Step {
  readonly use: Use;
  readonly key: Buffer;
}

interface Attempt {
  readonly caller: string;
  /** Those that are attached to the lease before. */
  readonly attached: readonly Buffer[];
  readonly steps: readonly Step[];
  /** What another caller does then. */
  readonly other: string;
  readonly last: Step;
}

/** Whether a caller may attach, and keep or end what is attached: a model that shares no code with the service. */
const mayLease = (caller: string, key: Buffer): boolean =>
  mayKey(caller, "put", key) && mayKey(caller, "delete", key);
const putters = ["writer", "editor", "owner"];

/** Most of the keys of a lease are close to the caller's rights, so that some may be used. */
const attempt: fc.Arbitrary<Attempt> = fc.oneof(
  ...callers.flatMap((caller) => {
    const near = nearKeys(caller);
    const own = near.filter((key) => mayLease(caller, key));
    const pools = [storedKeys, near, own, own, own, own].filter(({ length }) => length > 0);
    return pools.map((pool) => {
      const key = fc.constantFrom(...pool);
      const step = fc.record({ use: fc.constantFrom(...uses), key });
      return fc.record({
        caller: fc.constant(caller),
        attached: fc.uniqueArray(key, { maxLength: 3, comparator: (a, b) => a.equals(b) }),
        steps: fc.array(step, { minLength: 1, maxLength: 6 }),
        ...{ other: fc.constantFrom(...callers), last: step },
      });
    });
  }),
);

const textOf = (key: Buffer): string => key.toString("latin1");
const granted = 10_000;

class LeaseWorld {
  readonly #etcd: RawGrpc;
  readonly #limited: RawGrpc;
  readonly #metadata: Readonly<Record<string, string>>;

  constructor(etcdUrl: string, url: string, metadata: Readonly<Record<string, string>>) {
    this.#etcd = new RawGrpc(etcdUrl);
    this.#limited = new RawGrpc(url);
    this.#metadata = metadata;
    onTestFinished(() => {
      this.#etcd.close();
      this.#limited.close();
    });
  }

  /** A lease with these keys. */
  async grant(keys: readonly Buffer[]): Promise<bigint> {
    const lease = (await this.#do("Lease/LeaseGrant", { 1: granted })).integer(2);
    for (const key of keys) await this.#do("KV/Put", { 1: key, 2: "theirs", 3: lease });
    return lease;
  }

  /** Each key with its modification revision and its lease. */
  async state(): Promise<Map<string, string>> {
    const all = await this.#do("KV/Range", { 1: Buffer.of(0), 2: Buffer.of(0) });
    return new Map(
      all
        .messages(2)
        .filter((kv) => !textOf(kv.bytes(1)).includes("watchfanout"))
        .map((kv) => [textOf(kv.bytes(1)), `${kv.number(3)} ${kv.integer(6)}`]),
    );
  }

  /** The keys of a lease; undefined: it is gone. */
  async attached(lease: bigint): Promise<Buffer[] | undefined> {
    const answer = await this.#do("Lease/LeaseTimeToLive", { 1: lease, 2: true });
    return answer.number(3) < 0 ? undefined : answer.all(5);
  }

  call(caller: string, path: string, fields: Fields): Promise<RawResponse> {
    const metadata = { authorization: `Bearer ${caller}`, ...this.#metadata };
    return this.#limited.unary(`/etcdserverpb.${path}`, encode(fields), metadata);
  }

  async #do(path: string, fields: Fields): Promise<Message> {
    const response = await this.#etcd.unary(
      `/etcdserverpb.${path}`,
      encode(fields),
      this.#metadata,
    );
    expect(statusOf(response).code).toBe("0");
    return new Message(response.body.subarray(5));
  }
}

/** A request that uses the lease. */
function requestOf(use: Use, lease: bigint, key: Buffer): readonly [path: string, fields: Fields] {
  const put = { 1: key, 2: "mine", 3: lease };
  const operation = encode({ 2: encode(put) });
  if (use === "keepAlive") return ["Lease/LeaseKeepAlive", { 1: lease }];
  if (use === "timeToLive") return ["Lease/LeaseTimeToLive", { 1: lease }];
  if (use === "keys") return ["Lease/LeaseTimeToLive", { 1: lease, 2: true }];
  if (use === "revoke") return ["Lease/LeaseRevoke", { 1: lease }];
  if (use === "put") return ["KV/Put", put];
  if (use === "txn") return ["KV/Txn", { 2: operation }];
  return ["KV/Txn", { 2: encode({ 4: encode({ 2: operation }) }) }];
}

test.each([
  ["root", "without users of etcd"],
  ["relay", "without users of etcd"],
  ["root", "with users of etcd"],
] as const)(
  "At a %s %s a limited caller uses the leases alone whose keys it may put and delete",
  async (tier, users) => {
    const hasUsers = users === "with users of etcd";
    const etcd = await startEtcd(hasUsers ? { rootPassword: "password" } : {});
    onTestFinished(() => etcd.stop());
    const flags = { "etcd-username": ["root"], "etcd-password": ["password"] };
    const front = await startTier(tier, etcd.url, hasUsers ? flags : {});
    const login = new RawGrpc(etcd.url);
    const body = encode({ 1: "root", 2: "password" });
    const answer = await login.unary("/etcdserverpb.Auth/Authenticate", body);
    login.close();
    const token = hasUsers ? new Message(answer.body.subarray(5)).text(2) : undefined;
    const world = new LeaseWorld(etcd.url, front.url, token === undefined ? {} : { token });
    const seen = { allowed: 0, refused: 0, named: 0, revoked: 0, attached: 0 };

    const check = async (given: Attempt): Promise<void> => {
      const lease = await world.grant(given.attached);
      // What is remembered of a lease is of one caller, so the other one is not allowed more than it may do now.
      const steps = given.steps.map((step) => ({ ...step, caller: given.caller }));
      const { caller: first, other, last } = given;
      if (other !== first) steps.push({ ...last, caller: other });
      for (const { caller, use, key } of steps) {
        const keys = await world.attached(lease);
        if (keys === undefined) return;
        const before = await world.state();
        const isUsable =
          putters.includes(caller) && keys.every((attachedKey) => mayLease(caller, attachedKey));
        const isPut = use === "put" || use === "txn" || use === "nested";
        const isRead = use !== "keys" || keys.every((each) => mayKey(caller, "get", each));
        const isAllowed = isUsable && isRead && (!isPut || mayLease(caller, key));
        const [path, fields] = requestOf(use, lease, key);
        const response = await world.call(caller, path, fields);
        const message = new Message(response.body.subarray(5));
        const what = `${caller} ${use} ${textOf(key)} with ${keys.map(textOf).join()}`;
        const isSilent = use === "keepAlive" && putters.includes(caller);
        expect(statusOf(response).code, what).toBe(isAllowed || isSilent ? "0" : "7");
        if (isAllowed) seen.allowed++;
        else seen.refused++;
        if (isSilent) expect(message.number(3), what).toBe(isAllowed ? granted : 0);
        const shown = use === "timeToLive" || use === "keys" ? message.all(5).map(textOf) : [];
        const mayShow = use === "keys" && isAllowed ? keys.map(textOf) : [];
        expect(shown.toSorted(), what).toEqual(mayShow.toSorted());
        if (shown.length > 0) seen.named++;

        const after = await world.state();
        const changed = [...new Set([...before.keys(), ...after.keys()])].filter(
          (each) => before.get(each) !== after.get(each),
        );
        const ended = use === "revoke" ? keys.map(textOf) : [textOf(key)];
        const mayChange = isAllowed && (isPut || use === "revoke") ? ended : [];
        expect(changed.toSorted(), what).toEqual(mayChange.toSorted());
        const left = await world.attached(lease);
        if (isAllowed && use === "revoke") {
          expect(left, what).toBeUndefined();
          seen.revoked++;
        } else {
          const expected = new Set(keys.map(textOf));
          if (isAllowed && isPut) expected.add(textOf(key));
          expect(left?.map(textOf).toSorted(), what).toEqual([...expected].toSorted());
          if (isAllowed && isPut) seen.attached++;
        }
      }
    };
    await fc.assert(fc.asyncProperty(attempt, check), { numRuns: leases, endOnFailure: true });
    if (process.env["RIGHTS_REQUESTS"] !== undefined)
      process.stderr.write(`${JSON.stringify(seen)}\n`);
    // The test is worth nothing if nothing is allowed.
    for (const [what, count] of Object.entries(seen))
      expect([what, count > 0]).toEqual([what, true]);
  },
  900_000,
);
