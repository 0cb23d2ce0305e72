import { describe, expect, test } from "vitest";
import type { WatchRequest } from "../../../src/storage/storage.ts";
import { batches } from "../batches.ts";
import { type Opened, put, storageTest } from "./opened.ts";
import { StreamReader } from "./stream-reader.ts";

const fromNow: WatchRequest = {
  scope: { prefix: "" },
  withPrevious: false,
  afterRevision: undefined,
};

export function describeWatchLife(open: () => Promise<Opened>): void {
  describe("an invalid watch", () => {
    const invalid: [string, Partial<WatchRequest>][] = [
      ["an empty key", { scope: { key: "" } }],
      ["half a surrogate pair in the key", { scope: { key: "a\ud800" } }],
      ["half a surrogate pair in the prefix", { scope: { prefix: "\udc00" } }],
      ["a negative revision", { afterRevision: -1 }],
      ["a revision that is no integer", { afterRevision: 1.5 }],
    ];
    for (const [name, part] of invalid) {
      storageTest(
        open,
        `for ${name} ends with INVALID_REQUEST, without a throw`,
        async (opened) => {
          const reader = new StreamReader(opened.storage, { ...fromNow, ...part });
          expect(await reader.end()).toMatchObject({ reason: "INVALID_REQUEST" });
        },
      );
    }

    storageTest(
      open,
      "from above the store's revision ends with HISTORY_CHANGED",
      async (opened) => {
        const { storage } = opened;
        const afterRevision = (await storage.currentRevision()) + 1_000_000;
        const reader = new StreamReader(storage, { ...fromNow, afterRevision });
        expect(await reader.end()).toMatchObject({ reason: "HISTORY_CHANGED" });
        expect(reader.events).toEqual([]);
      },
    );
  });

  describe("progress", () => {
    storageTest(
      open,
      "is delivered to an idle stream, as often as it is requested",
      async (opened) => {
        const { storage, write } = opened;
        const revision = await write([put("a")]);
        const reader = new StreamReader(storage, { ...fromNow, afterRevision: revision });
        for (let asked = 0; asked < 3; asked++) {
          storage.requestProgress();
          // Other tests may write to the same store, so the revision may be higher, but not lower.
          const batch = await reader.next();
          expect(batch?.events).toEqual([]);
          expect(batch?.revision).toBeGreaterThanOrEqual(revision);
        }
      },
    );

    storageTest(open, "follows writes outside the stream's scope", async (opened) => {
      const { storage, write } = opened;
      const afterRevision = await storage.currentRevision();
      const reader = new StreamReader(storage, { ...fromNow, scope: { key: "a" }, afterRevision });
      for (const key of ["b", "aa", "c"]) {
        const revision = await write([put(key)]);
        expect(await reader.through(revision)).toEqual([]);
        expect(reader.resumePoint).toBeGreaterThanOrEqual(revision);
      }
    });

    storageTest(open, "never overtakes events", async ({ storage, write }) => {
      const afterRevision = await storage.currentRevision();
      const reader = new StreamReader(storage, { ...fromNow, afterRevision });
      for (let i = 0; i < 20; i++) {
        storage.requestProgress();
        const revision = await write([put("a", `${i}`)]);
        storage.requestProgress();
        const events = await reader.through(revision);
        expect(events.at(-1)?.revision).toBe(revision);
        expect(events.length).toBe(i + 1);
      }
    });
  });

  describe("a closed stream", () => {
    storageTest(
      open,
      "has ended without an error, and its unread batches are dropped",
      async (opened) => {
        const { storage, write } = opened;
        const afterRevision = await storage.currentRevision();
        const { stream } = new StreamReader(storage, { ...fromNow, afterRevision });
        await write([put("a")]);
        expect(stream.ended).toBeUndefined();
        stream.close();
        stream.close();
        expect(stream.read()).toBeUndefined();
        expect(stream.ended).toBeNull();
      },
    );

    storageTest(open, "wakes a waiting reader", async ({ storage }) => {
      const reader = new StreamReader(storage, fromNow);
      await reader.begun();
      const waiting = reader.end();
      reader.stream.close();
      expect(await waiting).toBeNull();
    });

    storageTest(open, "is closed by leaving the loop over its batches", async (opened) => {
      const { storage, write } = opened;
      const afterRevision = await storage.currentRevision();
      await write([put("a")]);
      const stream = storage.watch({ ...fromNow, afterRevision });
      for await (const batch of batches(stream)) {
        if (batch.events.length > 0) break;
      }
      expect(stream.ended).toBeNull();
    });
  });

  test("closing the storage ends every stream, later ones too, with an error", async () => {
    const opened = await open();
    try {
      const readers = [1, 2, 3].map(() => new StreamReader(opened.storage, fromNow));
      for (const reader of readers) await reader.begun();
      const ends = readers.map((reader) => reader.end());
      await opened.storage.close();
      for (const end of await Promise.all(ends)) {
        expect(end).toMatchObject({ name: "WatchFanoutError" });
      }
      const late = new StreamReader(opened.storage, fromNow);
      expect(await late.end()).toMatchObject({ name: "WatchFanoutError" });
    } finally {
      await opened.close();
    }
  });

  storageTest(open, "a listener may write to what it listens to", async ({ storage, write }) => {
    const afterRevision = await storage.currentRevision();
    const echo = storage.watch({ ...fromNow, afterRevision, scope: { prefix: "ping" } });
    const echoes: Promise<unknown>[] = [];
    const respond = (): void => {
      for (let batch = echo.read(); batch !== undefined; batch = echo.read()) {
        for (const { object } of batch.events) {
          echoes.push(storage.put({ key: `pong to ${object.key}`, value: object.value }));
        }
      }
    };
    echo.onReadable(respond);
    respond();
    const reader = new StreamReader(storage, { ...fromNow, afterRevision });
    await write([put("ping 1"), put("ping 2")]);
    while (reader.events.length < 4) await reader.next();
    await Promise.all(echoes);
    const keys = reader.events.map((event) => event.key);
    expect(keys.sort()).toEqual(["ping 1", "ping 2", "pong to ping 1", "pong to ping 2"]);
  });
}
