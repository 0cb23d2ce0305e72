import { beforeAll, describe, expect, test } from "vitest";
import { encode, type Fields } from "../foreign/protobuf.ts";
import fc, { costlyRuns } from "../property.ts";
import { besideEtcdOfFile, revisionOf } from "./beside-etcd.ts";
import type { RawGrpc } from "./raw-grpc.ts";
import { type Event, WatchClient } from "./watch-client.ts";

const started = besideEtcdOfFile({ resource: ["a=/a/", "b=/b/"] });

let direct: RawGrpc;
let cached: RawGrpc;

beforeAll(async () => {
  ({ direct, cached } = await started());
});

type Write =
  | { readonly kind: "put"; readonly key: string; readonly value: string }
  | { readonly kind: "delete"; readonly key: string; readonly end: string }
  | { readonly kind: "txn"; readonly keys: readonly string[] };

type Step =
  | Write
  | {
      readonly kind: "create";
      readonly key: string;
      readonly end: string;
      /** Relative to the current revision; undefined: from now on. */
      readonly start: number | undefined;
      readonly filters: readonly number[];
      readonly previous: boolean;
      readonly fragment: boolean;
      readonly id: number;
    }
  | { readonly kind: "cancel"; readonly id: number };

/** As latin1: any bytes. */
const keys = ["/a/", "/a/1", "/a/2", "/a/2/3", "/a/\u00ff", "/b/", "/b/1", "/c/1"];
const ends = ["", "", "\0", "/a0", "/a/2", "/a/2\0", "/a/3", "/b0", "/c0", "/"];
/** Not all keys: the service's own key of the history is among them. */
const deletedEnds = ends.filter((end) => end !== "\0");
const key = fc.constantFrom(...keys);
const write: fc.Arbitrary<Write> = fc.oneof(
  {
    weight: 5,
    arbitrary: fc.record({ kind: fc.constant("put"), key, value: fc.constantFrom("", "x") }),
  },
  {
    weight: 2,
    arbitrary: fc.record({
      kind: fc.constant("delete"),
      key,
      end: fc.constantFrom(...deletedEnds),
    }),
  },
  {
    weight: 1,
    arbitrary: fc.record({ kind: fc.constant("txn"), keys: fc.uniqueArray(key, { minLength: 2 }) }),
  },
);
const step: fc.Arbitrary<Step> = fc.oneof(
  { weight: 6, arbitrary: write },
  {
    weight: 4,
    arbitrary: fc.record({
      kind: fc.constant("create"),
      key,
      end: fc.constantFrom(...ends),
      start: fc.option(fc.integer({ min: -12, max: 4 }), { nil: undefined }),
      filters: fc.subarray([0, 1, 7]),
      previous: fc.boolean(),
      fragment: fc.boolean(),
      id: fc.constantFrom(0, 0, 0, 3, 1_000),
    }),
  },
  {
    weight: 1,
    arbitrary: fc.record({ kind: fc.constant("cancel"), id: fc.integer({ min: 0, max: 5 }) }),
  },
);

const bytes = (text: string): Buffer => Buffer.from(text, "latin1");

function requestOf(each: Write): readonly [path: string, request: Buffer] {
  const putOf = (at: string, value: string): Fields => ({ 1: bytes(at), 2: value });
  switch (each.kind) {
    case "put":
      return ["/etcdserverpb.KV/Put", encode(putOf(each.key, each.value))];
    case "delete":
      return ["/etcdserverpb.KV/DeleteRange", encode({ 1: bytes(each.key), 2: bytes(each.end) })];
    case "txn":
      return [
        "/etcdserverpb.KV/Txn",
        encode({ 2: each.keys.map((at) => encode({ 2: encode(putOf(at, "txn")) })) }),
      ];
  }
}

/** Writes through the service, so that it knows the revision, and returns that. */
async function writeNow(each: Write): Promise<number> {
  return revisionOf(cached, ...requestOf(each));
}

