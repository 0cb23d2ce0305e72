import { constants } from "node:http2";
import { type ServiceError, status } from "@grpc/grpc-js";
import { describe, expect, test } from "vitest";
import { retryDelayMs } from "../../../src/wire/call-error.ts";
import type { WatchResponse__Output } from "../../../src/wire/generated/watchfanout/v1/WatchResponse.ts";
import { healthService, reflectionServices } from "../../../src/wire/services.ts";
import { RawConnection } from "../http2/raw-connection.ts";
import { type Served, serveThings } from "../served.ts";
import type { Watching } from "../test-client.ts";

const resource = "things";
type Watch = Watching<WatchResponse__Output>;

/** A server with a limit of two watches, and two open watches. */
async function openTwo(): Promise<Served & { readonly first: Watch }> {
  const served = await serveThings({ server: { limits: { maxStreams: 2 } } });
  const first = await opened(served);
  await opened(served);
  return { ...served, first };
}

async function opened({ client }: Served): Promise<Watch> {
  const watch = client.watch({ resource });
  await watch.next();
  return watch;
}

/** An open health watch. */
async function openedHealth({ client }: Served): Promise<Watching<unknown>> {
  const watch = client.stream(healthService.Watch, { service: "" });
  await watch.next();
  return watch;
}

describe("A watch beyond the server's limit", () => {
  test("is refused before any response, until another has ended", async () => {
    const served = await openTwo();
    const { client, first, recorder } = served;
    const sentBefore = recorder.sentMessages;
    const refused = client.watch({ resource, send_initial_events: true });
    const error = await refused.ended;
    expect(error).toMatchObject({ reason: "TOO_MANY_STREAMS", metadata: { limit: "2" } });
    expect(error.message).toMatch(/^This server has 2 streams open.*another replica/);
    const cause = error.cause as ServiceError;
    expect(cause.code).toBe(status.RESOURCE_EXHAUSTED);
    expect(retryDelayMs(cause)).toBeGreaterThan(0);
    expect(recorder.sentMessages).toBe(sentBefore);

    const endedBefore = recorder.calls.length;
    first.cancel();
    await recorder.untilEnded(endedBefore + 1);
    await opened(served);
    expect((await client.watch({ resource }).ended).reason).toBe("TOO_MANY_STREAMS");
  });

  test("gets its own error if it is invalid", async () => {
    const { client } = await openTwo();
    const error = await client.watch({ resource, after_revision: -1 }).ended;
    expect(error).toMatchObject({ reason: "INVALID_REQUEST", field: "after_revision" });
  });

  test("does not affect open watches, reads and writes", async () => {
    const { client, first } = await openTwo();
    await client.watch({ resource }).ended;
    const { revision } = await client.put({ resource, key: "a", value: Buffer.from("1") });
    expect((await first.next()).revision).toBe(revision);
    expect((await client.list({ resource })).revision).toBe(revision);
  });

  test("that was refused or failed to open does not count as open", async () => {
    const served = await serveThings({ server: { limits: { maxStreams: 1 } } });
    const { client } = served;
    await client.watch({ resource, after_revision: -1 }).ended;
    await client.watch({ resource: "unknown" }).ended;
    await opened(served);
    expect((await client.watch({ resource }).ended).reason).toBe("TOO_MANY_STREAMS");
  });
});

describe("Streams of other services", () => {
  test.each([0, 1])("count and are refused like watches: reflection %i", async (version) => {
    const served = await serveThings({ server: { limits: { maxStreams: 2 } } });
    const { server, client } = served;
    await openedHealth(served);
    const { path = "" } = reflectionServices[version]?.ServerReflectionInfo ?? {};
    const connection = new RawConnection(server.port);
    const reflection = connection.open(path);
    await served.recorder.untilStarted(2);
    while (server.openStreams < 2) await new Promise((resolve) => setImmediate(resolve));
    expect((await client.watch({ resource }).ended).reason).toBe("TOO_MANY_STREAMS");
    const health = client.stream(healthService.Watch, { service: "" });
    expect(await health.ended).toMatchObject({
      reason: "TOO_MANY_STREAMS",
      metadata: { limit: "2" },
    });
    const refused = await connection.open(path).drain().ended;
    expect([refused.code, refused.message]).toEqual([
      status.RESOURCE_EXHAUSTED,
      expect.stringMatching(/^This server has 2 streams open/),
    ]);
    expect(server.openStreams).toBe(2);
    reflection.cancel();
    await reflection.ended;
    while (server.openStreams > 1) await new Promise((resolve) => setImmediate(resolve));
    await opened(served);
  });

  test("make room for those of another connection, even if their clients do not read", async () => {
    const served = await serveThings({ server: { limits: { maxStreams: 3 } } });
    const { server, clock } = served;
    const connection = new RawConnection(server.port, 0);
    const request = healthService.Watch.requestSerialize({ service: "" });
    const calls = [0, 1, 2].map(() => connection.call(healthService.Watch.path, request));
    while (server.openStreams < 3) await new Promise((resolve) => setImmediate(resolve));
    await opened(served);
    expect(server.openStreams).toBe(3);
    // It accepts nothing, not even its end.
    clock.advance(1_000);
    expect((await calls[0]?.drain().ended)?.reset).toBe(constants.NGHTTP2_ENHANCE_YOUR_CALM);
  });
});
