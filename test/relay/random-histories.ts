import { expect } from "vitest";
import type { Client } from "../../src/client/client.ts";
import type { HistoryPage } from "../../src/client/watch/client-calls.ts";
import type { WatchEvent } from "../../src/model/event.ts";
import type { Operation } from "../../src/storage/memory/mvcc-store.ts";
import fc from "../property.ts";
import { plainEvent } from "../storage/conformance/model.ts";
import { Source } from "../storage/etcd/source.ts";

type Step =
  | { readonly kind: "write"; readonly operation: Operation }
  /** Compacts at this part of the revisions. */
  | { readonly kind: "compact"; readonly part: number }
  /** Begins to read a history from one of the clients, of which a page is read with each step that follows. */
  | { readonly kind: "read"; readonly key: string; readonly client: number; readonly size: number };

const keys = ["h/a", "h/b"];
const step: fc.Arbitrary<Step> = fc.oneof(
  {
    weight: 10,
    arbitrary: fc
      .tuple(fc.constantFrom(...keys), fc.nat(20))
      .map(([key, value]): Operation => {
        if (value >= 14) return { type: "delete", key };
        return { type: "put", key, value: Buffer.from(`${value}`) };
      })
      .map((operation): Step => ({ kind: "write", operation })),
  },
  {
    weight: 1,
    arbitrary: fc.record({ kind: fc.constant("compact"), part: fc.integer({ min: 0, max: 10 }) }),
  },
  {
    weight: 3,
    arbitrary: fc.record({
      kind: fc.constant("read"),
      key: fc.constantFrom(...keys),
      client: fc.nat(10),
      size: fc.integer({ min: 2, max: 5 }),
    }),
  },
);

const changeOf = (event: WatchEvent) => {
  const { previous: _, ...change } = plainEvent(event, true);
  return change;
};

/**
 * Writes to etcd below the prefix and compacts it at random, while the clients read histories of the resource in pages.
 * Each history has to be what a watch of the first client saw, as far as it was not compacted.
 */
export async function compareHistories(
  etcd: { readonly url: string },
  prefix: string,
  resource: string,
  clients: readonly Client[],
): Promise<void> {
  const source = new Source(etcd);
  const histories = fc.array(step, { minLength: 10, maxLength: 25 });
  await fc.assert(
    fc.asyncProperty(histories, (steps) => compare(source, prefix, resource, clients, steps)),
    { numRuns: 2 },
  );
}

async function compare(
  source: Source,
  prefix: string,
  resource: string,
  clients: readonly Client[],
  steps: readonly Step[],
): Promise<void> {
  const [first] = clients as readonly [Client];
  // The changes of another run are not part of this one.
  for (const key of keys) await source.write(prefix, [{ type: "delete", key }]);
  const start = await source.write(prefix, [{ type: "put", key: "h-start", value: Buffer.of() }]);
  await source.compact(start);
  const watch = first.watch(resource, {
    ...{ scope: { prefix: "h/" }, afterRevision: start },
    ...{ includePrevious: true, eagerBookmarks: true },
  });
  const seen: WatchEvent[] = [];
  const through = async (revision: number): Promise<void> => {
    for (let at = 0; at < revision; ) {
      const { value } = await watch.next();
      if (value === undefined) throw new Error("The watch has ended.");
      seen.push(...value.events);
      at = value.revision;
    }
  };
  await through(start);
  let newest = start;
  let compacted = start;
  const readings: Reading[] = [];
  for (const step of steps) {
    if (step.kind === "write") newest = await source.write(prefix, [step.operation]);
    else if (step.kind === "read") {
      const client = clients[step.client % clients.length] as Client;
      readings.push(new Reading(step.key, client, resource, step.size));
    } else {
      const at = start + Math.round(((newest - start) * step.part) / 10);
      if (at > compacted) await source.compact(at);
      compacted = Math.max(compacted, at);
    }
    // One after the other, since each may search etcd's past, which waits for the others.
    for (const reading of readings) await reading.page();
  }
  const last = clients.flatMap((client) =>
    keys.map((key) => new Reading(key, client, resource, 0)),
  );
  for (const reading of [...readings, ...last]) while (!reading.isDone) await reading.page();
  await through(await source.write(prefix, [{ type: "put", key: "h/end", value: Buffer.of() }]));
  await watch.return();
  for (const { key, pages } of [...readings, ...last]) {
    const { revision, oldestRevision = Infinity, end } = pages.at(-1) as HistoryPage;
    const all = seen
      .filter(({ object }) => object.key === key && object.modRevision <= revision)
      .map(changeOf)
      .reverse();
    const changes = pages.flatMap(({ events }) => events).map(changeOf);
    expect(changes, key).toEqual(all.slice(0, changes.length));
    const missing = all[changes.length];
    expect(missing?.revision ?? 0).toBeLessThanOrEqual(oldestRevision);
    expect(oldestRevision).toBeLessThanOrEqual(Math.max(compacted, start));
    const oldest = changes.at(-1)?.type ?? "ADDED";
    expect(end).toBe(oldest === "ADDED" ? "CREATION" : "COMPACTION");
  }
}

/** A history that is read page by page. */
class Reading {
  readonly key: string;
  readonly pages: HistoryPage[] = [];
  readonly #history: AsyncGenerator<HistoryPage, void, void>;
  isDone = false;

  constructor(key: string, client: Client, resource: string, pageSize: number) {
    this.key = key;
    this.#history = client.history(resource, key, { pageSize, timeoutMs: 60_000 });
  }

  async page(): Promise<void> {
    if (this.isDone) return;
    const { value } = await this.#history.next();
    if (value === undefined) this.isDone = true;
    else this.pages.push(value);
  }
}
