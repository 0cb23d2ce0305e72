import { status } from "@grpc/grpc-js";
import { describe, expect, test } from "vitest";
import { invalidRequest } from "../../../src/base/errors.ts";
import type { Access } from "../../../src/policy/access.ts";
import type { AuditEntry } from "../../../src/server/calls/audit.ts";
import { serveConversation, serveRequest } from "../../../src/server/calls/serve-call.ts";
import type { ServerCall } from "../../../src/server/calls/server-call.ts";
import { createServiceContext } from "../../../src/server/calls/service-context.ts";
import { silent } from "../../cacher/cached-store.ts";
import { policyOf } from "../../config/parsed-policy.ts";
import { FakeClock } from "../../fake-clock.ts";
import { WaitingCall } from "./waiting-call.ts";

function setUp() {
  const clock = new FakeClock();
  const limits = {
    maxRetainedRequestBytes: 100,
    maxRetainedRequestBytesPerConnection: 100,
  };
  const options = { resources: new Map(), clock, logger: silent, limits };
  const handled: unknown[] = [];
  const method = {
    name: "a",
    isStreaming: false,
    access: "open" as const,
    decode: () => ({ request: undefined, fault: invalidRequest("key", "Not called.") }),
    handle: (_call: unknown, request: unknown) => void handled.push(request),
  };
  return {
    context: createServiceContext(options, undefined),
    handled,
    method,
  };
}

const decoded = (request: string) => ({ request, fault: undefined });

describe("A decoded request", () => {
  test("is handled at once by a method that does not wait", () => {
    const { context, handled, method } = setUp();
    serveRequest(context, method, new WaitingCall({}), decoded("a"));
    expect(handled).toEqual(["a"]);
  });

  test("waits for a time slice of its connection, charged with its size, where the method does", () => {
    const { context, handled, method } = setUp();
    const { retainedRequests } = context;
    const waiting = {
      ...method,
      queuedBytes: () => 10,
      handle: (call: ServerCall, request: unknown): undefined => {
        handled.push(request);
        if (request !== "a") return;
        serveRequest(context, method, call, decoded("at once"));
        serveRequest(context, waiting, new WaitingCall(call.connection), decoded("b"));
        expect(retainedRequests.of(call.connection)).toBe(10);
      },
    };
    serveRequest(context, waiting, new WaitingCall({}), decoded("a"));
    expect(handled).toEqual(["a", "at once", "b"]);
    expect(retainedRequests.total).toBe(0);
  });

  test("that is invalid ends the call, and is not handled", () => {
    const { context, handled, method } = setUp();
    const call = new WaitingCall({});
    const fault = invalidRequest("key", "The key is invalid.");
    serveRequest(context, method, call, { request: undefined, fault });
    expect(call.ended).toMatchObject({
      code: status.INVALID_ARGUMENT,
      details: "The key is invalid.",
    });
    expect(handled).toEqual([]);
  });
});

test.each([
  ["removed", "roles: []\nbindings: []", status.PERMISSION_DENIED, "denied: PERMISSION_DENIED"],
  ["granted by another rule", granting("new"), undefined, "allowed by new[0]"],
] as const)(
  "A stream that waits while its right is %s is decided by the new policy, and audited once",
  (_, next, code, said) => {
    const { context, handled, method } = setUp();
    const { authorizer } = context;
    authorizer.replace(policyOf(granting("old")));
    const entries: string[] = [];
    const audit = {
      level: "reads" as const,
      record: ({ allowed, rule, code: name }: AuditEntry): void => {
        entries.push(allowed ? `allowed by ${rule}` : `denied: ${name}`);
      },
    };
    const calls: WaitingCall[] = [];
    const guarded = {
      ...method,
      isStreaming: true,
      access: (): Access => ({ verb: "watch", resource: "pods", scope: { prefix: "" } }),
      queuedBytes: () => 10,
      handle: (call: ServerCall, request: unknown): undefined => {
        handled.push(request);
        if (request !== "a") return;
        // This one waits for the one that is being handled.
        const waiting = new WaitingCall(call.connection);
        calls.push(waiting);
        serveRequest({ ...context, audit }, guarded, waiting, decoded("b"));
        expect(waiting.ended).toBeUndefined();
        expect(entries).toEqual([]);
        authorizer.replace(policyOf(next));
      },
    };
    serveRequest({ ...context, audit }, guarded, new WaitingCall({}), decoded("a"));
    expect(handled).toEqual(code === undefined ? ["a", "b"] : ["a"]);
    expect(calls.map(({ ended }) => ended?.code)).toEqual([code]);
    expect(entries).toEqual(["allowed by old[0]", said]);
  },
);

/** A policy with one role, which allows everything to anonymous callers. */
function granting(role: string): string {
  return `
roles: [{ name: ${role}, rules: [{ resources: ["*"], prefixes: ["*"], verbs: ["*"] }] }]
bindings: [{ role: ${role}, subjects: [anonymous] }]
`;
}

test("A stream of requests is passed to its method with a function that reads the next one", () => {
  const { context, handled } = setUp();
  const next = async (): Promise<undefined> => undefined;
  const method = {
    name: "a",
    maxRequestBytes: 1,
    converse: (_call: unknown, read: unknown) => void handled.push(read),
  };
  serveConversation(context, method, new WaitingCall({}), next);
  expect(handled).toEqual([next]);
});
