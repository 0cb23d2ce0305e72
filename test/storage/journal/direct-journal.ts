import { keyBytes } from "../../../src/model/key-bytes.ts";
import type { StoredObject } from "../../../src/model/object.ts";
import type { KeptChanges, KeptHistory, KeptPage } from "../../../src/storage/journal/journal.ts";
import type { ReadCall } from "../../../src/storage/journal/messages.ts";
import {
  readChanges,
  readHistory,
  readObjects,
  readState,
} from "../../../src/storage/journal/read-records.ts";
import type { DataFile } from "../../../src/storage/journal/thread/data-file.ts";
import type { Steps } from "../../../src/storage/journal/thread/key-index.ts";
import { openDataFile } from "../../../src/storage/journal/thread/open-file.ts";
import { JournalReader } from "../../../src/storage/journal/thread/reader.ts";

const noBounds = { limit: 1_000_000, maxEvents: 1_000_000, maxBytes: 1e9 } as const;

/** The reads of a journal in this thread, which opens hundreds of files in a second. */
export class DirectJournal {
  readonly data: DataFile;
  readonly #reader: JournalReader;

  constructor(file: string) {
    this.data = openDataFile({
      ...{ file, sync: "full", historyId: "", maxHistoryMs: Infinity },
      ...{ maxHistoryBytes: Infinity, maxBytes: Infinity },
    });
    this.#reader = new JournalReader(this.data);
    const { keys, lastId } = this.data.numbers;
    try {
      result(this.data.index.check(keys, lastId));
    } catch (error) {
      this.close();
      throw error;
    }
  }

  state(): StoredObject[] {
    const found: StoredObject[] = [];
    let after: Uint8Array | undefined;
    let last: Buffer | undefined;
    do {
      const { records, nextKey } = this.#reader.objects(after);
      const part = readState(records, last);
      found.push(...part.objects);
      last = part.last;
      after = nextKey;
    } while (after !== undefined);
    return found;
  }

  changesAfter(after: number): readonly KeptChanges[] {
    const call = { ...noBounds, type: "changes", after, upTo: Infinity } as const;
    return readChanges(result(this.#reader.changes(call)).records);
  }

  page(call: { revision: number; from: string; to: string | undefined; limit: number }): KeptPage {
    const [from, to] = [keyBytes(call.from), call.to === undefined ? undefined : keyBytes(call.to)];
    const read: ReadCall & { type: "page" } = { ...noBounds, ...call, type: "page", from, to };
    const { records, hasMore = false } = result(this.#reader.page(read));
    return { objects: readObjects(records), hasMore };
  }

  history(key: string, upTo: number): KeptHistory {
    const call = { ...noBounds, type: "history", key: keyBytes(key), upTo } as const;
    const { records, next } = result(this.#reader.history(call));
    return { events: readHistory(records), next };
  }

  close(): void {
    this.data.close();
  }
}

function result<T>(steps: Steps<T>): T {
  for (;;) {
    const step = steps.next();
    if (step.done === true) return step.value;
  }
}
