import {
  inKeyOrder,
  type Step,
  type Trace,
  type TracedEvent,
  type TracedResponse,
} from "../../scripts/model/trace.ts";
import type { WatchBatch } from "../../src/model/event.ts";
import type { Storage, WatchRequest, WatchStream } from "../../src/storage/storage.ts";
import type { ReaderStep } from "../faults/recorded-reader.ts";
import type { RecordedWatcher, WatcherStep } from "../faults/recorded-watcher.ts";
import { type WriterStep, keys as writtenKeys } from "../faults/recorded-writer.ts";
import { type Thing, viewOf, type Wish } from "../faults/wire.ts";
import type { Change, SeenEvent, SeenObject, View } from "../guarantees/recording.ts";
import type { EtcdAccount } from "./etcd-account.ts";
import type { EtcdCluster } from "./etcd-cluster.ts";

/** What was recorded, of all clients. */
type Recorded =
  | { readonly step: "commit"; readonly revision: number; readonly changes: readonly Change[] }
  | { readonly step: "watcher"; readonly name: string; readonly of: WatcherStep }
  | { readonly step: "reader"; readonly of: ReaderStep }
  | { readonly step: "writer"; readonly name: string; readonly of: WriterStep }
  | {
      readonly step: "apply";
      readonly server: string;
      readonly revision: number;
      readonly updates: readonly { readonly key: string; readonly revision: number }[];
    }
  | Extract<Step, { readonly step: "compact" | "restore" | "start" | "follow" }>;

/** In the order of their bytes, as etcd's. */
const keyOrder = [...writtenKeys].sort((one, other) =>
  Buffer.compare(Buffer.from(one), Buffer.from(other)),
);

/**
 * Records what etcd commits, what the replicas' reflectors do with their storage, and what watchers, readers and writers
 * receive. Changes nothing in what happens: a run that is recorded has the fingerprint of one that is not.
 */
export class TraceRecorder {
  readonly #steps: Recorded[] = [];
  readonly #servers = new Set<string>();
  /** Set by the world. */
  watchers: readonly RecordedWatcher[] = [];

  follow(cluster: EtcdCluster, account: EtcdAccount): void {
    const { onCommitted } = cluster;
    cluster.onCommitted = (store) => {
      onCommitted(store);
      const { revision } = store;
      const changes: Change[] = [];
      for (let i = account.era.changes.length - 1; i >= 0; i--) {
        const change = account.era.changes[i];
        if (change?.revision !== revision) break;
        changes.unshift(change);
      }
      this.#steps.push({ step: "commit", revision, changes });
    };
    const commit = cluster.commit.bind(cluster);
    cluster.commit = (entry) => {
      const committed = commit(entry);
      if (entry.type === "compact" && committed.error === undefined) {
        this.#steps.push({ step: "compact", revision: entry.revision });
      }
      return committed;
    };
    const restore = cluster.restore.bind(cluster);
    cluster.restore = (snapshot) => {
      restore(snapshot);
      const { isMarked: isAnnounced = false } = snapshot;
      const { revision } = cluster.state;
      this.#steps.push({ step: "restore", history: account.origin, revision, isAnnounced });
    };
  }

  /** A replica is started with this storage. Returns the same storage, recorded. */
  started(server: string, storage: Storage): Storage {
    this.#servers.add(server);
    this.#steps.push({ step: "start", server });
    return this.#recorded(server, storage);
  }

  watched(name: string, of: WatcherStep): void {
    this.#steps.push({ step: "watcher", name, of });
  }

  read(of: ReaderStep): void {
    this.#steps.push({ step: "reader", of });
  }

  written(name: string, of: WriterStep): void {
    this.#steps.push({ step: "writer", name, of });
  }

