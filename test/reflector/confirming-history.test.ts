import { describe, expect, it } from "vitest";
import { type Reason, revisionTooOld, WatchFanoutError } from "../../src/base/errors.ts";
import type { WrittenObjects } from "../../src/storage/storage.ts";
import { batch, object, Reflected } from "./reflected.ts";
import { ScriptedStorage } from "./scripted-storage.ts";

function failure(reason: Reason): WatchFanoutError {
  return new WatchFanoutError(reason, `${reason}, as the script has it.`);
}

/** A storage that has compacted the known state. */
class CompactedStorage extends ScriptedStorage {
  isCompacted = true;

  async writtenAfter(): Promise<WrittenObjects> {
    if (this.isCompacted) throw revisionTooOld(5, 50);
    return { total: 0, written: [] };
  }
}

async function withoutWatch() {
  const storage = new CompactedStorage();
  const reflected = new Reflected(storage);
  await reflected.begin();
  // From here on there is no open watch and no list.
  storage.onCurrentRevision = () => new Promise(() => {});
  return { storage, reflected };
}

describe("A check of the history whose known changes are compacted", () => {
  it("is decided by the list that follows", async () => {
    const { storage, reflected } = await withoutWatch();
    storage.stream.end(failure("REVISION_TOO_OLD"));
    let outcome = "none";
    storage.onCurrentRevision = () => 50;
    await reflected.clock.settle();
    reflected.reflector.confirmHistory().then(
      () => {
        outcome = "confirmed";
      },
      (error: Error) => {
        outcome = error.message;
      },
    );
    await reflected.clock.settle();
    expect(outcome).toBe("none");
    await reflected.clock.elapse(50);
    expect(reflected.heard.at(-1)).toBe("history lost: [] →50 of 50");
    expect(outcome).toBe("confirmed");
  });

  it("fails if that list finds another history", async () => {
    const { storage, reflected } = await withoutWatch();
    storage.stream.end(failure("UPSTREAM_UNAVAILABLE"));
    await reflected.clock.settle();
    const confirming = expect(reflected.reflector.confirmHistory()).rejects.toMatchObject({
      reason: "HISTORY_CHANGED",
    });
    await reflected.clock.settle();
    storage.onCurrentRevision = () => 50;
    reflected.reflector.invalidate(reflected.reflector.historyGeneration);
    await reflected.clock.elapse(100);
    await confirming;
  });

  it("fails if no list follows within three seconds", async () => {
    const { storage, reflected } = await withoutWatch();
    storage.stream.end(failure("REVISION_TOO_OLD"));
    await reflected.clock.settle();
    const confirming = expect(reflected.reflector.confirmHistory()).rejects.toMatchObject({
      reason: "UPSTREAM_UNAVAILABLE",
    });
    await reflected.clock.elapse(3_000);
    await confirming;
  });

  it("is decided by a watch that opens again", async () => {
    const { storage, reflected } = await withoutWatch();
    storage.stream.end(failure("UPSTREAM_UNAVAILABLE"));
    await reflected.clock.settle();
    const confirming = reflected.reflector.confirmHistory();
    await reflected.clock.settle();
    storage.isCompacted = false;
    await reflected.clock.elapse(50);
    storage.stream.push(batch(6));
    await reflected.clock.settle();
    await confirming;
    expect(reflected.heard.at(-1)).toBe("→6");
  });

  it("ends with the caller's signal while it waits for a list, and leaves no timer", async () => {
    const { storage, reflected } = await withoutWatch();
    storage.stream.end(failure("REVISION_TOO_OLD"));
    await reflected.clock.settle();
    const { pendingTimers } = reflected.clock;
    const caller = new AbortController();
    const confirming = reflected.reflector.confirmHistory(caller.signal);
    await reflected.clock.settle();
    expect(reflected.clock.pendingTimers).toBeGreaterThan(pendingTimers);
    caller.abort(new Error("The caller has gone."));
    await expect(confirming).rejects.toThrow("The caller has gone.");
    expect(reflected.clock.pendingTimers).toBe(pendingTimers);
  });
});

