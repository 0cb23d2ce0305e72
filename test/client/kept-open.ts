import type { MemoryStorage } from "../../src/storage/memory/memory-storage.ts";
import type { Storage } from "../../src/storage/storage.ts";

/** A storage whose close has no effect, so that others can use it at the same time or later. */
export function keptOpen(store: MemoryStorage): Storage {
  return {
    get: (request) => store.get(request),
    list: (request) => store.list(request),
    watch: (request) => store.watch(request),
    put: (request) => store.put(request),
    delete: (request) => store.delete(request),
    currentRevision: (signal) => store.currentRevision(signal),
    historyId: (signal) => store.historyId(signal),
    renewHistory: (known, signal) => store.renewHistory(known, signal),
    requestProgress: () => store.requestProgress(),
    close: async () => {},
  };
}
