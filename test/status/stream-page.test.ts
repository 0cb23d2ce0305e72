import { describe, expect, test } from "vitest";
import { anonymous } from "../../src/identity/identity.ts";
import {
  mergePages,
  type StreamPage,
  selectStreams,
} from "../../src/server/admin/status/stream-page.ts";
import { parseStreamQuery } from "../../src/server/admin/status/stream-query.ts";
import type { OpenStream } from "../../src/server/kernel/open-streams.ts";

const origin = { worker: 0, now: 1_000, epochMs: 0 };

/** Counts how often each is read whole. */
let reported = 0;

function streamOf(id: number, lag: number): OpenStream {
  return {
    ...{ id, streamKind: "watch", openedAt: id % 1_000, sent: lag, resource: "things" },
    ...{ owner: { connection: {} }, access: undefined, evict: () => {} },
    identity: { ...anonymous, name: `client-${id}`, source: "token" },
    watchStatus: {
      ...{ state: lag > 0 ? "stalled" : "live", scope: { prefix: `p/${id}` } },
      get selectors() {
        reported++;
        return { label: "", field: "" };
      },
      ...{ lagRevisions: lag, bufferFill: 0, unreadSince: undefined },
    },
  };
}

/** What the work returns, and the number of its steps. */
function run(
  streams: readonly OpenStream[],
  parameters: string,
): { page: StreamPage; steps: number } {
  const work = selectStreams(streams, parseStreamQuery(new URLSearchParams(parameters)), origin);
  for (let steps = 1; ; steps++) {
    const result = work.next();
    if (result.done === true) return { page: result.value, steps };
  }
}

describe("A page of 100,000 streams", () => {
  // Each lag once, not in order: 7,919 is prime to their number.
  const streams = Array.from({ length: 100_000 }, (_, i) => streamOf(i + 1, (i * 7_919) % 100_000));

  test("has those with the largest lag, and reads only these whole", () => {
    reported = 0;
    const { page } = run(streams, "sort=lag&limit=20");
    expect(page.entries.map(({ report }) => report.lagRevisions)).toEqual(
      Array.from({ length: 20 }, (_, i) => 99_999 - i),
    );
    expect(page).toMatchObject({ total: 100_000, matched: 100_000, hasMore: true });
    expect({ ...page.byState }).toEqual({ live: 1, stalled: 99_999 });
    expect(reported).toBe(20);
  });

  test("is found in steps of 32 streams", () => {
    expect(run(streams, "sort=lag").steps).toBeGreaterThan(100_000 / 33);
  });

  test("is searched in smaller steps where selectors are long", () => {
    const long = streams.slice(0, 320).map((stream) => ({
      ...stream,
      watchStatus: {
        ...{ state: "live", scope: { key: "" }, lagRevisions: 0, bufferFill: 0 },
        unreadSince: undefined,
        selectors: { label: "x".repeat(40_000), field: "" },
      },
    }));
    expect(run(long, "").steps).toBeLessThan(15);
    expect(run(long, "search=none").steps).toBeGreaterThan(150);
  });

  test("holds twice the streams of the page at most, also if they come in the worst order", () => {
    const ascending = streams.toSorted((a, b) => (a.sent ?? 0) - (b.sent ?? 0));
    const { page } = run(ascending, "sort=sent&limit=3");
    expect(page.entries.map(({ report }) => report.messagesSent)).toEqual([99_999, 99_998, 99_997]);
  });
});

test("Streams with the same value are in the order of their ids, over several pages.", () => {
  const streams = Array.from({ length: 10 }, (_, i) => streamOf(i + 1, 5));
  const ids: number[] = [];
  for (let cursor = ""; ; ) {
    const parameters = `sort=lag&order=asc&limit=3&cursor=${cursor}`;
    const query = parseStreamQuery(new URLSearchParams(parameters));
    const { items, next } = mergePages(query, [run(streams, parameters).page]);
    ids.push(...items.map(({ id }) => id));
    if (next === undefined) break;
    cursor = next;
  }
  expect(ids).toEqual([1, 2, 3, 4, 5, 6, 7, 8, 9, 10]);
});

test("The pages of several workers are one list.", () => {
  const query = parseStreamQuery(new URLSearchParams("sort=lag&limit=3"));
  const pages = [1, 2].map((worker) => {
    const streams = [streamOf(1, worker), streamOf(2, worker + 10)];
    const work = selectStreams(streams, query, { ...origin, worker });
    const result = work.next();
    return result.done === true ? result.value : work.next().value;
  }) as StreamPage[];
  const { total, items, next } = mergePages(query, pages);
  expect(items.map(({ worker, lagRevisions }) => [worker, lagRevisions])).toEqual([
    [2, 12],
    [1, 11],
    [2, 2],
  ]);
  expect(new Set(items.map(({ id }) => id)).size).toBe(3);
  expect([total, next]).toEqual([4, expect.any(String)]);
});

test("A page follows after any text that a client may choose.", () => {
  // Each of these characters has an escape in JSON.
  const streams = [1, 2].map((id) => {
    const name = `${"\u0001".repeat(10_000)}${id}`;
    return { ...streamOf(id, 0), identity: { ...anonymous, name } };
  });
  const query = parseStreamQuery(new URLSearchParams("sort=identity&order=asc&limit=1"));
  const { next } = mergePages(query, [run(streams, "sort=identity&order=asc&limit=1").page]);
  const { page } = run(streams, `sort=identity&order=asc&limit=1&cursor=${next}`);
  expect(page.entries.map(({ id }) => id)).toEqual([2]);
});

test("Long texts of clients are cut.", () => {
  const stream = { ...streamOf(1, 0), identity: { ...anonymous, name: "n".repeat(10_000) } };
  const [entry] = run([stream], "").page.entries;
  expect(entry?.report.identity).toBe(`${"n".repeat(255)}…`);
});
