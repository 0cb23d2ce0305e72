import { describe, expect, test } from "vitest";
import type { Operation } from "../../../src/storage/memory/mvcc-store.ts";
import type { Etcd } from "../../etcd/etcd.ts";
import { etcdOfFile } from "../../etcd/etcd-of-file.ts";
import { brokenBy, honest } from "../../guarantees/guarantees.ts";
import { newPrefix } from "../../storage/etcd/source.ts";
import { utf8 } from "../counters.ts";
import { RecordedWatch, Stack, wishes } from "./stack.ts";

const etcdOf = etcdOfFile();

/** A write that every watch receives. */
const ofAll: Operation = { type: "put", key: "a/1", value: utf8('{"color":"red"}') };

/** The fault while all clients watch. */
const faults: readonly (readonly [string, (stack: Stack, etcd: Etcd) => Promise<unknown>])[] = [
  ["nothing happens", async () => {}],
  [
    "the middle is restarted in order",
    async (stack) => {
      await stack.stopMiddle("drain");
      await stack.writes(20);
      await stack.startMiddle();
    },
  ],
  [
    "the middle crashes, and another replaces it",
    async (stack) => {
      await stack.stopMiddle("crash");
      await stack.writes(20);
      await stack.startMiddle();
    },
  ],
  [
    "the leaf is restarted",
    async (stack) => {
      await stack.stopLeaf();
      await stack.writes(20);
      await stack.startLeaf();
    },
  ],
  [
    "both are restarted",
    async (stack) => {
      await stack.stopMiddle("crash");
      await stack.stopLeaf();
      await stack.writes(20);
      await stack.startMiddle();
      await stack.startLeaf();
    },
  ],
  [
    "every connection is reset, and etcd is compacted meanwhile",
    async (stack) => {
      for (const relay of [stack.toMiddle, stack.toEtcd, stack.toLeaf, stack.toMiddle]) {
        relay.cut();
        const revision = await stack.writes(10);
        // After it has synced, no watch needs the compacted events.
        await stack.leaf.cacher.get(newest(revision));
        await stack.compact(revision);
      }
    },
  ],
  [
    "etcd is killed and started again",
    async (stack, etcd) => {
      await etcd.kill();
      await etcd.start();
      await stack.writes(20);
    },
  ],
  [
    "the middle is drained while etcd is away",
    async (stack, etcd) => {
      await etcd.kill();
      await stack.stopMiddle("drain");
      const started = stack.startMiddle();
      await etcd.start();
      await started;
      await stack.writes(20);
    },
  ],
  [
    "the stream to the leaf is cut in the middle of a message",
    async (stack) => {
      for (const bytes of [1, 50, 333, 1_000]) {
        stack.toMiddle.cutAfter(bytes);
        await stack.writes(10);
      }
    },
  ],
];

function newest(revision: number) {
  return { key: "a/1", at: { match: "NOT_OLDER_THAN", revision } } as const;
}

describe("Behind a watch-fanout over another one, every promise is kept while", () => {
  test.each(faults)("%s.", async (_, happen) => {
    const etcd = await etcdOf();
    const stack = await Stack.over(etcd, newPrefix());
    const client = stack.connect();
    const before = await stack.writes(30);
    const watches = wishes.map((wish) => new RecordedWatch(client, wish));
    try {
      // Each watch knows its first revision.
      for (const watch of watches) await watch.through(before);
      await stack.writes(20);
      await happen(stack, etcd);
      await stack.writes(20);
      const last = await stack.write([ofAll]);
      for (const watch of watches) await watch.through(last);
      for (const { sequence, wish } of watches) {
        const broken = [
          ...brokenBy(sequence, stack.changes),
          ...honest(sequence, stack.changes, last),
        ];
        expect(broken, wish.name).toEqual([]);
      }
      expect(stack.leaf.cacher.stats().relists, "relists of the leaf").toBe(0);
    } finally {
      for (const watch of watches) await watch.stop();
      client.close();
      await stack.close();
    }
  });
});
