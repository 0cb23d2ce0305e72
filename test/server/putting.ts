import type { MemoryStorage } from "../../src/storage/memory/memory-storage.ts";

/** Writes directly to the store, and returns the revision. */
export async function put(storage: MemoryStorage, key: string, value: string): Promise<number> {
  return (await storage.put({ key, value: Buffer.from(value) })).revision;
}
