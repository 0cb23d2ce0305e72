import { status } from "@grpc/grpc-js";
import { describe, expect, onTestFinished, test } from "vitest";
import { systemClock } from "../../../src/base/clock.ts";
import { type Reason, WatchFanoutError } from "../../../src/base/errors.ts";
import { MemoryStore } from "../../../src/storage/memory/memory-store.ts";
import { ResourceKeys } from "../../../src/storage/memory/resource-keys.ts";
import { descriptors } from "../../../src/wire/descriptors.ts";
import { listWatchService } from "../../../src/wire/services.ts";
import fc, { runs } from "../../property.ts";
import { framed, RawConnection } from "../http2/raw-connection.ts";
import { ManualTimers } from "../limits/manual-timers.ts";
import { ScriptedResource } from "../scripted-resource.ts";
import { serve, serveThings } from "../served.ts";

const resource = "things";
/** Above what a double holds exactly. */
const unsafe = "9007199254740993";

describe("An invalid request is refused with the invalid field", () => {
  const exact = "REVISION_MATCH_EXACT";
  test.each<[string, string, object, string]>([
    ["an empty key", "get", { key: "" }, "key"],
    ["a negative revision", "get", { key: "a", revision: -1 }, "revision"],
    ["a revision with a match that allows none", "get", { key: "a", revision: unsafe }, "revision"],
    ["EXACT without a revision", "get", { key: "a", revision_match: exact }, "revision"],
    [
      "NOT_OLDER_THAN without one",
      "get",
      { key: "a", revision_match: "REVISION_MATCH_NOT_OLDER_THAN" },
      "revision",
    ],
    [
      "ANY with a revision",
      "get",
      { key: "a", revision_match: "REVISION_MATCH_ANY", revision: 1 },
      "revision",
    ],
    ["LINEARIZABLE with one", "get", { key: "a", revision: 1 }, "revision"],
    ["a negative page size", "list", { page_size: -1 }, "page_size"],
    ["an invalid token", "list", { page_token: "x" }, "page_token"],
    ["a revision with the wrong match", "list", { revision: 1 }, "revision"],
    ["an empty key to delete", "delete", { key: "" }, "key"],
    [
      "a deletion of an absent object",
      "delete",
      { key: "a", expected_mod_revision: 0 },
      "expected_mod_revision",
    ],
    ["a negative one", "delete", { key: "a", expected_mod_revision: -2 }, "expected_mod_revision"],
    ["an empty key to put", "put", { key: "" }, "key"],
    ["a negative lease", "put", { key: "a", lease: -1 }, "lease"],
    ["a negative one", "put", { key: "a", expected_mod_revision: -1 }, "expected_mod_revision"],
    ["an empty key to watch", "watch", { key: "" }, "key"],
    ["a negative revision to watch", "watch", { after_revision: -1 }, "after_revision"],
    ["no interval", "watch", { bookmark_interval: {} }, "bookmark_interval"],
    ["a short one", "watch", { bookmark_interval: { nanos: 999_999_999 } }, "bookmark_interval"],
    ["a negative one", "watch", { bookmark_interval: { seconds: -5 } }, "bookmark_interval"],
    [
      "one of two signs",
      "watch",
      { bookmark_interval: { seconds: 5, nanos: -1 } },
      "bookmark_interval",
    ],
    [
      "too many nanos",
      "watch",
      { bookmark_interval: { seconds: 5, nanos: 1e9 } },
      "bookmark_interval",
    ],
    [
      "10,001 years",
      "watch",
      { bookmark_interval: { seconds: 315_576_000_001 } },
      "bookmark_interval",
    ],
  ])("%s: %s", async (_name, method, fields, field) => {
    const served = await serveThings();
    const error = await call(served, method, { resource, ...fields });
    expect(error).toMatchObject({ reason: "INVALID_REQUEST", field });
    expect(error.message).toContain(field);
    expect(await served.storage.currentRevision()).toBe(1);
  });

  test.each(["get", "list", "watch", "put", "delete"])(
    "an unknown resource: %s returns the known ones",
    async (method) => {
      const error = await call(await serveThings(), method, { resource: "thongs", key: "a" });
      expect(error).toMatchObject({
        reason: "UNKNOWN_RESOURCE",
        metadata: { resource: "thongs" },
        message: expect.stringContaining('"things"'),
      });
    },
  );
});

async function call(
  { client }: Awaited<ReturnType<typeof serveThings>>,
  method: string,
  request: object,
): Promise<WatchFanoutError> {
  if (method === "watch") return client.watch(request).ended;
  const unary = { get: client.get, list: client.list, put: client.put, delete: client.delete };
  const answer = unary[method as keyof typeof unary](request);
  return answer.then(
    () => {
      throw new Error("The call went through.");
    },
    (error: WatchFanoutError) => error,
  );
}

