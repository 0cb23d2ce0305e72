import { describe, expect, test } from "vitest";
import type { WatchFanoutError } from "../../../src/base/errors.ts";
import type { Identity } from "../../../src/identity/identity.ts";
import type { Access } from "../../../src/policy/access.ts";
import { Authorizer } from "../../../src/policy/authorizer.ts";
import type { Policy } from "../../../src/policy/policy.ts";
import { revokeOnChange } from "../../../src/server/calls/authorization.ts";
import { type OpenStream, OpenStreams } from "../../../src/server/kernel/open-streams.ts";
import { policyOf } from "../../config/parsed-policy.ts";
import { identityOf } from "../../policy/identities.ts";
import { WorkClock } from "../../work-clock.ts";

function allowing(...names: string[]): Policy {
  return policyOf(`
roles: [{ name: watcher, rules: [{ resources: [pods], prefixes: ["*"], verbs: [watch] }] }]
bindings: [{ role: watcher, subjects: [root, ${names.join(", ")}] }]
`);
}

/** How long it takes to end a stream, in milliseconds. */
const endMs = 0.1;

class Stream implements OpenStream {
  readonly connection = this;
  readonly owner = this;
  readonly identity: Identity;
  readonly access: Access | undefined;
  readonly #clock: WorkClock;
  ended: WatchFanoutError | undefined;

  constructor(clock: WorkClock, name: string, access: Access | undefined) {
    this.#clock = clock;
    this.identity = identityOf(name);
    this.access = access;
  }

  evict(error: WatchFanoutError): void {
    this.ended = error;
    this.#clock.spend(endMs);
  }
}

const watching: Access = { verb: "watch", resource: "pods", scope: { prefix: "" } };

function setUp(count: number) {
  const clock = new WorkClock();
  const streams = new OpenStreams(10_000);
  const authorizer = new Authorizer(allowing("ann", "bob"));
  revokeOnChange(authorizer, streams, clock);
  const open = (name: string, needsRight = true): Stream => {
    const stream = new Stream(clock, name, needsRight ? watching : undefined);
    streams.add(stream);
    return stream;
  };
  const ann = Array.from({ length: count }, () => open("ann"));
  const bob = Array.from({ length: count }, () => open("bob"));
  const ended = (): number => [...ann, ...bob].filter((stream) => stream.ended).length;
  return { clock, streams, authorizer, open, ann, bob, ended };
}

describe("A changed policy", () => {
  test("ends the streams that it does not allow in time slices", () => {
    const { clock, streams, authorizer, ann, bob, ended } = setUp(1_000);
    authorizer.replace(allowing("bob"));
    const inFirstTurn = ended();
    expect(inFirstTurn).toBeGreaterThan(0);
    // A turn is 2 ms of work, in which some 20 streams are ended.
    expect(inFirstTurn).toBeLessThan(40);
    let turns = 0;
    for (; clock.pendingImmediates > 0; turns++) clock.runTurn();
    expect(turns).toBeGreaterThan(25);
    expect(ann.every((stream) => stream.ended?.reason === "PERMISSION_DENIED")).toBe(true);
    expect(bob.some((stream) => stream.ended)).toBe(false);
    expect(streams.size).toBe(1_000);
    expect(authorizer.revoked).toBe(1_000);
  });

  test("that is replaced during this is not applied to the other streams", () => {
    const { clock, streams, authorizer, ended } = setUp(1_000);
    authorizer.replace(allowing("bob"));
    const before = ended();
    authorizer.replace(allowing("ann", "bob"));
    clock.runImmediates();
    expect(ended()).toBe(before);
    expect(streams.size).toBe(2_000 - before);
  });

  test("ends no stream that needs no right, and none that opens under it", () => {
    const { clock, authorizer, open } = setUp(1_000);
    const health = open("ann", false);
    authorizer.replace(allowing("bob", "cid"));
    const cid = open("cid");
    clock.runImmediates();
    expect(health.ended).toBeUndefined();
    expect(cid.ended).toBeUndefined();
  });
});
