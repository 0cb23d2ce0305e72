import { expect, onTestFinished, test } from "vitest";
import { systemClock } from "../../../src/base/clock.ts";
import type { KeyRange, WatchOptions } from "../../../src/client/calls/options.ts";
import { type Client, connect } from "../../../src/client/connect.ts";
import { RemoteStorage } from "../../../src/client/remote/remote-storage.ts";
import { MemoryStorage } from "../../../src/storage/memory/memory-storage.ts";
import { put, remove } from "../../storage/conformance/opened.ts";
import { CachedServer } from "../cached-server.ts";

const tiny = { eventWindow: { maxEvents: 16, minEvents: 0 } };
const keys = ["a", "b", "c", "d"];
const ranges: readonly KeyRange[] = [
  {},
  { endKey: "c" },
  { startKey: "b", endKey: "d" },
  { startKey: "c" },
];

function isIn(key: string, { startKey = "", endKey = "~" }: KeyRange): boolean {
  return key >= startKey && key < endKey;
}

test("A watch of a leaf that resumes from before every window, amid writes, has each event once.", async () => {
  const store = new MemoryStorage({ clock: systemClock });
  const middle = await CachedServer.over(store, tiny);
  const connection = connect({ address: middle.address });
  const storage = new RemoteStorage({ client: connection, resource: "things" });
  const leaf = await CachedServer.over(storage, tiny);
  const client = connect({ address: leaf.address });
  onTestFinished(async () => {
    client.close();
    await leaf.close();
    connection.close();
    await middle.close();
  });
  const log: { readonly revision: number; readonly line: string; readonly key: string }[] = [];
  const present = new Set<string>();
  let turn = 0;
  const write = async (): Promise<number> => {
    turn++;
    const chosen = keys.filter((_, i) => (turn >> i) % 2 === 1 || i === turn % keys.length);
    const operations = chosen.map((key, i) =>
      present.has(key) && (turn + i) % 5 === 0 ? remove(key) : put(key, `${turn}`),
    );
    const revision = await store.txn(operations);
    for (const { type, key } of operations) {
      if (type === "delete") present.delete(key);
      else present.add(key);
      log.push({
        revision,
        key,
        line: `${type === "delete" ? "DELETED" : "PUT"} ${key}@${revision}`,
      });
    }
    return revision;
  };
  const follow = async (from: Pick<Client, "watch">, options: WatchOptions, last: () => number) => {
    const lines: string[] = [];
    for await (const { events, revision } of from.watch("things", options)) {
      for (const { type, object } of events)
        lines.push(`${type === "DELETED" ? type : "PUT"} ${object.key}@${object.modRevision}`);
      if (revision >= last()) return { lines, revision };
    }
    throw new Error("It has ended.");
  };
  const revisions: number[] = [];
  for (let i = 0; i < 300; i++) revisions.push(await write());
  await client.page("things", { pageSize: 1, at: { match: "LINEARIZABLE" } });
  const subscription = client.subscribe();
  let end = Infinity;
  // More than have a turn at once.
  const watches = Array.from({ length: 12 }, (_, i) => {
    const after = revisions[23 * (i + 1)] as number;
    const range = ranges[i % ranges.length] as KeyRange;
    const options: WatchOptions = { range, afterRevision: after, eagerBookmarks: true };
    const from = i % 2 === 0 ? client : subscription;
    return { after, range, seen: follow(from, options, () => end) };
  });
  for (let i = 0; i < 300; i++) {
    revisions.push(await write());
    if (i % 3 === 0) await client.page("things", { pageSize: 1 });
  }
  end = await write();
  const all = await Promise.all(watches.map(({ seen }) => seen));
  for (const [i, { after, range }] of watches.entries()) {
    const { lines = [], revision = 0 } = all[i] ?? {};
    const expected = log.filter(
      (entry) => entry.revision > after && entry.revision <= revision && isIn(entry.key, range),
    );
    expect(lines.toSorted()).toEqual(expected.map(({ line }) => line).toSorted());
    const order = lines.map((line) => Number(line.split("@")[1]));
    expect(order).toEqual(order.toSorted((one, other) => one - other));
  }
  subscription.close();
});
