import type { Seeded } from "../faults/seeded.ts";
import type { EtcdStore, Keys, KeyValue, StoreEvent } from "./etcd-store.ts";
import type { Agenda, ScheduledEvent } from "./scheduler.ts";

/** Where etcd is free to choose, or its versions differ. */
export interface WatchBehaviour {
  /** Maximum number of revisions of a response to an unsynced watch. etcd: 1,000. */
  readonly maxBatchRevisions: number;
  /** Maximum number of events of a fragment. etcd: as many as fit 2 MiB. */
  readonly maxFragmentEvents: number;
  /** How often a synced watch misses a change, since its stream is full, and must catch up. */
  readonly slowness: number;
  /** Whether progress is reported only from the watch's start revision on (since 3.6). */
  readonly withholdsProgressBeforeStart?: boolean;
}

/** Interval at which unsynced watches get events from the store, in milliseconds. */
const syncIntervalMs = 100;

/** The same behind a batch that is as large as it may be, which is a thousand times smaller than in etcd. */
const nextBatchMs = 1;

export interface WatchCreation extends Keys {
  /** 0: from now. */
  readonly startRevision: number;
  readonly prevKv: boolean;
  readonly fragment: boolean;
  /** 0: no puts, 1: no deletions. */
  readonly filters?: readonly number[];
  /** 0 or absent: the stream chooses. */
  readonly watchId?: number;
}

export interface SentEvent {
  readonly event: StoreEvent;
  readonly previous: KeyValue | undefined;
}

export interface WatchResponse {
  /** -1: it is about all watches of the stream. */
  readonly watchId: number;
  readonly revision: number;
  readonly created?: boolean;
  readonly canceled?: boolean;
  readonly compactRevision?: number;
  readonly cancelReason?: string;
  readonly fragment?: boolean;
  readonly events: readonly SentEvent[];
}

interface Watcher {
  readonly id: number;
  readonly stream: WatchStream;
  readonly creation: WatchCreation;
  /** The next revision that it gets. */
  next: number;
  isSynced: boolean;
}

/** The watches of one stream of the Watch call. */
export interface WatchStream {
  readonly send: (response: WatchResponse) => void;
  readonly watchers: Map<number, Watcher>;
  nextId: number;
}

/** The watches of one member (etcd's watchableStore): synced ones get changes as they come, others read them from the store. */
export class WatchableStore {
  readonly #store: () => EtcdStore;
  readonly #agenda: Agenda;
  readonly #random: Seeded;
  readonly #behaviour: WatchBehaviour;
  readonly #streams = new Set<WatchStream>();
  #syncing: ScheduledEvent | undefined;
  /** Called when a watch has to read the store from this revision on: it begins in the past, or has missed a change. */
  onBehind: (revision: number) => void = () => {};

  constructor(store: () => EtcdStore, agenda: Agenda, random: Seeded, behaviour: WatchBehaviour) {
    this.#store = store;
    this.#agenda = agenda;
    this.#random = random;
    this.#behaviour = behaviour;
  }

  open(send: (response: WatchResponse) => void): WatchStream {
    const stream = { send, watchers: new Map(), nextId: 0 };
    this.#streams.add(stream);
    return stream;
  }

  close(stream: WatchStream): void {
    this.#streams.delete(stream);
  }

  clear(): void {
    this.#streams.clear();
    this.#syncing?.cancel();
    this.#syncing = undefined;
  }

  create(stream: WatchStream, creation: WatchCreation): void {
    const { revision } = this.#store();
    const { startRevision, key, end = "" } = creation;
    if (end !== "" && end !== "\0" && key >= end) {
      const canceled = { canceled: true, cancelReason: "mvcc: watcher range is empty" };
      stream.send({ watchId: -1, revision, created: true, ...canceled, events: [] });
      return;
    }
    const isSynced = startRevision === 0 || startRevision > revision;
    const next = isSynced ? Math.max(revision + 1, startRevision) : startRevision;
    const { watchId = 0 } = creation;
    if (stream.watchers.has(watchId) && watchId !== 0) {
      const canceled = { canceled: true, cancelReason: "mvcc: watch id is in use" };
      stream.send({ watchId: -1, revision, created: true, ...canceled, events: [] });
      return;
    }
    while (stream.watchers.has(stream.nextId)) stream.nextId++;
    const id = watchId === 0 ? stream.nextId++ : watchId;
    stream.watchers.set(id, { id, stream, creation, next, isSynced });
    stream.send({ watchId: id, revision, created: true, events: [] });
    if (isSynced) return;
    this.#syncLater();
    this.onBehind(startRevision);
  }

