import type { Step, Trace, TracedEvent, TracedResponse } from "../../scripts/model/trace.ts";
import type { WatchBatch } from "../../src/model/event.ts";
import type { Storage, WatchRequest, WatchStream } from "../../src/storage/storage.ts";
import type { RecordedWatcher, WatcherStep } from "../faults/recorded-watcher.ts";
import { keys as writtenKeys } from "../faults/recorded-writer.ts";
import type { Change, SeenEvent, SeenObject, View } from "../guarantees/recording.ts";
import type { EtcdAccount } from "./etcd-account.ts";
import type { EtcdCluster } from "./etcd-cluster.ts";

/** What was recorded, of all clients. */
type Recorded =
  | { readonly step: "commit"; readonly revision: number; readonly changes: readonly Change[] }
  | { readonly step: "watcher"; readonly name: string; readonly of: WatcherStep }
  | {
      readonly step: "apply";
      readonly server: string;
      readonly revision: number;
      readonly updates: readonly { readonly key: string; readonly revision: number }[];
    }
  | Exclude<Step, { readonly step: "commit" | "apply" | "call" | "response" | "end" }>;

/** In the order of their bytes, as etcd's. */
const keyOrder = [...writtenKeys].sort((one, other) =>
  Buffer.compare(Buffer.from(one), Buffer.from(other)),
);

/**
 * Records what etcd commits, what the replicas' reflectors do with their storage, and what watchers receive. Changes
 * nothing in what happens: a run that is recorded has the fingerprint of one that is not.
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
      this.#steps.push({ step: "restore", revision: cluster.state.revision, isAnnounced });
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

  /** The trace of each watcher. */
  traces(run: string): Trace[] {
    const servers = [...this.#servers];
    return this.watchers.map((watcher) => ({
      name: `${run}, ${watcher.name}`,
      isLatestState: watcher.wish.delivery === "LATEST_STATE",
      hasPrevious: watcher.view.includePrevious,
      keys: keyOrder,
      roots: servers.filter((server) => server.startsWith("root")),
      relays: servers.filter((server) => server.startsWith("relay")),
      steps: stepsOf(this.#steps, watcher),
    }));
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

function stepsOf(recorded: readonly Recorded[], watcher: RecordedWatcher): Step[] {
  const { view } = watcher;
  const steps: Step[] = [];
  const ids = new Map<string, number>();
  // The events of an atomic batch that is not complete.
  let open: SeenEvent[] = [];
  const idOf = (historyId: string): number => {
    if (historyId === "") return 0;
    if (!ids.has(historyId)) ids.set(historyId, ids.size + 1);
    return ids.get(historyId) ?? 0;
  };
  for (const one of recorded) {
    if (one.step === "commit") steps.push(commitOf(one.revision, one.changes, view));
    else if (one.step === "apply") steps.push({ ...one, updates: updatesOf(one.updates) });
    else if (one.step !== "watcher") steps.push(one);
    else if (one.name === watcher.name) {
      if (one.of.step !== "response") {
        open = [];
        steps.push(...clientStep(one.of, watcher));
        continue;
      }
      const { response } = one.of;
      open.push(...response.events);
      if (response.revision === undefined) continue;
      const traced: TracedResponse = {
        ...{ revision: response.revision, isInitial: response.initialEventsEnd },
        ...{ events: inKeyOrder(open.map(tracedEvent)), id: idOf(response.historyId) },
      };
      steps.push({ step: "response", response: traced });
      open = [];
    }
  }
  return steps;
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

/** Those of one revision that follow each other. Whether etcd's order is kept within a revision the checkers show. */
function inKeyOrder(events: readonly TracedEvent[]): TracedEvent[] {
  const groups: TracedEvent[][] = [];
  for (const event of events) {
    const last = groups.at(-1);
    if (last?.[0]?.mod === event.mod) last.push(event);
    else groups.push([event]);
  }
  return groups.flatMap((group) => group.sort((one, other) => one.key - other.key));
}

function tracedEvent({ type, object, previous }: SeenEvent): TracedEvent {
  return {
    ...{ kind: type, key: numberOf(object.key), mod: object.modRevision },
    ...{ create: object.createRevision, previous: previous?.modRevision ?? 0 },
  };
}