describe("Every reason", () => {
  const reasons: readonly Reason[] = [
    "REVISION_TOO_NEW",
    "HISTORY_CHANGED",
    "HISTORY_LOST",
    "OUTCOME_UNKNOWN",
    "LEASE_NOT_FOUND",
    "STORAGE_FULL",
    "UPSTREAM_DENIED",
    "UPSTREAM_UNAVAILABLE",
    "TOO_MANY_STREAMS",
    "UNAUTHENTICATED",
    "PERMISSION_DENIED",
  ];
  test.each(reasons)(
    "%s is passed from a resource to the client of a call and of a watch",
    async (reason) => {
      const scripted = new ScriptedResource();
      const { client } = await serve(new Map([[resource, scripted]]), new ManualTimers());
      const sent = { reason, message: "The message.", metadata: { lease: "7" } };
      scripted.answer = async () => {
        throw new WatchFanoutError(reason, sent.message, { metadata: sent.metadata });
      };
      await expect(client.get({ resource, key: "a" })).rejects.toMatchObject(sent);
      await expect(client.put({ resource, key: "a" })).rejects.toMatchObject(sent);
      const watch = client.watch({ resource });
      (await scripted.watched(0)).fail(reason);
      expect(await watch.ended).toMatchObject({ reason });
    },
  );

  test("INTERNAL has an id, which is logged with the error, and no details", async () => {
    const scripted = new ScriptedResource();
    const { client, recorder } = await serve(new Map([[resource, scripted]]), new ManualTimers());
    scripted.answer = async () => {
      throw new TypeError("secret");
    };
    const error = await client.get({ resource, key: "a" }).catch((caught: unknown) => caught);
    expect(error).toMatchObject({ reason: "INTERNAL" });
    const { message, metadata } = error as WatchFanoutError;
    expect(message).toContain(metadata["id"]);
    expect(message).not.toContain("secret");
    expect(recorder.logged.join("")).toMatch(new RegExp(`secret.*${metadata["id"]}`, "s"));
  });
});

describe("Invalid request bytes", () => {
  test("are refused or answered by every method, without a failure", async () => {
    const store = new MemoryStore({ clock: systemClock });
    onTestFinished(() => store.close());
    store.addResource("things", new ResourceKeys("things/"));
    const served = await serveThings({ server: { store } });
    const raw = new RawConnection(served.server.port);
    const paths = [...descriptors.inputs.keys()];
    expect(paths).toHaveLength(20);
    const allowed = [
      ...[status.OK, status.INVALID_ARGUMENT, status.NOT_FOUND, status.OUT_OF_RANGE],
      ...[status.ABORTED, status.FAILED_PRECONDITION],
    ];
    await fc.assert(
      fc.asyncProperty(
        fc.constantFrom(...paths),
        fc.oneof(fc.uint8Array({ maxLength: 30 }), requestLike),
        async (path, bytes) => {
          const sent = raw.call(path, bytes).drain();
          // A stream of watches stays open; its first response is sufficient.
          if (path.endsWith("/Watch") || path.endsWith("/Subscribe")) {
            const headers = await sent.answered;
            sent.cancel();
            const said = headers["grpc-status"];
            if (said !== undefined) expect(allowed).toContain(Number(said));
          } else {
            expect(allowed).toContain((await sent.ended).code);
          }
        },
      ),
      { numRuns: runs(500) },
    );
    expect(served.recorder.logged).toEqual([]);
  });

  /** Begins with a request for `things`, followed by any bytes. */
  const requestLike = fc
    .uint8Array({ maxLength: 20 })
    .map((rest) => Buffer.concat([Buffer.from("\x0a\x06things"), rest]));

  test("are not taken for another key that they would decode to", async () => {
    const { client, server } = await serveThings();
    await client.put({ resource, key: "\ufffd" });
    const raw = new RawConnection(server.port);
    const request = Buffer.from("0a067468696e677312 01ff".replace(" ", ""), "hex");
    const { code, message } = await raw.call(listWatchService.Get.path, request).drain().ended;
    expect(code).toBe(status.INVALID_ARGUMENT);
    expect(message).toContain("key is not valid UTF-8");
  });
});

describe("gRPC itself refuses", () => {
  const path = listWatchService.List.path;
  const body = Buffer.from("\x0a\x06things");

  test.each(["/watchfanout.v1.ListWatchService/Nope", "/", "/é", "/%00"])(
    "an unknown method: %s",
    async (unknown) => {
      const { server, client, recorder } = await serveThings();
      const raw = new RawConnection(server.port);
      const { code, reset } = await raw.call(unknown, body).drain().ended;
      expect(code === status.UNIMPLEMENTED || reset !== 0).toBe(true);
      await client.list({ resource });
      if (code !== undefined) expect(recorder.calls[0]?.method).toBe("unknown");
    },
  );

  test("a message that is too large, before it has arrived", async () => {
    const { server, client } = await serveThings();
    const sent = new RawConnection(server.port).open(path);
    sent.stream.write(Buffer.from([0, 0x7f, 0xff, 0xff, 0xff]));
    expect((await sent.drain().ended).code).toBe(status.RESOURCE_EXHAUSTED);
    await client.list({ resource });
  });

  test("a message that is truncated or absent", async () => {
    const { server, client } = await serveThings();
    const raw = new RawConnection(server.port);
    for (const [bytes, code] of [
      [framed(body).subarray(0, 7), status.INVALID_ARGUMENT],
      [Buffer.of(), status.UNIMPLEMENTED],
    ] as const) {
      const sent = raw.open(path);
      sent.stream.end(bytes);
      expect((await sent.drain().ended).code).toBe(code);
    }
    await client.list({ resource });
  });

  test("an invalid compressed message, or an unknown encoding", async () => {
    const { server, client } = await serveThings();
    const raw = new RawConnection(server.port);
    for (const [encoding, code] of [
      ["gzip", status.INTERNAL],
      ["snappy", status.UNIMPLEMENTED],
    ] as const) {
      const sent = raw.open(path, { "grpc-encoding": encoding });
      const bytes = framed(body);
      bytes[0] = 1;
      sent.stream.end(bytes);
      expect((await sent.drain().ended).code).toBe(code);
    }
    await client.list({ resource });
  });

  test("a request that is not gRPC", async () => {
    const { server, client } = await serveThings();
    const raw = new RawConnection(server.port);
    const sent = raw.call(path, body, { "content-type": "text/html" }).drain();
    expect((await sent.answered)[":status"]).toBe(415);
    await client.list({ resource });
  });
});
