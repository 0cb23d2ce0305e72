import { setTimeout as delay } from "node:timers/promises";
import { RawGrpc } from "../etcd-api/raw-grpc.ts";
import { type Event, WatchClient, type WatchResponse } from "../etcd-api/watch-client.ts";
import type { Seeded } from "../faults/seeded.ts";
import type { EtcdHistory } from "./etcd-history.ts";

/** How long a stream that has ended waits before it is resumed elsewhere, in milliseconds. */
const resumeMs = 50;

const maxWatches = 6;

/** What a watch asks for. Keys have a character for each byte. */
interface Wish {
  readonly key: string;
  readonly end: string;
  readonly filters: readonly number[];
  readonly previous: boolean;
  readonly fragment: boolean;
}

/** A watch, and what it was sent: from `start` on, without a gap, before `next`. */
interface Watch {
  readonly wish: Wish;
  /** 0 until that is known. */
  start: number;
  next: number;
  /** Its id on the stream; undefined until it is created there. */
  id: string | undefined;
  events: Event[];
  /** Of a response that has not arrived completely. */
  fragments: Event[];
}

export interface EtcdWatcherOptions {
  readonly name: string;
  /** Where etcd's API is served. */
  readonly urls: readonly string[];
  readonly random: Seeded;
  readonly history: EtcdHistory;
  /** The keys that watches are made of, and how their ranges end. */
  readonly keys: readonly string[];
  readonly ends: readonly string[];
  /** Whether the deletion at a compacted revision may be missing (etcd issue 18089). */
  readonly dropsTombstones: boolean;
}

/**
 * A client of etcd's Watch that resumes its stream as clientv3 does: whatever a response is, the watch continues behind it, at
 * this replica or at another. Writes down whatever contradicts what etcd promises: each event once, in order, and no progress
 * below what was sent.
 */
export class EtcdWatcher {
  readonly wrong: string[] = [];
  readonly #options: EtcdWatcherOptions;
  readonly #watches: Watch[] = [];
  /** Those whose `created` is still to come, in order. */
  #creating: Watch[] = [];
  #grpc: RawGrpc | undefined;
  #stream: WatchClient | undefined;
  #isOver = true;
  #done: Promise<unknown> = Promise.resolve();

  constructor(options: EtcdWatcherOptions) {
    this.#options = options;
  }

  start(): void {
    this.#isOver = false;
    this.#done = Promise.all([this.#follow(), this.#act()]);
  }

  /** Ends it, and forgets its watches after they were compared with the history. */
  async stop(): Promise<void> {
    this.#isOver = true;
    this.#grpc?.close();
    await this.#done;
    for (const watch of this.#watches.splice(0)) this.#compare(watch);
  }

  /** What does not have everything before this revision. */
  behind(revision: number): string[] {
    return this.#watches
      .filter(({ next }) => next <= revision)
      .map((watch) => `${this.#nameOf(watch)} is at ${watch.next}, and did not reach ${revision}`);
  }

  async #follow(): Promise<void> {
    while (!this.#isOver) {
      const grpc = new RawGrpc(this.#options.random.pick(this.#options.urls));
      const stream = new WatchClient(grpc);
      this.#grpc = grpc;
      this.#stream = stream;
      this.#creating = [];
      for (const watch of this.#watches) this.#create(watch);
      try {
        for (let read = 0; !this.#isOver; read++) {
          await stream.until(({ length }) => length > read);
          this.#receive(stream.responses[read] as WatchResponse);
        }
      } catch {
        // It has ended.
      }
      this.#stream = undefined;
      grpc.close();
      await delay(resumeMs);
    }
  }

  /** Creates watches and asks for progress, from time to time. */
  async #act(): Promise<void> {
    const { random } = this.#options;
    while (!this.#isOver) {
      await delay(random.between(1, 200));
      const stream = this.#stream;
      if (stream === undefined || this.#isOver) continue;
      if (this.#watches.length < maxWatches && random.chance(0.4)) this.#add();
      else if (random.chance(0.02)) this.#grpc?.close();
      else stream.requestProgress();
    }
  }

  #add(): void {
    const { random, keys, ends, history } = this.#options;
    const key = random.pick(keys);
    const wish = {
      ...{ key, end: random.pick(ends.filter((end) => end === "" || end === "\0" || end > key)) },
      ...{ filters: random.pick([[], [], [], [0], [1]]), previous: random.chance(0.5) },
      fragment: random.chance(0.3),
    };
    const start = random.chance(0.4) ? 0 : random.between(2, history.revision + 2);
    const watch = { wish, start, next: start, id: undefined, events: [], fragments: [] };
    this.#watches.push(watch);
    this.#create(watch);
  }

  #create(watch: Watch): void {
    const { key, end, filters, previous, fragment } = watch.wish;
    const [from, to] = [Buffer.from(key, "latin1"), Buffer.from(end, "latin1")];
    watch.id = undefined;
    watch.fragments = [];
    this.#creating.push(watch);
    const asked = { 1: from, 2: to, 3: watch.next, 5: filters, 6: previous, 8: fragment };
    this.#stream?.create(asked);
  }

  #receive(response: WatchResponse): void {
    const { id, created, canceled, revision } = response;
    if (created) {
      const watch = this.#creating.shift();
      if (watch === undefined || canceled) {
        this.wrong.push(`EtcdWatch: ${JSON.stringify(response)} answers nothing`);
        return;
      }
      watch.id = id;
      if (watch.next > 0) return;
      watch.start = revision + 1;
      watch.next = revision + 1;
      return;
    }
    for (const watch of this.#watches) {
      if (watch.id === undefined || ![watch.id, "-1"].includes(id)) continue;
      if (canceled) this.#cancelled(watch, response);
      else this.#continue(watch, response);
    }
  }

