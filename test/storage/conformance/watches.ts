import { describe, expect } from "vitest";
import type { Operation } from "../../../src/storage/memory/mvcc-store.ts";
import type { Scope, WatchScope } from "../../../src/storage/storage.ts";
import { Model } from "./model.ts";
import { type Opened, put, remove, storageTest, type Traits } from "./opened.ts";
import { StreamReader } from "./stream-reader.ts";

const all: Scope = { prefix: "" };

export function describeWatches(open: () => Promise<Opened>, traits: Traits): void {
  describe("watch", () => {
    const history = [
      [put("a/1", "red")],
      [put("a/2", "red"), put("b", "blue"), put("a", "red")],
      [put("a/1", "blue"), remove("b")],
      [put("\u{1f600}", "red"), put("\ufffd", "blue")],
      [remove("a/1"), remove("never"), put("a/2", "red again")],
      [put("a/1", "red"), remove("\u{1f600}")],
      [remove("a"), remove("a/2")],
    ];
    const scopes: [string, WatchScope][] = [
      ["everything", all],
      ["a prefix", { prefix: "a/" }],
      ["a prefix that is also a key", { prefix: "a" }],
      ["a prefix of astral characters", { prefix: "\u{1f600}" }],
      ["one key", { key: "a/1" }],
      ["one key that is also a prefix", { key: "a" }],
      ["a key that is never there", { key: "a/" }],
      ["an interval", { from: "a/1", to: "b" }],
      ["an interval up to the last key", { from: "b", to: undefined }],
    ];
    const contents: [string, boolean][] = [
      ["", false],
      [" with previous", true],
    ];
    for (const [of, scope] of scopes) {
      for (const [how, withPrevious] of contents) {
        storageTest(open, `of ${of}${how} has its events from any revision on`, async (opened) => {
          const { storage, write } = opened;
          const start = await storage.currentRevision();
          const live = new StreamReader(storage, {
            scope,
            withPrevious,
            afterRevision: start,
          });
          const { model, last } = await play(history, write);
          for (const afterRevision of [start, ...model.revisions]) {
            const request = { scope, withPrevious, afterRevision };
            const expected = model.events(request);
            expect(await new StreamReader(storage, request).through(last)).toEqual(expected);
            if (afterRevision === start) expect(await live.through(last)).toEqual(expected);
          }
        });
      }
    }

    storageTest(open, "delivers a transaction in its order, in one batch", async (opened) => {
      const { storage, write } = opened;
      const afterRevision = await storage.currentRevision();
      const reader = new StreamReader(storage, { scope: all, withPrevious: true, afterRevision });
      const operations = Array.from({ length: 100 }, (_, i) => put(`${(i * 37) % 100}`, `${i}`));
      const revision = await write(operations);
      for (let batch = await reader.next(); batch !== undefined; batch = await reader.next()) {
        if (batch.events.length === 0) continue;
        expect(batch.revision).toBeGreaterThanOrEqual(revision);
        expect(batch.events.map((event) => event.object.key)).toEqual(
          operations.map((operation) => operation.key),
        );
        break;
      }
    });

    storageTest(open, "from now on has later events only", async ({ storage, write }) => {
      await write([put("a", "before")]);
      const reader = new StreamReader(storage, {
        scope: all,
        withPrevious: true,
        afterRevision: undefined,
      });
      await reader.begun();
      expect(reader.events).toEqual([]);
      const revision = await write([put("a", "after")]);
      const events = await reader.through(revision);
      expect(
        events.map((event) => [event.type, event.object?.value, event.previous?.value]),
      ).toEqual([["MODIFIED", "after", "before"]]);
    });

    storageTest(
      open,
      "resumed from any resume point has all events, once",
      async ({ storage, write }) => {
        const start = await storage.currentRevision();
        const { model, last } = await play(history, write);
        const request = { scope: all, withPrevious: true };
        const delivered: unknown[] = [];
        let afterRevision = start;
        while (afterRevision < last) {
          // One batch, then the stream is dropped.
          const reader = new StreamReader(storage, { ...request, afterRevision });
          storage.requestProgress();
          while (reader.resumePoint === afterRevision) await reader.next();
          delivered.push(...reader.events);
          afterRevision = reader.resumePoint;
          reader.stream.close();
        }
        expect(delivered).toEqual(model.events({ ...request, afterRevision: start }));
      },
    );

    storageTest(
      open,
      "does not depend on other readers that read late or not at all",
      async (opened) => {
        const { storage, write } = opened;
        const afterRevision = await storage.currentRevision();
        const request = { scope: all, withPrevious: true, afterRevision };
        const late = new StreamReader(storage, request);
        const never = storage.watch(request);
        const prompt = new StreamReader(storage, request);
        const { model, last } = await play(history, write);
        expect(await prompt.through(last)).toEqual(model.events(request));
        expect(await late.through(last)).toEqual(model.events(request));
        never.close();
      },
    );

    storageTest(
      open,
      "has a thousand keys in order, written in several transactions",
      async (opened) => {
        const { storage, write } = opened;
        const request = {
          scope: all,
          withPrevious: false,
          afterRevision: await storage.currentRevision(),
        };
        const live = new StreamReader(storage, request);
        const { model, last } = await play(
          Array.from({ length: 10 }, (_, i) =>
            Array.from({ length: 100 }, (_, j) => put(`${j}/${i}`, "x".repeat(j))),
          ),
          write,
        );
        const expected = model.events(request);
        expect(expected.length).toBe(1000);
        expect(await live.through(last)).toEqual(expected);
        expect(await new StreamReader(storage, request).through(last)).toEqual(expected);
      },
    );

    storageTest(open, "has complete large values", async ({ storage, write }) => {
      const request = {
        scope: all,
        withPrevious: true,
        afterRevision: await storage.currentRevision(),
      };
      const large = "x".repeat(1024 * 1024);
      const reader = new StreamReader(storage, request);
      const steps = [put("a", large), put("b", large), put("a", "small"), remove("b")];
      const { model, last } = await play(
        steps.map((step) => [step]),
        write,
      );
      expect((await reader.through(last)).length).toBe(4);
      expect(reader.events).toEqual(model.events(request));
    });

    storageTest(
      open,
      "from compacted history is REVISION_TOO_OLD, or has all events",
      async (opened) => {
        const { storage, write, compact } = opened;
        const start = await storage.currentRevision();
        const { model, last } = await play(history, write);
        const compacted = model.revisions.at(-3) ?? 0;
        // A storage with a history of its own has it once it is synced.
        await storage.get({ key: "a", at: { match: "NOT_OLDER_THAN", revision: last } });
        await compact(compacted);
        const request = { scope: all, withPrevious: true };
        const old = new StreamReader(storage, { ...request, afterRevision: start });
        if (traits.keepsOwnHistory === true) {
          expect(await old.through(last)).toEqual(
            model.events({ ...request, afterRevision: start }),
          );
        } else {
          expect(await old.end()).toMatchObject({
            reason: "REVISION_TOO_OLD",
            metadata: { requested_revision: String(start) },
          });
          expect(old.events).toEqual([]);
        }
        const kept = { ...request, afterRevision: compacted };
        expect(await new StreamReader(storage, kept).through(last)).toEqual(model.events(kept));
      },
    );
  });
}

/** Writes the transactions in order. */
async function play(
  history: readonly (readonly Operation[])[],
  write: Opened["write"],
): Promise<{ model: Model; last: number }> {
  const model = new Model();
  let last = 0;
  for (const operations of history) {
    last = await write(operations);
    model.apply(last, operations);
  }
  return { model, last };
}
