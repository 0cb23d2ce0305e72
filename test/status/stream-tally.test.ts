import { describe, expect, test } from "vitest";
import { anonymous } from "../../src/identity/identity.ts";
import { isOfGroup, parseGroupId } from "../../src/server/admin/status/stream-report.ts";
import {
  countsOfTallies,
  type StreamTally,
  tallyStreams,
} from "../../src/server/admin/status/stream-tally.ts";
import type { OpenStream } from "../../src/server/kernel/open-streams.ts";

const now = 100_000;
const origin = { worker: 0, now, epochMs: 1_000_000 };

interface Facts {
  readonly name: string;
  readonly prefix?: string;
  readonly state?: string;
  readonly lag?: number;
  /** How long its oldest event is unread, in milliseconds. */
  readonly unreadMs?: number;
}

let lastId = 0;

function stream({ name, prefix = "p/", state = "live", lag = 0, unreadMs }: Facts): OpenStream {
  lastId++;
  return {
    ...{ id: lastId, streamKind: "watch", openedAt: 0, sent: 0, resource: "things" },
    ...{ owner: { connection: {} }, access: undefined, evict: () => {} },
    identity: { ...anonymous, name, source: "token" },
    watchStatus: {
      ...{ state, scope: { prefix }, selectors: { label: "", field: "" } },
      ...{ lagRevisions: lag, bufferFill: 0 },
      unreadSince: unreadMs === undefined ? undefined : now - unreadMs,
    },
  };
}

/** The tally of the streams, and the number of steps that it took. */
function tally(streams: readonly OpenStream[]): { tally: StreamTally; steps: number } {
  const work = tallyStreams(streams, origin);
  for (let steps = 1; ; steps++) {
    const result = work.next();
    if (result.done === true) return { tally: result.value, steps };
  }
}

function countsOf(...processes: (readonly OpenStream[])[]) {
  const counts = countsOfTallies(processes.map((streams) => tally(streams).tally));
  if (counts === undefined) throw new Error("There are no counts.");
  return counts;
}

const many = (count: number, make: (i: number) => Facts): OpenStream[] =>
  Array.from({ length: count }, (_, i) => stream(make(i)));

