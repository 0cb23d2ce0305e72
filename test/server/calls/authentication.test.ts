import { status } from "@grpc/grpc-js";
import { pino } from "pino";
import { describe, expect, test } from "vitest";
import { Authenticators } from "../../../src/identity/authenticators.ts";
import type { Identity } from "../../../src/identity/identity.ts";
import { KeysAwaited } from "../../../src/identity/key-set.ts";
import { Authentication } from "../../../src/server/calls/authentication.ts";
import { createServiceContext } from "../../../src/server/calls/service-context.ts";
import { FakeClock } from "../../fake-clock.ts";
import { named } from "../limits/test-callers.ts";
import { WaitingCall } from "./waiting-call.ts";

/** Authenticators whose credentials are verified when `verified` settles. */
class Slow extends Authenticators {
  verified = Promise.withResolvers<Identity>();
  /** Number of verifications that have begun. */
  begun = 0;

  constructor() {
    super({ certificateNames: [], now: Date.now });
  }

  override authenticate(): () => Promise<Identity> {
    return () => {
      this.begun++;
      return this.verified.promise;
    };
  }
}

function waiting() {
  const lines: { err?: { message: string } }[] = [];
  const logger = pino({}, { write: (line) => void lines.push(JSON.parse(line)) });
  const clock = new FakeClock();
  const context = createServiceContext({ resources: new Map(), clock, logger }, undefined);
  const authenticators = new Slow();
  const authentication = new Authentication(authenticators, context);
  const connection = {};
  const begin = (tokenBytes: number) => {
    const call = new WaitingCall(connection);
    const pending = authentication.begin(call, {
      method: "a",
      peerFacts: () => ({
        address: "10.0.0.1",
        certificate: undefined,
        isCertificateTrusted: false,
      }),
      authorization: "x".repeat(tokenBytes),
      forwardedCertificate: undefined,
    });
    if (pending === undefined) throw new Error("The call does not wait.");
    return { call, pending };
  };
  return { authenticators, begin, clock, context, lines, ...begin(100) };
}

describe("A call whose credential is being verified", () => {
  test("is served with its identity, and nothing is held for its wait any more", async () => {
    const { authenticators, call, clock, context, pending } = waiting();
    const served: string[] = [];
    pending.whenDone(100, () => void served.push(call.identity.name));
    expect(context.requestPool.total).toBe(100);
    authenticators.verified.resolve(named("alice"));
    await new Promise(setImmediate);
    expect(served).toEqual(["alice"]);
    expect([context.requestPool.total, clock.pendingTimers]).toEqual([0, 0]);
  });

  test("ends with INTERNAL if it can't be served because of a bug, which ends no other call", async () => {
    const { authenticators, call, lines, pending } = waiting();
    pending.whenDone(0, () => {
      throw new Error("a bug");
    });
    authenticators.verified.resolve(named("alice"));
    await new Promise(setImmediate);
    expect(call.ended?.code).toBe(status.INTERNAL);
    expect(lines).toMatchObject([{ method: "authentication", err: { message: "a bug" } }]);
  });

  test("is not verified if its token is the largest where there is no room for all", async () => {
    const { authenticators, begin } = waiting();
    // They wait for the keys of the issuer.
    const verified = Promise.withResolvers<Identity>();
    authenticators.verified = verified;
    verified.reject(new KeysAwaited(new Promise(() => {})));
    for (let i = 0; i < 511; i++) {
      expect(begin(15 * 1024).call.ended).toBeUndefined();
      await new Promise(setImmediate);
    }
    const { begun } = authenticators;
    const { call } = begin(16 * 1024);
    await new Promise(setImmediate);
    expect(call.ended?.code).toBe(status.RESOURCE_EXHAUSTED);
    expect(authenticators.begun).toBe(begun);
  });
});