  #continue(watch: Watch, { events, fragment, revision }: WatchResponse): void {
    const [first] = events;
    if (first === undefined) {
      if (revision + 1 < watch.next) this.#isBehind(watch, `progress ${revision}`);
      if (watch.fragments.length > 0) this.#isBehind(watch, "progress within fragments");
      watch.next = Math.max(watch.next, revision + 1);
      return;
    }
    if (watch.fragments.length === 0 && Number(first.kv.mod) < watch.next) {
      this.#isBehind(watch, `an event of ${first.kv.mod}`);
    }
    watch.fragments.push(...events);
    if (fragment) return;
    watch.events.push(...watch.fragments.splice(0));
    watch.next = Number(watch.events.at(-1)?.kv.mod ?? 0) + 1;
  }

  /** What it would have been sent is compacted: it begins there again, as its client would after a list. */
  #cancelled(watch: Watch, { compactRevision, reason }: WatchResponse): void {
    const compacted = Math.max(0, ...this.#options.history.compactions);
    if (compactRevision === 0 || compactRevision > compacted || watch.next >= compactRevision) {
      const why = `${compactRevision}, "${reason}", while ${compacted} is compacted`;
      this.wrong.push(`EtcdWatch: ${this.#nameOf(watch)} was cancelled at ${watch.next}: ${why}`);
    }
    this.#compare(watch);
    watch.events = [];
    watch.start = Math.max(compactRevision, watch.next);
    watch.next = watch.start;
    this.#create(watch);
  }

  #compare(watch: Watch): void {
    const { start, next, events, wish } = watch;
    const { history, dropsTombstones } = this.#options;
    const compacted = Math.max(0, ...history.compactions);
    const mayBeMissing = ({ type, kv }: Event): boolean =>
      dropsTombstones && type === "DELETE" && history.compactions.has(Number(kv.mod));
    const expected = history
      .between(wish, start, next)
      .filter(({ type }) => !wish.filters.includes(type === "PUT" ? 0 : 1));
    let at = 0;
    for (const event of expected) {
      const received = events[at];
      const mod = Number(event.kv.mod);
      if (received === undefined || !isSame(received, event)) {
        if (mayBeMissing(event)) continue;
        const instead = received && `${received.type} at ${received.kv.mod}`;
        const what = `${event.type} of ${JSON.stringify(event.kv.key)} at ${mod}`;
        this.wrong.push(
          `EtcdWatch: ${this.#nameOf(watch)} did not get ${what}, but ${instead}, before ${next}`,
        );
        return;
      }
      at++;
      const { previous } = received;
      const isRight = previous === undefined ? mod <= compacted || !event.previous : wish.previous;
      const needed = wish.previous ? event.previous : undefined;
      const isEqual = previous === undefined || isSameKv(previous, needed);
      if ((wish.previous && !isRight) || !isEqual) {
        const says = `${JSON.stringify(previous)} in the place of ${JSON.stringify(needed)}`;
        this.wrong.push(`EtcdWatch: ${this.#nameOf(watch)}: previous at ${mod} is ${says}`);
      }
    }
    const surplus = events[at];
    if (surplus === undefined) return;
    const what = `${surplus.type} at ${surplus.kv.mod}, which was not to come`;
    this.wrong.push(`EtcdWatch: ${this.#nameOf(watch)} got ${what}`);
  }

  #isBehind(watch: Watch, what: string): void {
    this.wrong.push(
      `EtcdWatch: ${what} came to ${this.#nameOf(watch)}, which was at ${watch.next}`,
    );
  }

  #nameOf({ wish, start }: Watch): string {
    return `${this.#options.name}'s watch of ${JSON.stringify(wish)} from ${start}`;
  }
}

function isSame(one: Event, other: Event): boolean {
  return one.type === other.type && isSameKv(one.kv, other.kv);
}

function isSameKv(one: Event["kv"], other: Event["kv"] | undefined): boolean {
  return JSON.stringify(one) === JSON.stringify(other && orderedAs(one, other));
}

function orderedAs(one: Event["kv"], other: Event["kv"]): object {
  return Object.fromEntries(
    Object.keys(one).map((name) => [name, other[name as keyof typeof other]]),
  );
}