describe("Counted streams", () => {
  test("are behind if a message is not accepted for 5 s, also those of which nothing else is known", () => {
    const etcdWatch = (outstandingMs: number): OpenStream => ({
      ...stream({ name: "a" }),
      ...{ streamKind: "etcd watch", watchStatus: undefined, outstandingMs },
    });
    const idle = { ...stream({ name: "b" }), outstandingMs: 5_000 };
    expect(countsOf([etcdWatch(0), etcdWatch(4_999), etcdWatch(7_000), idle])).toMatchObject({
      ...{ total: 4, behind: 2, behindSince: new Date(1_000_000 + now - 7_000).toISOString() },
    });
  });

  test("are behind if an event is unread for 5 s, or if they have not become live for so long", () => {
    const counts = countsOf([
      stream({ name: "a", lag: 3, unreadMs: 4_999 }),
      stream({ name: "a", lag: 40, unreadMs: 5_000 }),
      stream({ name: "a", lag: 7, unreadMs: 60_000, state: "stalled" }),
      stream({ name: "a", state: "initial" }),
    ]);
    expect(counts).toMatchObject({ total: 4, behind: 3, worstLagRevisions: 40 });
    expect({ ...counts.byState }).toEqual({ live: 2, stalled: 1, initial: 1 });
    // The one that has not become live was opened at 0.
    expect(counts.behindSince).toBe(new Date(origin.epochMs).toISOString());
    expect(counts.at).toBe(new Date(origin.epochMs + now).toISOString());
  });

  test("are grouped by identity, scope and state, those that are behind and lag most first", () => {
    const { groups } = countsOf([
      ...many(3, () => ({ name: "alice", prefix: "a/" })),
      ...many(2, () => ({ name: "bob", prefix: "b/", state: "stalled", lag: 9, unreadMs: 9_000 })),
      stream({ name: "bob", prefix: "c/", state: "stalled", lag: 50, unreadMs: 8_000 }),
      // It lags, but only since a moment ago.
      stream({ name: "carol", prefix: "b/", lag: 99, unreadMs: 10 }),
    ]);
    expect(
      groups.map(({ identity, scope, state, streams, behind, worstLagRevisions }) => [
        ...[identity, scope, state, streams, behind, worstLagRevisions],
      ]),
    ).toEqual([
      ["bob", { prefix: "c/" }, "stalled", 1, 1, 50],
      ["bob", { prefix: "b/" }, "stalled", 2, 2, 9],
      ["carol", { prefix: "b/" }, "live", 1, 0, 99],
      ["alice", { prefix: "a/" }, "live", 3, 0, 0],
    ]);
  });

  test("of more than eight scopes are one group", () => {
    const [group, ...others] = countsOf(
      many(500, (i) => ({ name: "alice", prefix: `p/${i}` })),
    ).groups;
    expect(others).toEqual([]);
    expect(group).toMatchObject({ identity: "alice", streams: 500, hasManyScopes: true });
    expect(group?.scope).toBeUndefined();
  });

  test("of several processes are counted together", () => {
    const few = many(6, (i) => ({ name: "alice", prefix: `p/${i}`, lag: i }));
    const more = many(6, (i) => ({ name: "alice", prefix: `p/${i + 6}`, lag: 10 }));
    expect(countsOf(few, few).groups).toHaveLength(6);
    expect(countsOf(few, few).groups[0]).toMatchObject({ streams: 2, worstLagRevisions: 5 });
    expect(countsOf(few, more).groups).toMatchObject([{ streams: 12, hasManyScopes: true }]);
    expect(countsOf(few, []).total).toBe(6);
  });

  test("of 100,000 clients take a bounded number of groups, those that are behind in any case", () => {
    const streams = [
      ...many(100_000, (i) => ({ name: `client-${i}` })),
      ...many(3, (i) => ({ name: `slow-${i}`, lag: 10 + i, unreadMs: 10_000 })),
    ];
    const { tally: one, steps } = tally(streams);
    expect(steps).toBeGreaterThan(100_000 / 33);
    // 256, with the behind ones, and the others.
    expect(one.clients).toHaveLength(256 + 3 + 1);
    const counts = countsOfTallies([one, one]);
    expect(counts).toMatchObject({ total: 200_006, behind: 6, worstLagRevisions: 12 });
    expect(counts?.groups).toHaveLength(50);
    expect(counts?.groups.slice(0, 3).map(({ identity }) => identity)).toEqual([
      ...["slow-2", "slow-1", "slow-0"],
    ]);
    const { groups = [], otherStreams = 0 } = counts ?? {};
    const sum = groups.reduce((all, { streams: each }) => all + each, 0) + otherStreams;
    expect(sum).toBe(200_006);
  });

  test("are found again by the id of their group", () => {
    const evil = { name: '<b>\u0000"', prefix: "\u{1F600}/" };
    const streams = [
      stream(evil),
      stream({ ...evil, state: "stalled" }),
      stream({ ...evil, name: "x" }),
      stream({ ...evil, prefix: "p" }),
    ];
    const ids = countsOf(streams).groups.map(({ id = "" }) => parseGroupId(id));
    const found = ids.map((group) =>
      streams.filter((each) => group !== undefined && isOfGroup(each, group)),
    );
    expect(found.every(({ length }) => length === 1)).toBe(true);
    expect(new Set(found.flat())).toEqual(new Set(streams));
  });
});

test("A text that is not the id of a group is refused", () => {
  for (const id of ["x", btoa("{}"), btoa('{"identity":1}'), "A".repeat(20_000)]) {
    expect(parseGroupId(id)).toBeUndefined();
  }
});