describe("The watches of random streams", () => {
  test("deliver what those of etcd deliver", async () => {
    const scripts = fc.array(step, { minLength: 20, maxLength: 60 });
    await fc.assert(
      fc.asyncProperty(scripts, (steps) => compare(steps)),
      { numRuns: costlyRuns(60) },
    );
  });
});

async function compare(steps: readonly Step[]): Promise<void> {
  let revision = await writeNow({ kind: "put", key: "/d", value: "" });
  let last = revision;
  let creates = 0;
  const cancelled = new Set<string>();
  const clients = [new WatchClient(cached), new WatchClient(direct)] as const;
  const [own, etcds] = clients;
  const answersOf = ({ responses }: WatchClient) =>
    responses.filter(({ created, canceled }) => created || canceled);
  for (const each of steps) {
    if (each.kind === "create") {
      creates++;
      const start = each.start === undefined ? 0 : Math.max(1, revision + each.start);
      last = Math.max(last, start);
      for (const client of clients) {
        client.create({
          1: bytes(each.key),
          2: bytes(each.end),
          3: start,
          5: each.filters,
          6: each.previous,
          7: each.id,
          8: each.fragment,
        });
        await client.until(
          () => answersOf(client).filter(({ created }) => created).length === creates,
        );
      }
    } else if (each.kind === "cancel") {
      cancelled.add(String(each.id));
      for (const client of clients) client.cancel(each.id);
    } else {
      revision = await writeNow(each);
    }
  }
  do revision = await writeNow({ kind: "put", key: "/d", value: "" });
  while (revision <= last);
  const isOpen = answersOf(etcds).some(({ id, canceled }) => !canceled && !cancelled.has(id));
  for (const client of clients) if (isOpen) await client.untilProgress(revision);
  expect(
    answersOf(own).map(({ header, ...answer }) => (answer.created ? answer : answer.id)),
  ).toEqual(answersOf(etcds).map(({ header, ...answer }) => (answer.created ? answer : answer.id)));
  const theirs = watchesOf(etcds);
  for (const [i, mine] of watchesOf(own).entries()) {
    const other = theirs[i];
    // A watch that is cancelled has delivered what it had by then.
    const isCancelled = mine.isCancelled || other?.isCancelled === true;
    const length = isCancelled ? Math.min(mine.events.length, other?.events.length ?? 0) : Infinity;
    expect(mine.events.slice(0, length)).toEqual(other?.events.slice(0, length));
  }
  for (const { responses } of clients) expectWholeRevisions(responses);
  for (const client of clients) client.close();
}

/** The watches of a stream in the order of their creation. An id may be used again after it was cancelled. */
function watchesOf({ responses }: WatchClient): { isCancelled: boolean; events: Event[] }[] {
  const all: { isCancelled: boolean; events: Event[] }[] = [];
  const open = new Map<string, { isCancelled: boolean; events: Event[] }>();
  for (const { id, created, canceled, events } of responses) {
    if (created) {
      const watch = { isCancelled: canceled, events: [] };
      all.push(watch);
      open.set(id, watch);
    }
    const watch = open.get(id);
    if (watch === undefined) continue;
    watch.isCancelled ||= canceled;
    watch.events.push(...events);
  }
  return all;
}

/** No response is of a lower revision than its events, and no revision is in two responses of a watch. */
function expectWholeRevisions(responses: WatchClient["responses"]): void {
  const last = new Map<string, number>();
  for (const { id, events, revision, created } of responses) {
    if (created) last.delete(id);
    const [first] = events;
    if (first === undefined) continue;
    expect(Number(first.kv.mod)).toBeGreaterThan(last.get(id) ?? 0);
    const end = Number(events.at(-1)?.kv.mod);
    expect(revision).toBeGreaterThanOrEqual(end);
    last.set(id, end);
  }
}
