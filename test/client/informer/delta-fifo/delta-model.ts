import {
  DeletedFinalStateUnknown,
  type Delta,
  type Deltas,
} from "../../../../src/client/informer/delta-fifo/delta-fifo.ts";

/** An object in one of its states. */
export interface Thing {
  readonly key: string;
  readonly state: number;
}

export function thing(key: string, state: number): Thing {
  return { key, state };
}

interface Entry {
  readonly key: string;
  deltas: string[];
  /** The latest object; undefined if it was deleted. */
  newest: Thing | undefined;
  isInitial: boolean;
}

/** A delta as text: `Updated 4`, `Deleted 4`, `Deleted ?4` if the final state is not known. */
export function wordOf({ type, object }: Delta<Thing>): string {
  return object instanceof DeletedFinalStateUnknown
    ? `${type} ?${object.object.state}`
    : `${type} ${object.state}`;
}

export function wordsOf(deltas: Deltas<Thing>): string {
  return deltas.map(wordOf).join(", ");
}

/** The naive model of a DeltaFIFO without bounds: lists that are searched from end to end. */
export class DeltaModel {
  readonly known: Map<string, Thing>;
  queue: Entry[] = [];
  /** The deltas that consumers hold; newer ones are in `since`. */
  taken: { readonly entry: Entry; since: Entry | undefined }[] = [];
  isPopulated = false;

  constructor(known: Map<string, Thing>) {
    this.known = known;
  }

  get hasSynced(): boolean {
    const entries = this.taken.flatMap(({ entry, since }) => [entry, ...(since ? [since] : [])]);
    return this.isPopulated && ![...entries, ...this.queue].some(({ isInitial }) => isInitial);
  }

  current(key: string): Thing | undefined {
    const taken = this.taken.find(({ entry }) => entry.key === key);
    const entry = taken?.since ?? taken?.entry ?? this.queue.find((other) => other.key === key);
    return entry === undefined ? this.known.get(key) : entry.newest;
  }

  put(type: string, thing: Thing, isInitial: boolean = false): void {
    this.#append(thing.key, `${type} ${thing.state}`, thing, isInitial);
  }

  delete(thing: Thing): void {
    if (this.current(thing.key) === undefined) return;
    this.#append(thing.key, `Deleted ${thing.state}`, undefined, false);
  }

  replace(things: readonly Thing[]): void {
    const isFirst = !this.isPopulated;
    this.isPopulated = true;
    for (const thing of things) this.put("Replaced", thing, isFirst);
    const before = [
      ...[...this.known.keys()].sort(),
      ...this.queue.map(({ key }) => key),
      ...this.taken.map(({ entry }) => entry.key),
    ];
    for (const key of before) {
      const current = this.current(key);
      if (current === undefined || things.some((thing) => thing.key === key)) continue;
      this.#append(key, `Deleted ?${current.state}`, undefined, isFirst);
    }
  }

  resync(): void {
    for (const [key, thing] of [...this.known].sort()) {
      const isUnderWay =
        this.queue.some((entry) => entry.key === key) ||
        this.taken.some(({ entry }) => entry.key === key);
      if (!isUnderWay) this.put("Sync", thing);
    }
  }

  take(): string | undefined {
    const entry = this.queue.shift();
    if (entry === undefined) return undefined;
    this.taken.push({ entry, since: undefined });
    return `${entry.key}: ${entry.deltas.join(", ")}${entry.isInitial ? " (initial)" : ""}`;
  }

  /** The consumer that took first has finished, or has failed. */
  finish(fails: boolean): void {
    const taken = this.taken.shift();
    if (taken === undefined) return;
    const { entry, since } = taken;
    if (!fails) {
      if (entry.newest === undefined) this.known.delete(entry.key);
      else this.known.set(entry.key, entry.newest);
      if (since !== undefined) this.queue.push(since);
      return;
    }
    this.queue.push(entry);
    if (since === undefined) return;
    entry.isInitial ||= since.isInitial;
    for (const delta of since.deltas) join(entry, delta, since.newest);
  }

  #append(key: string, delta: string, newest: Thing | undefined, isInitial: boolean): void {
    const taken = this.taken.find(({ entry }) => entry.key === key);
    let entry = taken === undefined ? this.queue.find((other) => other.key === key) : taken.since;
    if (entry === undefined) {
      entry = { key, deltas: [], newest: undefined, isInitial: false };
      if (taken === undefined) this.queue.push(entry);
      else taken.since = entry;
    }
    entry.isInitial ||= isInitial;
    join(entry, delta, newest);
  }
}

function join(entry: Entry, delta: string, newest: Thing | undefined): void {
  entry.newest = newest;
  entry.deltas.push(delta);
}
