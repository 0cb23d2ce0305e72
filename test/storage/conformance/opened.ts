import { expect, test } from "vitest";
import type { Reason } from "../../../src/base/errors.ts";
import type { Operation } from "../../../src/storage/memory/mvcc-store.ts";
import type { RevisionRequirement, Storage } from "../../../src/storage/storage.ts";

/** A storage under test, and direct access to its source. */
export interface Opened {
  readonly storage: Storage;
  /**
   * Executes all operations (at most 100) in one transaction at the source, and resolves to the store's revision
   * afterwards. Keys are relative, like the storage's own.
   */
  write(operations: readonly Operation[]): Promise<number>;
  /** Compacts the source's history at this revision. */
  compact(revision: number): Promise<void>;
  /** Closes the storage and everything that was opened for it. */
  close(): Promise<void>;
}

/** Permitted differences between storages. */
export interface Traits {
  /**
   * Whether it keeps a history of its own, so that revisions which the source has compacted may still be read and
   * watched from.
   */
  readonly keepsOwnHistory?: boolean;
  /** Whether a case costs almost nothing, so that there are many random histories. */
  readonly isFast?: boolean;
}

/** A test with a storage of its own. */
export function storageTest(
  open: () => Promise<Opened>,
  name: string,
  body: (opened: Opened) => Promise<void>,
): void {
  test(name, async () => {
    const opened = await open();
    try {
      await body(opened);
    } finally {
      await opened.close();
    }
  });
}

export const linearizable: RevisionRequirement = { match: "LINEARIZABLE" };

export function exact(revision: number): RevisionRequirement {
  return { match: "EXACT", revision };
}

export function bytes(text: string): Uint8Array {
  return new TextEncoder().encode(text);
}

export function put(key: string, value: string | Uint8Array = ""): Operation {
  return { type: "put", key, value: typeof value === "string" ? bytes(value) : value };
}

export function remove(key: string): Operation {
  return { type: "delete", key };
}

/** Asserts that the call fails with this reason, and at least this metadata. */
export async function expectFailure(
  call: Promise<unknown>,
  reason: Reason,
  metadata: Readonly<Record<string, string>> = {},
): Promise<void> {
  await expect(call).rejects.toMatchObject({ name: "WatchFanoutError", reason, metadata });
}