  /** The trace of each watcher, of the reads with each selection, and of each writer. */
  traces(run: string): Trace[] {
    const servers = [...this.#servers];
    const common = {
      ...{ isLatestState: false, hasPrevious: false, keys: keyOrder },
      roots: servers.filter((server) => server.startsWith("root")),
      relays: servers.filter((server) => server.startsWith("relay")),
    };
    const watches = this.watchers.map((watcher) => ({
      ...common,
      name: `${run}, ${watcher.name}`,
      isLatestState: watcher.wish.delivery === "LATEST_STATE",
      hasPrevious: watcher.view.includePrevious,
      steps: stepsOf(this.#steps, watcher.view, new WatchSteps(watcher)),
    }));
    const reads = this.#wishes().map((wish) => ({
      ...{ ...common, name: `${run}, reads of ${JSON.stringify(wish)}` },
      steps: stepsOf(this.#steps, viewOf(wish), new ReadSteps(wish)),
    }));
    const writes = this.#writers().map((writer) => ({
      ...{ ...common, name: `${run}, ${writer}` },
      steps: stepsOf(this.#steps, viewOf({}), new WriteSteps(writer)),
    }));
    return [...watches, ...reads, ...writes];
  }

  /** What was read, each once. */
  #wishes(): Wish[] {
    const wishes = this.#steps.flatMap((one) =>
      one.step === "reader" && one.of.step === "response" ? JSON.stringify(one.of.wish) : [],
    );
    return [...new Set(wishes)].map((wish) => JSON.parse(wish) as Wish);
  }

  #writers(): string[] {
    return [...new Set(this.#steps.flatMap((one) => (one.step === "writer" ? one.name : [])))];
  }

  #recorded(server: string, storage: Storage): Storage {
    const watch = (request: WatchRequest): WatchStream => this.#watch(server, storage, request);
    const { withRawKeys } = storage;
    if (withRawKeys === undefined) return overridden(storage, { watch });
    return overridden(storage, {
      ...{ watch, withRawKeys: () => this.#recorded(server, withRawKeys.call(storage)) },
    });
  }

  #watch(server: string, storage: Storage, request: WatchRequest): WatchStream {
    const stream = storage.watch(request);
    const { afterRevision: after, upTo, withPrevious } = request;
    // Others are of clients, or read the event window back.
    if (after === undefined || upTo !== undefined || withPrevious) return stream;
    this.#steps.push({ step: "follow", server, after });
    let updates: { key: string; revision: number }[] = [];
    // It is applied once the next one is read: the first of a watch is held until the watch is confirmed.
    let applied: (Recorded & { step: "apply" }) | undefined;
    const read = (): WatchBatch | undefined => {
      if (applied !== undefined) this.#steps.push(applied);
      applied = undefined;
      const batch = stream.read();
      if (batch === undefined) return undefined;
      updates.push(...batch.events.map(({ object, revision }) => ({ key: object.key, revision })));
      if (batch.revision === undefined) return batch;
      applied = { step: "apply", server, revision: batch.revision, updates };
      updates = [];
      return batch;
    };
    return overridden(stream, { read });
  }
}

/** An object with some members replaced. The others are called with the object itself, which has private ones. */
function overridden<T extends object>(of: T, members: Partial<T>): T {
  return new Proxy(of, {
    get: (target, name) => {
      if (Object.hasOwn(members, name)) return members[name as keyof T];
      const value: unknown = Reflect.get(target, name, target);
      return typeof value === "function" ? value.bind(target) : value;
    },
  });
}

/** What one client did, of all that was recorded. */
interface ClientSteps {
  /** Of a step of any client. */
  of(one: Recorded): readonly Step[];
  /** Whether a commit is the write of this client that is under way. */
  isOwn(changes: readonly Change[]): boolean;
}

function stepsOf(recorded: readonly Recorded[], view: View, client: ClientSteps): Step[] {
  return recorded.flatMap((one): readonly Step[] => {
    if (one.step === "commit") {
      const isOwn = client.isOwn(one.changes) && { isOwn: true as const };
      return [{ ...commitOf(one.revision, one.changes, view), ...isOwn }];
    }
    if (one.step === "apply") return [{ ...one, updates: updatesOf(one.updates) }];
    if (one.step === "watcher" || one.step === "reader" || one.step === "writer")
      return client.of(one);
    return [one];
  });
}

/** Numbers the ids of histories, in the order in which they are named. */
class HistoryIds {
  readonly #ids = new Map<string, number>();

  /** 0: none was named. */
  of(historyId: string): number {
    if (historyId === "") return 0;
    if (!this.#ids.has(historyId)) this.#ids.set(historyId, this.#ids.size + 1);
    return this.#ids.get(historyId) ?? 0;
  }
}

class WatchSteps implements ClientSteps {
  readonly #watcher: RecordedWatcher;
  readonly #ids = new HistoryIds();
  /** The events of an atomic batch that is not complete. */
  #open: SeenEvent[] = [];

  constructor(watcher: RecordedWatcher) {
    this.#watcher = watcher;
  }

  isOwn(): boolean {
    return false;
  }