  cancel(stream: WatchStream, watchId: number): void {
    if (!stream.watchers.delete(watchId)) return;
    stream.send({ watchId, revision: this.#store().revision, canceled: true, events: [] });
  }

  /** Answered only if all watches of the stream are synced. */
  requestProgress(stream: WatchStream): void {
    const { revision } = this.#store();
    for (const { isSynced, creation } of stream.watchers.values()) {
      if (!isSynced) return;
      const { withholdsProgressBeforeStart: withholds } = this.#behaviour;
      if (withholds === true && revision < creation.startRevision) return;
    }
    if (stream.watchers.size > 0) stream.send({ watchId: -1, revision, events: [] });
  }

  /** The store has a new revision. */
  changed(revision: number): void {
    for (const watcher of this.#inAnyOrder()) {
      if (!watcher.isSynced || watcher.next > revision) continue;
      if (this.#random.chance(this.#behaviour.slowness)) {
        watcher.isSynced = false;
        this.#syncLater();
        this.onBehind(revision);
        continue;
      }
      this.#send(watcher, revision, revision);
      watcher.next = revision + 1;
    }
  }

  /** The store was replaced by a newer state. */
  restored(): void {
    for (const watcher of this.#inAnyOrder()) {
      if (watcher.next <= this.#store().revision) watcher.isSynced = false;
    }
    this.#syncLater();
  }

  #syncLater(intervalMs: number = syncIntervalMs): void {
    this.#syncing ??= this.#agenda.after(
      intervalMs * this.#random.next(),
      "etcd syncs watches",
      () => {
        this.#syncing = undefined;
        for (const watcher of this.#inAnyOrder()) if (!watcher.isSynced) this.#sync(watcher);
      },
    );
  }

  #sync(watcher: Watcher): void {
    const { revision, compacted } = this.#store();
    if (watcher.next < compacted) {
      watcher.stream.watchers.delete(watcher.id);
      const { id: watchId } = watcher;
      const canceled = { canceled: true, compactRevision: compacted, events: [] };
      watcher.stream.send({ watchId, revision, ...canceled });
      return;
    }
    const all = this.#store().eventsOf(watcher.creation, watcher.next, revision);
    const revisions = [...new Set(all.map((event) => event.revision))];
    const { maxBatchRevisions } = this.#behaviour;
    const after = revisions[maxBatchRevisions];
    const upTo = after === undefined ? revision : after - 1;
    this.#send(watcher, watcher.next, upTo);
    watcher.next = upTo + 1;
    if (after === undefined) watcher.isSynced = true;
    else this.#syncLater(nextBatchMs);
  }

  #send({ id: watchId, stream, creation, next }: Watcher, from: number, upTo: number): void {
    const store = this.#store();
    const { filters = [] } = creation;
    const wanted = store
      .eventsOf(creation, Math.max(from, next), upTo)
      .filter(({ kv }) => !filters.includes(kv === undefined ? 1 : 0));
    const events = wanted.map((event): SentEvent => {
      const previous = creation.prevKv ? store.before(event.key, event.revision) : undefined;
      return { event, previous };
    });
    if (events.length === 0) return;
    const { revision } = store;
    const size = creation.fragment ? this.#behaviour.maxFragmentEvents : events.length;
    for (let at = 0; at < events.length; at += size) {
      const fragment = at + size < events.length;
      stream.send({ watchId, revision, fragment, events: events.slice(at, at + size) });
    }
  }

  #inAnyOrder(): Watcher[] {
    const all = [...this.#streams].flatMap(({ watchers }) => [...watchers.values()]);
    for (let i = all.length - 1; i > 0; i--) {
      const j = this.#random.between(0, i);
      const [one, other] = [all[i], all[j]];
      if (one !== undefined && other !== undefined) [all[i], all[j]] = [other, one];
    }
    return all;
  }
}
