import { type ServiceError, status } from "@grpc/grpc-js";
import { expect, test } from "vitest";
import { type Reason, WatchFanoutError } from "../../src/base/errors.ts";
import { DeepReads } from "../../src/cacher/catch-up/deep-reads.ts";
import { retryDelayMs } from "../../src/wire/call-error.ts";
import { ManualTimers } from "../server/limits/manual-timers.ts";
import { describeStoreContract } from "./backends.ts";
import {
  openWorld,
  type ReplicaOptions,
  resource,
  untilCached,
  untilWaiting,
  type World,
} from "./replica.ts";

const exact = "REVISION_MATCH_EXACT";

interface Row {
  readonly reason: Reason;
  readonly code: keyof typeof status;
  readonly when: string;
  /** Which metadata there is. */
  readonly metadata?: readonly string[];
  /** Whether a retry helps. */
  readonly retry?: boolean;
  /** The field of the request that is wrong. */
  readonly field?: string;
  readonly options?: ReplicaOptions;
  /** Makes the call that fails. */
  readonly call: (world: World) => Promise<unknown>;
}

const oneEvent = { ageMs: 0, minEvents: 1, maxEvents: 1, maxBytes: 1 };

/** Of which none waits for its turn. */
const oneDeepRead = new DeepReads(new ManualTimers(), { concurrent: 1, queued: 0 });

const rows: readonly Row[] = [
  {
    reason: "INVALID_REQUEST",
    ...{ code: "INVALID_ARGUMENT", when: "an unparsable selector", field: "label_selector" },
    call: ({ client }) => client.list({ resource, label_selector: "a in b" }),
  },
  {
    reason: "INVALID_REQUEST",
    ...{ code: "INVALID_ARGUMENT", when: "a field that is not declared", field: "field_selector" },
    call: ({ client }) => client.watch({ resource, field_selector: "spec.nose=1" }).ended,
  },
  {
    reason: "INVALID_REQUEST",
    ...{ code: "INVALID_ARGUMENT", when: "a revision with the wrong match", field: "revision" },
    call: ({ client }) => client.get({ resource, key: "a", revision: 1 }),
  },
  {
    reason: "INVALID_REQUEST",
    ...{ code: "INVALID_ARGUMENT", when: "a bad token", field: "page_token" },
    call: ({ client }) => client.list({ resource, page_token: "bad" }),
  },
  {
    reason: "INVALID_REQUEST",
    ...{ code: "INVALID_ARGUMENT", when: "a token from another request", field: "page_token" },
    call: async ({ client, write }) => {
      await write(["a", ""], ["b", ""]);
      const { next_page_token } = await client.list({ resource, page_size: 1 });
      return client.list({ resource, prefix: "b", page_token: next_page_token });
    },
  },
  {
    reason: "INVALID_REQUEST",
    ...{ code: "INVALID_ARGUMENT", when: "an unknown enum value", field: "revision_match" },
    call: ({ client }) => client.get({ resource, key: "a", revision_match: 77 as never }),
  },
  {
    reason: "INVALID_REQUEST",
    ...{ code: "INVALID_ARGUMENT", when: "a negative number", field: "after_revision" },
    call: ({ client }) => client.watch({ resource, after_revision: -1 }).ended,
  },
  {
    reason: "INVALID_REQUEST",
    ...{ code: "INVALID_ARGUMENT", when: "an empty key", field: "key" },
    call: ({ client }) => client.put({ resource, key: "" }),
  },
  {
    reason: "INVALID_REQUEST",
    ...{
      code: "INVALID_ARGUMENT",
      when: "a Delete that expects 0",
      field: "expected_mod_revision",
    },
    call: ({ client }) => client.delete({ resource, key: "a", expected_mod_revision: 0 }),
  },
  {
    reason: "INVALID_REQUEST",
    ...{ code: "INVALID_ARGUMENT", when: "bookmarks below 1 s", field: "bookmark_interval" },
    call: ({ client }) => {
      const bookmark_interval = { nanos: 999_000_000 };
      return client.watch({ resource, bookmark_interval }).ended;
    },
  },
  {
    reason: "UNKNOWN_RESOURCE",
    ...{ code: "NOT_FOUND", when: "no such resource", metadata: ["resource"] },
    call: ({ client }) => client.list({ resource: "others" }),
  },
  {
    reason: "OBJECT_NOT_FOUND",
    ...{ code: "NOT_FOUND", when: "Get of an absent key", metadata: ["revision"] },
    call: ({ client }) => client.get({ resource, key: "a" }),
  },
  {
    reason: "OBJECT_NOT_FOUND",
    ...{ code: "NOT_FOUND", when: "Delete of an absent key", metadata: ["revision"] },
    call: ({ client }) => client.delete({ resource, key: "a" }),
  },
  {
    reason: "OBJECT_NOT_FOUND",
    ...{ code: "NOT_FOUND", when: "Delete of an absent key that is expected somewhere" },
    metadata: ["revision"],
    call: ({ client }) => client.delete({ resource, key: "a", expected_mod_revision: 1 }),
  },
  {
    reason: "REVISION_TOO_OLD",
    ...{ code: "OUT_OF_RANGE", when: "Watch: compacted in the store" },
    metadata: ["oldest_revision", "requested_revision"],
    options: { cacher: { eventWindow: oneEvent } },
    call: async (world) => {
      const after_revision = await world.write(["a", "1"]);
      const compacted = await world.write(["a", "2"]);
      await untilCached(world, await world.write(["a", "3"]));
      await world.backend.compact(compacted);
      return world.client.watch({ resource, after_revision }).ended;
    },
  },
  {
    reason: "RESUME_LIMITED",
    ...{ code: "RESOURCE_EXHAUSTED", retry: true, when: "Watch: too many read before the window" },
    metadata: ["limit", "limit_name"],
    options: { cacher: { eventWindow: oneEvent, deepReads: oneDeepRead } },
    call: async (world) => {
      const after_revision = await world.write(["a", "1"]);
      await world.write(["a", "2"]);
      await untilCached(world, await world.write(["a", "3"]));
      const release = await oneDeepRead.enter({}, new AbortController().signal, () => {});
      const end = await world.client.watch({ resource, after_revision }).ended;
      release();
      return end;
    },
  },
  {
    reason: "REVISION_TOO_OLD",
    ...{ code: "OUT_OF_RANGE", when: "a read: compacted in etcd" },
    metadata: ["oldest_revision", "requested_revision"],
    call: async (world) => {
      const revision = await world.write(["a", "1"]);
      await world.backend.compact(await world.write(["a", "2"]));
      const { client } = await world.another();
      return client.get({ resource, key: "a", revision_match: exact, revision });
    },
  },
  {
    reason: "HISTORY_CHANGED",
    ...{ code: "OUT_OF_RANGE", when: "the revision is above etcd's own" },
    metadata: ["history_id"],
    call: async ({ client, write }) => {
      const revision = (await write(["a", "1"])) + 1;
      return client.get({ resource, key: "a", revision_match: exact, revision });
    },
  },
  {
    reason: "HISTORY_CHANGED",
    ...{ code: "OUT_OF_RANGE", when: "history_id is another", metadata: ["history_id"] },
    call: ({ client }) => client.put({ resource, key: "a", history_id: "another" }),
  },
  {
    reason: "REVISION_TOO_NEW",
    ...{ code: "UNAVAILABLE", retry: true, when: "this replica has not got there within 3 s" },
    metadata: ["current_revision", "requested_revision"],
    call: async (world) => {
      world.upstream.hold();
      const revision = await world.write(["a", "1"]);
      const response = world.client.list({ resource, revision_match: exact, revision });
      await untilWaiting(world);
      world.clock.advance(3_000);
      return response;
    },
  },
  {
    reason: "REVISION_CONFLICT",
    ...{ code: "ABORTED", when: "expected_mod_revision does not hold" },
    metadata: ["mod_revision"],
    call: async ({ client, write }) => {
      await write(["a", "1"]);
      return client.put({ resource, key: "a", expected_mod_revision: 1 });
    },
  },
  {
    reason: "LEASE_NOT_FOUND",
    ...{ code: "FAILED_PRECONDITION", when: "Put under a lease that is not there" },
    metadata: ["lease"],
    call: ({ client }) => client.put({ resource, key: "a", lease: "9223372036854775807" }),
  },
  {
    reason: "VALUE_TOO_LARGE",
    ...{ code: "INVALID_ARGUMENT", when: "above etcd's request limit", field: "value" },
    call: ({ client }) => client.put({ resource, key: "a", value: Buffer.alloc(1_700_000) }),
  },
];

