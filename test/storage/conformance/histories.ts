import { expect, test } from "vitest";
import type { Operation } from "../../../src/storage/memory/mvcc-store.ts";
import type { Scope } from "../../../src/storage/storage.ts";
import fc, { costlyRuns } from "../../property.ts";
import { Model, plainObject } from "./model.ts";
import { exact, linearizable, type Opened, put, remove, type Traits } from "./opened.ts";
import { StreamReader } from "./stream-reader.ts";

const keys = ["a", "a/1", "a/2", "b", "\ufffd", "\u{1f600}"];
const values = ["", "red", "blue", "red and blue"];

const operation: fc.Arbitrary<Operation> = fc
  .oneof(
    { weight: 3, arbitrary: fc.tuple(fc.constantFrom(...keys), fc.constantFrom(...values)) },
    { weight: 2, arbitrary: fc.tuple(fc.constantFrom(...keys)) },
  )
  .map(([key, value]) => (value === undefined ? remove(key) : put(key, value)));

interface Step {
  /** Through the storage itself if it is one operation, otherwise directly at the source. */
  readonly through: boolean;
  readonly operations: readonly Operation[];
}

const step: fc.Arbitrary<Step> = fc.oneof(
  operation.map((one) => ({ through: true, operations: [one] })),
  fc
    .uniqueArray(operation, { minLength: 1, maxLength: 4, selector: ({ key }) => key })
    .map((operations) => ({ through: false, operations })),
);

interface Stream {
  readonly scope: Scope;
  readonly withPrevious: boolean;
}

const streams: readonly Stream[] = [
  { scope: { prefix: "" }, withPrevious: false },
  { scope: { prefix: "" }, withPrevious: true },
  { scope: { prefix: "a/" }, withPrevious: true },
  { scope: { key: "a" }, withPrevious: false },
  { scope: { key: "\u{1f600}" }, withPrevious: true },
  { scope: { prefix: "a" }, withPrevious: true },
];

export function describeHistories(open: () => Promise<Opened>, traits: Traits): void {
  test("of a random history, every stream and every state matches the writes", async () => {
    const histories = fc.array(step, { minLength: 1, maxLength: 25 });
    await fc.assert(
      fc.asyncProperty(histories, fc.nat(), async (history, midway) => {
        const opened = await open();
        try {
          await check(opened, history, midway);
        } finally {
          await opened.close();
        }
      }),
      { numRuns: traits.isFast ? 200 : costlyRuns(120) },
    );
  }, 240_000);
}

async function check(opened: Opened, history: readonly Step[], midway: number): Promise<void> {
  const { storage } = opened;
  const start = await storage.currentRevision();
  const live = streams.map((stream) => ({
    stream,
    reader: new StreamReader(storage, { ...stream, afterRevision: start }),
  }));
  const model = new Model();
  for (const step of history) await write(opened, model, step);
  const last = await storage.currentRevision();

  const revisions = [start, ...model.revisions];
  const middle = revisions[midway % revisions.length] ?? start;
  for (const { stream, reader } of live) {
    expect(await reader.through(last)).toEqual(model.events({ ...stream, afterRevision: start }));
  }
  for (const stream of streams) {
    const reader = new StreamReader(storage, { ...stream, afterRevision: middle });
    expect(await reader.through(last)).toEqual(model.events({ ...stream, afterRevision: middle }));
    reader.stream.close();
  }
  for (const [at, revision] of [
    [linearizable, last],
    [exact(middle), middle],
  ] as const) {
    const { items } = await storage.list({ prefix: "", limit: 0, at });
    expect(items.map(plainObject)).toEqual(model.stateAt(revision));
  }
}

async function write(opened: Opened, model: Model, step: Step): Promise<void> {
  const [first] = step.operations;
  if (!step.through || first === undefined) {
    model.apply(await opened.write(step.operations), step.operations);
  } else if (first.type === "put") {
    const { revision, object } = await opened.storage.put(first);
    model.apply(revision, step.operations);
    expect([plainObject(object)]).toEqual(
      model.stateAt(revision).filter(({ key }) => key === first.key),
    );
  } else if (model.has(first.key)) {
    const { revision } = await opened.storage.delete({ key: first.key });
    model.apply(revision, step.operations);
  }
}
