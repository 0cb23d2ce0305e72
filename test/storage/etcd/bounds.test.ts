import { status } from "@grpc/grpc-js";
import { describe, expect, onTestFinished, test } from "vitest";
import { EtcdStorage } from "../../../src/storage/etcd/etcd-storage.ts";
import type { WatchRequest } from "../../../src/storage/storage.ts";
import { StreamReader } from "../conformance/stream-reader.ts";
import { type Script, type ScriptedEtcd, startScriptedEtcd } from "./scripted-etcd.ts";
import { clientOf } from "./source.ts";

async function open(
  script: Script,
  maxRevisionBytes?: number,
): Promise<{ etcd: ScriptedEtcd; storage: EtcdStorage }> {
  const etcd = await startScriptedEtcd(script);
  const client = clientOf(etcd);
  const storage = new EtcdStorage(client, { prefix: "p/", maxRevisionBytes });
  onTestFinished(async () => {
    await storage.close();
    await client.close();
    etcd.close();
  });
  return { etcd, storage };
}

const request: WatchRequest = { scope: { prefix: "" }, withPrevious: false, afterRevision: 10 };
const created = { created: true, header: { revision: 50 } };

/** The nth part of revision 12, which deletes ten objects. */
function removals(part: number): object {
  const events = Array.from({ length: 10 }, (_, i) => ({
    type: "Delete",
    kv: { key: Buffer.from(`p/${part}-${i}`), mod_revision: 12 },
  }));
  return { header: { revision: 50 }, events, fragment: true };
}

describe("One revision in fragments", () => {
  test("is held up to a bound in bytes; beyond that history is lost, and has to be listed", async () => {
    const { storage } = await open(
      {
        range: () => 50,
        watch: (stream) => {
          stream.send(created);
          for (let i = 0; i < 20; i++) stream.send(removals(i));
        },
      },
      32 * 1024,
    );
    const reader = new StreamReader(storage, request);
    expect(await reader.end()).toMatchObject({
      reason: "HISTORY_LOST",
      message: expect.stringContaining("32768 bytes"),
      metadata: { current_revision: "12" },
    });
    expect(reader.events).toEqual([]);
  });

  test("comes whole below that", async () => {
    const { storage } = await open(
      {
        range: () => 50,
        watch: (stream) => {
          stream.send(created);
          for (let i = 0; i < 9; i++) stream.send(removals(i));
          stream.send({ ...removals(9), fragment: false });
        },
      },
      32 * 1024,
    );
    const reader = new StreamReader(storage, request);
    const batch = await reader.next();
    expect([batch?.revision, batch?.events.length]).toEqual([12, 100]);
  });
});

test("Reads of what is compacted look for the oldest revision together, on one stream.", async () => {
  const compacted = {
    code: status.OUT_OF_RANGE,
    details: "etcdserver: mvcc: required revision has been compacted",
  };
  const asked = Promise.withResolvers<void>();
  let reads = 0;
  const { etcd, storage } = await open({
    range: () => {
      if (++reads === 100) asked.resolve();
      return compacted;
    },
    watch: (stream) => {
      const tell = { header: { revision: 50 }, canceled: true, compact_revision: 40 };
      asked.promise.then(() => stream.send(tell));
    },
  });
  const get = () => storage.get({ key: "a", at: { match: "EXACT", revision: 7 } });
  const responses = await Promise.allSettled(Array.from({ length: 100 }, get));
  for (const response of responses) {
    expect(response).toMatchObject({
      reason: { reason: "REVISION_TOO_OLD", metadata: { oldest_revision: "40" } },
    });
  }
  expect(etcd.calls.filter((call) => call === "watch")).toHaveLength(1);
});
