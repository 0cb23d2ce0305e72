import { Code, ConnectError } from "@connectrpc/connect";
import { expect, onTestFinished, test } from "vitest";
import { ConnectDoor } from "../../src/web/connect-door.ts";
import { serveThings } from "../server/served.ts";
import { nameOf, reasonOf, type WatchMessage, webClient, webProtocols } from "./web-clients.ts";

/*
 * The clients of the Connect project, over each protocol and version of HTTP.
 */

const protocols = webProtocols.map((how) => [nameOf(how), how] as const);
const text = (bytes: Uint8Array | undefined): string => Buffer.from(bytes ?? []).toString();

function signalOfTest(): AbortSignal {
  const ended = new AbortController();
  onTestFinished(() => ended.abort());
  return ended.signal;
}

const door = { server: { webDoor: new ConnectDoor() } };

test.each(protocols)("%s: writes, reads, lists", async (_, how) => {
  const { server } = await serveThings(door);
  const client = webClient(server.port, how);
  // Also one that is larger than all of a flow control window.
  const value = Buffer.alloc(300_000, "é");
  const put = await client.put({ resource: "things", key: "a", value });
  expect(put.revision).toBe(2n);
  await client.put({ resource: "things", key: "b", value: Buffer.from("2") });
  const { object } = await client.get({ resource: "things", key: "a" });
  expect(object?.modRevision).toBe(2n);
  expect(Buffer.from(object?.value ?? []).equals(value)).toBe(true);
  const { items, revision } = await client.list({ resource: "things" });
  expect(items.map(({ key }) => key)).toEqual(["a", "b"]);
  expect(revision).toBe(3n);
});

test.each(protocols)("%s: errors have their code, text and reason", async (_, how) => {
  const { server, recorder } = await serveThings(door);
  const client = webClient(server.port, how);
  const failure = await client.get({ resource: "things", key: "none" }).catch(ConnectError.from);
  expect(failure).toBeInstanceOf(ConnectError);
  const error = failure as ConnectError;
  expect(error.code).toBe(Code.NotFound);
  expect(error.rawMessage).toContain('"none"');
  expect(reasonOf(error)).toBe("OBJECT_NOT_FOUND");
  await recorder.untilEnded(1);
  const method = "watchfanout.v1.ListWatchService/Get";
  expect(recorder.calls).toEqual([{ method, code: "NOT_FOUND" }]);
});

test.each(protocols)(
  "%s: a watch has its initial state, and events as they happen",
  async (_, how) => {
    const { server, storage } = await serveThings(door);
    const client = webClient(server.port, how);
    await client.put({ resource: "things", key: "a", value: Buffer.from("1") });
    const request = { resource: "things", sendInitialEvents: true };
    const seen: string[] = [];
    let end: WatchMessage | undefined;
    for await (const message of client.watch(request, { signal: signalOfTest() })) {
      for (const { type, object } of message.events) {
        seen.push(`${type} ${object?.key} ${text(object?.value)}`);
      }
      if (message.initialEventsEnd) {
        end = message;
        await storage.put({ key: "a", value: Buffer.from("2") });
        await storage.put({ key: "b", value: Buffer.alloc(100_000, "x") });
        await storage.delete({ key: "a" });
      }
      if (seen.length === 4) break;
    }
    expect(end?.revision).toBe(2n);
    expect(seen.slice(0, 2)).toEqual(["1 a 1", "2 a 2"]);
    expect(seen[2]).toBe(`1 b ${"x".repeat(100_000)}`);
    expect(seen[3]).toBe("3 a 2");
  },
);

test.each(protocols)("%s: a watch ends with its reason when the server drains", async (_, how) => {
  const { server, clock } = await serveThings(door);
  const client = webClient(server.port, how);
  const revisions: (bigint | undefined)[] = [];
  const watch = async (): Promise<void> => {
    for await (const { revision } of client.watch({ resource: "things" })) {
      revisions.push(revision);
      if (revisions.length > 1) continue;
      void server.drain(10_000);
      clock.advance(0);
    }
  };
  const error = ConnectError.from(await watch().catch((thrown: unknown) => thrown));
  expect(error.code).toBe(Code.Unavailable);
  expect(reasonOf(error)).toBe("DRAINING");
  expect(revisions.length).toBeGreaterThan(0);
});

test.each(protocols)("%s: a watch that its client cancels is closed", async (_, how) => {
  const { server, recorder } = await serveThings(door);
  const client = webClient(server.port, how);
  const gone = new AbortController();
  const watch = async (): Promise<void> => {
    for await (const _message of client.watch({ resource: "things" }, { signal: gone.signal })) {
      expect(server.openStreams).toBe(1);
      gone.abort();
    }
  };
  await expect(watch()).rejects.toThrow();
  await recorder.untilEnded(1);
  expect(server.openStreams).toBe(0);
  expect(recorder.calls[0]?.code).toBe("CANCELLED");
});

test.each(protocols)("%s: a call ends at its deadline", async (_, how) => {
  const { server, clock, recorder } = await serveThings(door);
  const client = webClient(server.port, how);
  const watch = async (): Promise<void> => {
    for await (const _message of client.watch({ resource: "things" }, { timeoutMs: 60_000 })) {
      clock.advance(60_001);
    }
  };
  const error = ConnectError.from(await watch().catch((thrown: unknown) => thrown));
  expect(error.code).toBe(Code.DeadlineExceeded);
  await recorder.untilEnded(1);
  expect(recorder.calls[0]?.code).toBe("DEADLINE_EXCEEDED");
});