describe("A check of the history without a watch", () => {
  async function interrupted() {
    const storage = new ScriptedStorage();
    storage.objects = [object("a", 3)];
    const reflected = new Reflected(storage);
    await reflected.begin();
    storage.stream.end(failure("UPSTREAM_UNAVAILABLE"));
    await reflected.clock.settle();
    return { storage, reflected };
  }

  it("has the state of another history replaced at once, without a pause", async () => {
    const { storage, reflected } = await interrupted();
    storage.onGet = (_key, revision) => ({ revision, object: undefined });
    storage.objects = [object("b", 6)];
    storage.onCurrentRevision = () => 6;
    await expect(reflected.reflector.confirmHistory()).rejects.toMatchObject({
      reason: "HISTORY_CHANGED",
    });
    await reflected.clock.settle();
    expect(reflected.heard.at(-1)).toBe("history changed: [b@6] →6 of 6");
  });

  it("ends with the caller's signal, but not for another caller", async () => {
    const { storage, reflected } = await interrupted();
    const answer = Promise.withResolvers<string>();
    storage.historyId = () => answer.promise;
    const caller = new AbortController();
    const left = reflected.reflector.confirmHistory(caller.signal);
    const other = reflected.reflector.confirmHistory();
    await reflected.clock.settle();
    caller.abort(new Error("The caller has gone."));
    await expect(left).rejects.toThrow("The caller has gone.");
    answer.resolve("");
    await other;
  });
});

describe("A watch after a list", () => {
  /** Lists a at revision 3, and watches from 5. */
  async function watching() {
    const storage = new CompactedStorage();
    storage.objects = [object("a", 3)];
    const reflected = new Reflected(storage);
    await reflected.begin();
    return { storage, reflected };
  }

  it("of a store that was restored before the watch was open delivers nothing", async () => {
    const { storage, reflected } = await watching();
    const before = reflected.heard.length;
    // The other history is at revision 5, too, without the listed object.
    storage.onGet = (_key, revision) => ({ revision, object: undefined });
    storage.objects = [object("b", 6)];
    storage.onCurrentRevision = () => 6;
    storage.stream.push(batch(6, ["ADDED", "b", 6]));
    await reflected.clock.elapse(50);
    expect(reflected.heard.slice(before)).toEqual(["history changed: [b@6] →6 of 6"]);
  });

  it("of the same history delivers what follows", async () => {
    const { storage, reflected } = await watching();
    const before = reflected.heard.length;
    storage.stream.push(batch(6, ["ADDED", "b", 6]));
    await reflected.clock.settle();
    expect(reflected.heard.slice(before)).toHaveLength(1);
  });
});

describe("The id of the history", () => {
  /** How often it is read within a minute without a change. */
  async function readsOf(id: string, announcesHistory: boolean): Promise<number> {
    const storage = Object.assign(new ScriptedStorage(), { announcesHistory });
    let reads = 0;
    storage.historyId = async () => {
      reads++;
      return id;
    };
    const reflected = new Reflected(storage);
    await reflected.begin();
    const begun = reads;
    await reflected.clock.elapse(60_000);
    return reads - begun;
  }

  it("is read again and again, since a store does not announce that it was restored", async () => {
    expect(await readsOf("h", false)).toBe(30);
  });

  it("is read until it is known from a storage that announces another one", async () => {
    expect(await readsOf("", true)).toBe(30);
    expect(await readsOf("h", true)).toBe(0);
  });
});

describe("A check of the history after a list, before the watch has delivered anything", () => {
  class RestorableStorage extends ScriptedStorage {
    id = "first";
    progressRequests = 0;

    async writtenAfter(): Promise<WrittenObjects> {
      this.calls.push("written after");
      return { total: 1, written: this.objects };
    }

    override async historyId(): Promise<string> {
      this.calls.push("history id");
      return this.id;
    }

    override requestProgress(): void {
      this.progressRequests++;
    }
  }

  async function listed() {
    const storage = new RestorableStorage();
    storage.objects = [object("a", 3)];
    const reflected = new Reflected(storage);
    await reflected.begin();
    storage.calls.length = 0;
    return { storage, reflected };
  }

  it("finds a restore that came in between", async () => {
    const { storage, reflected } = await listed();
    storage.id = "second";
    await expect(reflected.reflector.confirmHistory()).rejects.toMatchObject({
      reason: "HISTORY_CHANGED",
    });
  });

  it("asks for the id and the last change, and for progress, so that later ones ask nothing", async () => {
    const { storage, reflected } = await listed();
    await reflected.reflector.confirmHistory();
    expect(storage.calls).toContain("history id");
    expect(storage.calls).not.toContain("written after");
    expect(storage.progressRequests).toBe(1);
    storage.stream.push(batch(6));
    await reflected.clock.settle();
    storage.calls.length = 0;
    await reflected.reflector.confirmHistory();
    expect(storage.calls).toEqual([]);
  });
});
