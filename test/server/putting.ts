import type { MemoryStorage } from "../../src/storage/memory/memory-storage.ts";

/** Writes behind the server's back, and resolves to the revision. */
export async function put(storage: MemoryStorage, key: string, value: string): Promise<number> {
  return (await storage.put({ key, value: Buffer.from(value) })).revision;
}
