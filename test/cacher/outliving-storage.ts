import { upstreamUnavailable } from "../../src/base/errors.ts";
import type {
  DeleteRequest,
  GetRequest,
  GetResult,
  ListRequest,
  ListResult,
  PutRequest,
  Storage,
  WatchRequest,
  WatchStream,
  WriteResult,
  WrittenAfterRequest,
  WrittenObjects,
} from "../../src/storage/storage.ts";

/** Another storage, which outlives what closes it, can be away, and counts the reads of its state. */
export class OutlivingStorage implements Storage {
  /** What it passes calls on to. A test may replace it, as a restore does. */
  storage: Storage;
  /** The calls that read the whole state, in their order. */
  readonly reads: string[] = [];
  /** The id of the history, until it is renewed, as a backup brings it back. Undefined: that of the storage. */
  broughtBackId: string | undefined;
  #isAway = false;
  readonly #ending = new Set<() => void>();

  constructor(storage: Storage) {
    this.storage = storage;
  }

  /** Each call fails, and the open watches end. */
  goAway(): void {
    this.#isAway = true;
    for (const end of [...this.#ending]) end();
  }

  comeBack(): void {
    this.#isAway = false;
  }

  async get(request: GetRequest): Promise<GetResult> {
    return this.#present.get(request);
  }

  async list(request: ListRequest): Promise<ListResult> {
    this.reads.push("list");
    return this.#present.list(request);
  }

  /** As etcd has it: the objects at a revision, by a list. */
  async writtenAfter(request: WrittenAfterRequest): Promise<WrittenObjects> {
    this.reads.push("written after");
    const { revision, after, limit } = request;
    const at = { match: "EXACT", revision } as const;
    const { items } = await this.#present.list({ prefix: "", limit: 0, at });
    const written = items.filter(({ modRevision }) => modRevision > after);
    return { written: written.slice(0, limit), total: items.length };
  }

  watch(request: WatchRequest): WatchStream {
    const stream = this.storage.watch(request);
    let lost = this.#isAway ? away() : undefined;
    let listener = (): void => {};
    stream.onReadable(() => listener());
    const end = (): void => {
      lost ??= away();
      stream.close();
      this.#ending.delete(end);
      listener();
    };
    this.#ending.add(end);
    return {
      read: () => (lost === undefined ? stream.read() : undefined),
      get ended() {
        return lost ?? stream.ended;
      },
      onReadable: (notify) => {
        listener = notify;
      },
      close: () => {
        this.#ending.delete(end);
        stream.close();
      },
    };
  }

  async put(request: PutRequest): Promise<WriteResult> {
    return this.#present.put(request);
  }

  async delete(request: DeleteRequest): Promise<WriteResult> {
    return this.#present.delete(request);
  }

  async currentRevision(): Promise<number> {
    return this.#present.currentRevision();
  }

  async historyId(): Promise<string> {
    const id = await this.#present.historyId();
    return this.broughtBackId ?? id;
  }

  async renewHistory(known: string): Promise<string> {
    this.broughtBackId = undefined;
    return this.#present.renewHistory(known);
  }

  requestProgress(): void {
    this.storage.requestProgress();
  }

  /** Without effect. */
  async close(): Promise<void> {}

  get #present(): Storage {
    if (this.#isAway) throw away();
    return this.storage;
  }
}

function away(): Error {
  return upstreamUnavailable("The store is away.");
}
