import { status } from "@grpc/grpc-js";
import { describe, expect, onTestFinished, test } from "vitest";
import type { WatchBatch } from "../../../src/model/event.ts";
import { EtcdStorage } from "../../../src/storage/etcd/etcd-storage.ts";
import type { WatchStream } from "../../../src/storage/storage.ts";
import { type Script, type ScriptedWatch, startScriptedEtcd } from "./scripted-etcd.ts";
import { clientOf } from "./source.ts";

/*
 * What etcd 3.6 does differently from 3.5. The other tests of this folder run against a real etcd of either version.
 */

const created = { created: true, header: { revision: 10 } };

function put(key: string, revision: number): object {
  const kv = {
    key: Buffer.from(`p/${key}`),
    create_revision: 1,
    mod_revision: revision,
    version: 2,
  };
  return { type: "Put", kv };
}

/** A storage on an etcd at revision 10, and the watch that it opens there after revision `afterRevision`. */
async function watching(script: Script, afterRevision: number) {
  const { promise: opened, resolve } = Promise.withResolvers<ScriptedWatch>();
  const etcd = await startScriptedEtcd({ range: () => 10, watch: resolve, ...script });
  const client = clientOf(etcd);
  const storage = new EtcdStorage(client, { prefix: "p/" });
  onTestFinished(async () => {
    await storage.close();
    await client.close();
    etcd.close();
  });
  const scope = { prefix: "" };
  const stream = storage.watch({ scope, withPrevious: false, afterRevision });
  return { stream, upstream: await opened };
}

async function next(stream: WatchStream): Promise<WatchBatch> {
  for (;;) {
    const readable = new Promise<void>((resolve) => stream.onReadable(resolve));
    const batch = stream.read();
    if (batch !== undefined) return batch;
    if (stream.ended !== undefined) throw stream.ended ?? new Error("The watch was closed.");
    await readable;
  }
}

describe("A watch from etcd's current revision", () => {
  test("starts after it on etcd 3.5", async () => {
    const { upstream } = await watching({ version: "3.5.16" }, 10);
    expect(upstream.startRevision).toBe(11);
  });

  test.each<[what: string, script: Script]>([
    ["3.6", { version: "3.6.0" }],
    ["a pre-release of 3.6", { version: "3.6.0-rc.1" }],
    [
      "an etcd that reports its version to root only",
      {
        status: () => ({
          code: status.PERMISSION_DENIED,
          details: "etcdserver: permission denied",
        }),
      },
    ],
  ])("starts at it on %s, which reports progress from there on only", async (_what, script) => {
    const { stream, upstream } = await watching(script, 10);
    expect(upstream.startRevision).toBe(10);
    upstream.send(created);
    // What is repeated is dropped, also next to what is new.
    upstream.send({ header: { revision: 10 }, events: [put("a", 10)] });
    upstream.send({ header: { revision: 10 }, watch_id: -1 });
    expect(await next(stream)).toMatchObject({ revision: 10, events: [] });
    upstream.send({ header: { revision: 12 }, events: [put("a", 10), put("b", 11), put("c", 12)] });
    const { revision, events } = await next(stream);
    expect([revision, events.map(({ object }) => object.key)]).toEqual([12, ["b", "c"]]);
  });
});

test("A watch from before etcd's current revision starts after its resume point on etcd 3.6, too", async () => {
  const { upstream } = await watching({ version: "3.6.0" }, 9);
  expect(upstream.startRevision).toBe(10);
});