describeStoreContract("Every error", (open) => {
  test.each(rows)("$reason ($code): $when", async (row) => {
    const world = await openWorld(open, row.options);
    const { error, code, retryMs } = await failure(row.call(world));
    expect(error.reason).toBe(row.reason);
    expect(code).toBe(row.code);
    expect(Object.keys(error.metadata).toSorted()).toEqual(row.metadata ?? []);
    for (const value of Object.values(error.metadata)) expect(value).not.toBe("");
    expect(error.field).toBe(row.field);
    expect(retryMs !== undefined).toBe(row.retry === true);
    // A sentence, or more of them.
    expect(error.message).toMatch(/^\S.*\.$/s);
  });

  test("HISTORY_CHANGED, REVISION_CONFLICT and LEASE_NOT_FOUND change nothing", async () => {
    const { client, write } = await openWorld(open);
    const revision = await write(["a", "1"]);
    const put = { resource, key: "a", value: Buffer.from("2") };
    await failure(client.put({ ...put, history_id: "another" }));
    await failure(client.put({ ...put, expected_mod_revision: 0 }));
    await failure(client.put({ ...put, lease: "77" }));
    await failure(client.delete({ resource, key: "a", history_id: "another" }));
    await failure(client.delete({ resource, key: "a", expected_mod_revision: revision - 1 }));
    const { object, revision: now } = await client.get({ resource, key: "a" });
    expect([object?.value.toString(), now]).toEqual(["1", `${revision}`]);
  });
});

/** How the call, or the watch whose end it is, fails. */
async function failure(call: Promise<unknown>): Promise<{
  readonly error: WatchFanoutError;
  readonly code: string;
  readonly retryMs: number | undefined;
}> {
  const error = await call.catch((caught: unknown) => caught);
  if (!(error instanceof WatchFanoutError)) throw new Error("The call went through.");
  const cause = error.cause as ServiceError;
  return { error, code: status[cause.code], retryMs: retryDelayMs(cause) };
}
