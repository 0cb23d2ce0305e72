import { describe, expect, it } from "vitest";
import {
  hasReason,
  historyChanged,
  revisionTooOld,
  upstreamUnavailable,
} from "../../../src/base/errors.ts";
import { StoredObject } from "../../../src/model/object.ts";
import { StoreFingerprint } from "../../../src/reflector/history-tracker.ts";
import { batch, object, Reflected } from "../reflected.ts";
import { ScriptedStorage } from "../scripted-storage.ts";

/** A Reflector whose watch has delivered one change and broken; it checks whether it may resume. */
async function broken(
  type: "ADDED" | "DELETED",
  script: (storage: ScriptedStorage) => void,
): Promise<{ readonly storage: ScriptedStorage; readonly reflected: Reflected }> {
  const storage = new ScriptedStorage();
  const reflected = new Reflected(storage);
  await reflected.begin();
  storage.stream.push(batch(7, [type, "a", 7]));
  await reflected.clock.settle();
  script(storage);
  storage.stream.end(upstreamUnavailable("etcd is away"));
  await reflected.clock.elapse(10_000);
  return { storage, reflected };
}

const other = (value: string): StoredObject =>
  new StoredObject("a", Buffer.from(value), 7, 7, 1, 0n);

describe("A Reflector that resumes", () => {
  it.each(["ADDED", "DELETED"] as const)(
    "resumes if the store still has its last change, %s",
    async (type) => {
      const { storage, reflected } = await broken(type, (storage) => {
        storage.onGet = (_key, revision) => ({
          revision,
          object: type === "DELETED" && revision === 7 ? undefined : object("a", revision),
        });
      });
      expect(storage.calls.at(-1)).toBe('watch {"prefix":""} after 7');
      expect(reflected.heard.length).toBe(2);
    },
  );

  it.each<readonly [string, "ADDED" | "DELETED", (revision: number) => StoredObject | undefined]>([
    ["was never made", "ADDED", () => undefined],
    ["has other content", "ADDED", () => other("something else")],
    ["was made at another revision", "ADDED", () => object("a", 6)],
    [
      "was not the first of its object",
      "ADDED",
      () => new StoredObject("a", Buffer.of(), 7, 7, 2, 0n),
    ],
    ["is under another lease", "ADDED", () => new StoredObject("a", Buffer.of(), 7, 7, 1, 1n)],
    ["was not deleted", "DELETED", () => object("a", 6)],
    ["was deleted before", "DELETED", () => undefined],
  ])("finds another history if its last change %s", async (_what, type, standsAt) => {
    const { reflected } = await broken(type, (storage) => {
      storage.onGet = (_key, revision) => ({ revision, object: standsAt(revision) });
    });
    expect(reflected.heard.at(-1)).toMatch(/^history changed: /);
  });

  it("finds another history if the store has not reached that revision", async () => {
    const { reflected } = await broken("ADDED", (storage) => {
      storage.onGet = () => {
        throw historyChanged(7, 6);
      };
    });
    expect(reflected.heard.at(-1)).toMatch(/^history changed: /);
  });

  it("resumes if its last change is compacted, so that it can't be checked", async () => {
    const { storage } = await broken("ADDED", (storage) => {
      storage.onGet = () => {
        throw revisionTooOld(7, 8);
      };
    });
    expect(storage.calls.at(-1)).toBe('watch {"prefix":""} after 7');
  });

  it("checks the newest listed object if nothing has changed since", async () => {
    const storage = new ScriptedStorage();
    storage.objects = [object("a", 2), object("b", 4), object("c", 3)];
    const asked: string[] = [];
    storage.onGet = (key, revision) => {
      asked.push(`${key} at ${revision}`);
      return { revision, object: object(key, revision) };
    };
    const reflected = new Reflected(storage);
    await reflected.begin();
    storage.stream.end(upstreamUnavailable("etcd is away"));
    await reflected.clock.elapse(10_000);
    expect(asked).toEqual(["b at 4"]);
    expect(hasReason(reflected.reflector.failure, "UPSTREAM_UNAVAILABLE")).toBe(true);
  });
});

describe("The fingerprint", () => {
  it("is compared as it was when the check began, whatever is delivered meanwhile", async () => {
    const storage = new ScriptedStorage();
    const last = new StoreFingerprint();
    const [added, deleted] = [batch(7, ["ADDED", "a", 7]), batch(8, ["DELETED", "a", 8])];
    last.of(added.events[0]);
    const asked: number[] = [];
    storage.onGet = (_key, revision) => {
      asked.push(revision);
      last.of(deleted.events[0]);
      return { revision, object: object("a", revision) };
    };
    await last.check(storage, new AbortController().signal);
    expect(asked).toEqual([7]);
  });
});
