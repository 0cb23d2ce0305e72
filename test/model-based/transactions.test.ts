import { afterAll, beforeAll, expect, test } from "vitest";
import { WatchFanoutError } from "../../src/base/errors.ts";
import type { StoredObject } from "../../src/model/object.ts";
import type {
  Compare,
  DeletePrefixRequest,
  Operation,
  TransactRequest,
} from "../../src/storage/store.ts";
import { type Etcd, startEtcd } from "../etcd/etcd.ts";
import fc, { costlyRuns, runs } from "../property.ts";
import {
  type OpenedStore,
  openEtcdStore,
  openFileStore,
  openMemoryStore,
} from "../storage/store/opened.ts";
import { type ModelOutcome, TransactionModel } from "./transaction-model.ts";

let etcd: Etcd;

beforeAll(async () => {
  etcd = await startEtcd();
});

afterAll(() => etcd.stop());

/** Revisions from the first write on; of a store, `base` more. */
const name = fc.record({
  resource: fc.constantFrom("a", "b"),
  key: fc.constantFrom("k", "k/1", "k/2", "l"),
});
const value = fc.constantFrom("", "1", "2").map((text) => Buffer.from(text));
const revision = fc.nat({ max: 12 });
const compare: fc.Arbitrary<Compare> = fc
  .tuple(
    name,
    fc.oneof(
      fc.record({ exists: fc.boolean() }),
      fc.record({ modRevision: revision }),
      fc.record({ createRevision: revision }),
      fc.record({ value }),
    ),
  )
  .map(([named, condition]) => ({ ...named, ...condition }));
const operation: fc.Arbitrary<Operation> = fc.oneof(
  fc
    .record({ type: fc.constant("put" as const), value })
    .chain((put) => name.map((named) => ({ ...put, ...named }))),
  name.map((named) => ({ type: "delete" as const, ...named })),
);
const id = fc.option(fc.constantFrom("caller.1", "caller.2", "other.1"), { nil: undefined });
const flag = fc.boolean();
const transaction = fc.record({
  compares: fc.array(compare, { maxLength: 3 }),
  operations: fc.uniqueArray(operation, {
    ...{ maxLength: 4, selector: ({ resource, key }) => `${resource} ${key}` },
  }),
  ...{ returnCurrent: flag, returnPrevious: flag, requestId: id },
  validateOnly: fc.constantFrom(false, false, false, true),
});
const deletion = fc.record({
  resource: fc.constantFrom("a", "b"),
  prefix: fc.constantFrom("", "k", "k/"),
  requestId: id,
  validateOnly: fc.constantFrom(false, false, true),
});
const request = fc.oneof({ weight: 5, arbitrary: transaction }, { weight: 1, arbitrary: deletion });

function shownIn(base: number, object: StoredObject | undefined) {
  if (object === undefined) return undefined;
  const { createRevision, modRevision, version } = object;
  return {
    ...{ value: Buffer.from(object.value).toString(), version },
    ...{ create: createRevision - base, mod: modRevision - base },
  };
}

/** The request with revisions of the store, 0 as it is. */
function inStore(base: number, { compares, ...rest }: TransactRequest): TransactRequest {
  const at = (revision: number): number => (revision === 0 ? 0 : revision + base);
  return {
    ...rest,
    compares: compares.map((each) => {
      if ("modRevision" in each) return { ...each, modRevision: at(each.modRevision) };
      if ("createRevision" in each) return { ...each, createRevision: at(each.createRevision) };
      return each;
    }),
  };
}

async function outcomeIn(
  { store }: OpenedStore,
  base: number,
  asked: TransactRequest | DeletePrefixRequest,
): Promise<ModelOutcome | string> {
  try {
    if ("prefix" in asked) {
      const { revision, deleted } = await store.deletePrefix(asked);
      const none = { objects: [], previous: [], held: [], current: [] };
      return { ...none, succeeded: true, revision: revision - base, deleted };
    }
    const result = await store.transact(inStore(base, asked));
    const { results, compares } = result;
    return {
      ...{ succeeded: result.succeeded, revision: result.revision - base, deleted: 0 },
      objects: results.map(({ object }) => shownIn(base, object)),
      previous: results.map(({ previous }) => shownIn(base, previous)),
      held: compares.map(({ held }) => held),
      current: compares.map(({ object }) => shownIn(base, object)),
    };
  } catch (error) {
    if (error instanceof WatchFanoutError) return error.reason;
    throw error;
  }
}

async function live(
  opened: OpenedStore,
  model: TransactionModel,
  requests: readonly (TransactRequest | DeletePrefixRequest)[],
): Promise<void> {
  const base = await opened.a.currentRevision();
  for (const asked of requests) {
    const isEmpty =
      !("prefix" in asked) && asked.compares.length === 0 && asked.operations.length === 0;
    const expected = isEmpty
      ? "INVALID_REQUEST"
      : "prefix" in asked
        ? model.deletePrefix(asked, asked.requestId)
        : model.transact(asked, asked.requestId);
    expect(await outcomeIn(opened, base, asked)).toEqual(expected);
  }
  for (const resource of ["a", "b"] as const) {
    const at = { match: "LINEARIZABLE" } as const;
    const { items } = await opened[resource].list({ prefix: "", limit: 0, at });
    const expected = [...model.state].flatMap(([named, object]) =>
      named.startsWith(resource) ? [[named, object]] : [],
    );
    const found = items.map((object) => [`${resource} ${object.key}`, shownIn(base, object)]);
    expect(found).toEqual(expected.sort());
  }
}

test.each([
  ["etcd", true, async () => openEtcdStore(etcd), costlyRuns(400)],
  ["the embedded store", false, async () => openMemoryStore(), runs(400)],
  ["the embedded store on a file", false, openFileStore, costlyRuns(400)],
])(
  "%s answers any transactions as the model does",
  async (_, marks, open, numRuns) => {
    await fc.assert(
      fc.asyncProperty(fc.array(request, { maxLength: 30, size: "max" }), async (requests) => {
        const opened = await open();
        try {
          await live(opened, new TransactionModel(marks), requests);
        } finally {
          await opened.close();
        }
      }),
      { numRuns },
    );
  },
  240_000,
);