  of(one: Recorded): readonly Step[] {
    if (one.step !== "watcher" || one.name !== this.#watcher.name) return [];
    if (one.of.step !== "response") {
      this.#open = [];
      return clientStep(one.of, this.#watcher);
    }
    const { response } = one.of;
    this.#open.push(...response.events);
    if (response.revision === undefined) return [];
    const traced: TracedResponse = {
      ...{ revision: response.revision, isInitial: response.initialEventsEnd },
      ...{
        events: inKeyOrder(this.#open.map(tracedEvent)),
        id: this.#ids.of(response.historyId),
      },
    };
    this.#open = [];
    return [{ step: "response", response: traced }];
  }
}

/** The reads with one selection: a List, or a Get of one key. */
class ReadSteps implements ClientSteps {
  readonly #wish: string;
  readonly #ids = new HistoryIds();

  constructor(wish: Wish) {
    this.#wish = JSON.stringify(wish);
  }

  isOwn(): boolean {
    return false;
  }

  of(one: Recorded): readonly Step[] {
    if (one.step !== "reader" || JSON.stringify(one.of.wish) !== this.#wish) return [];
    const { of } = one;
    if (of.step === "call") {
      const { server, isLinearizable, notOlderThan: after } = of;
      return [{ step: "call", server, begins: isLinearizable ? "list" : "any", after }];
    }
    if (of.step === "failed") return [];
    const events = of.objects.map((object) =>
      tracedEvent({ type: "ADDED", object, previous: undefined }),
    );
    const { revision, historyId } = of;
    const own = { revision, isInitial: true, id: this.#ids.of(historyId) };
    return [{ step: "response", response: { ...own, events } }];
  }
}

/** The Puts of one writer through the service. */
class WriteSteps implements ClientSteps {
  readonly #writer: string;
  #id: string | undefined;

  constructor(writer: string) {
    this.#writer = writer;
  }

  /** One that etcd does after the writer has given it up is not this writer's. */
  isOwn(changes: readonly Change[]): boolean {
    const value = changes[0]?.after?.value;
    if (value === undefined || this.#id === undefined) return false;
    return (JSON.parse(value) as Thing).write === this.#id;
  }

  of(one: Recorded): readonly Step[] {
    if (one.step !== "writer" || one.name !== this.#writer) return [];
    const { of } = one;
    if (of.step === "write") {
      this.#id = of.id;
      return [{ step: "write", key: numberOf(of.key), creates: of.creates }];
    }
    this.#id = undefined;
    const { outcome, revision, reason } = of.outcome;
    const isConflict = reason === "REVISION_CONFLICT";
    return [{ step: "written", outcome, revision, isConflict }];
  }
}

function clientStep(
  of: Exclude<WatcherStep, { step: "response" }>,
  watcher: RecordedWatcher,
): Step[] {
  if (of.step === "call") {
    const { server, after } = of;
    const first = watcher.wish.sendInitialEvents === true ? "state" : "now";
    const begins = after === undefined ? first : "resume";
    return [{ step: "call", server, begins, after: after ?? 0 }];
  }
  const { reason = "", metadata = {}, isCutOff = true } = of.end ?? {};
  const named = (name: string): number | undefined => {
    const text = metadata[name];
    return text === undefined ? undefined : Number(text);
  };
  // If messages were dropped, it names a later one than the last that was seen.
  const resume = isCutOff ? undefined : named("resume_revision");
  return [{ step: "end", reason, resume, oldest: named("oldest_revision") }];
}

function numberOf(key: string): number {
  return keyOrder.indexOf(key) + 1;
}

function commitOf(revision: number, changes: readonly Change[], view: View): Step {
  const sees = (object: SeenObject | undefined): boolean =>
    object !== undefined && view.includes(object.key) && view.matches(object);
  const numbers = (select: (change: Change) => boolean): number[] =>
    changes.filter(select).map(({ key }) => numberOf(key));
  return {
    ...{ step: "commit", revision },
    matching: numbers(({ after }) => sees(after)),
    others: numbers(({ after }) => after !== undefined && !sees(after)),
    removed: numbers(({ after }) => after === undefined),
  };
}

/** Raw keys are no objects. */
function updatesOf(
  updates: readonly { readonly key: string; readonly revision: number }[],
): { key: number; revision: number }[] {
  const known = updates.map(({ key, revision }) => ({ key: numberOf(key), revision }));
  return known.filter(({ key }) => key > 0).sort(byRevisionAndKey);
}

function byRevisionAndKey(
  one: { readonly key: number; readonly revision: number },
  other: { readonly key: number; readonly revision: number },
): number {
  return one.revision - other.revision || one.key - other.key;
}

function tracedEvent({ type, object, previous }: SeenEvent): TracedEvent {
  return {
    ...{ kind: type, key: numberOf(object.key), mod: object.modRevision },
    ...{ create: object.createRevision, previous: previous?.modRevision ?? 0 },
  };
}
