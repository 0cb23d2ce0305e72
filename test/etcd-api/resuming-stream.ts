import { setTimeout as delay } from "node:timers/promises";
import type { RawGrpc } from "./raw-grpc.ts";
import { type Event, type Kv, WatchClient, type WatchResponse } from "./watch-client.ts";

/** How long a stream that has ended waits before it is resumed, in milliseconds. */
const resumeMs = 10;

/** What a watch asks for. Keys as latin1: any bytes. */
export interface Wish {
  readonly key: string;
  readonly end: string;
  /** 0: from now on. */
  readonly start: number;
  /** 0: no puts, 1: no deletions. */
  readonly filters: readonly number[];
  readonly previous: boolean;
}

/** A watch, and what it was sent. */
export interface ResumingWatch {
  readonly wish: Wish;
  readonly events: Event[];
  /** Where it begins; 0 until that is known. */
  start: number;
  /** The revision from which it would be resumed. */
  next: number;
  /** Its id on the stream; undefined until it is created there. */
  id: string | undefined;
}

/**
 * A Watch stream that is resumed as clientv3 does it: whatever a response is, the watch continues behind it. Writes down
 * whatever contradicts that.
 */
export class ResumingStream {
  readonly watches: ResumingWatch[] = [];
  readonly wrong: string[] = [];
  /** How often it was resumed. */
  resumed = 0;
  #grpc: Pick<RawGrpc, "open">;
  /** Those whose `created` is still to come, in order. */
  #creating: ResumingWatch[] = [];
  #stream: WatchClient;
  #isClosed = false;

  constructor(grpc: Pick<RawGrpc, "open">) {
    this.#grpc = grpc;
    this.#stream = new WatchClient(grpc);
    void this.#read(this.#stream);
  }

  create(wish: Wish): void {
    const watch = { wish, events: [], start: wish.start, next: wish.start, id: undefined };
    this.watches.push(watch);
    this.#create(watch);
  }

  requestProgress(): void {
    this.#stream.requestProgress();
  }

  /** Resumes at this endpoint. */
  moveTo(grpc: Pick<RawGrpc, "open">): void {
    this.#grpc = grpc;
    this.#stream.close();
  }

  close(): void {
    this.#isClosed = true;
    this.#stream.close();
  }

  #create(watch: ResumingWatch): void {
    const { key, end, filters, previous } = watch.wish;
    const [from, to] = [Buffer.from(key, "latin1"), Buffer.from(end, "latin1")];
    this.#creating.push(watch);
    this.#stream.create({ 1: from, 2: to, 3: watch.next, 5: filters, 6: previous });
  }

  async #read(stream: WatchClient): Promise<void> {
    try {
      for (let read = 0; ; read++) {
        await stream.until(({ length }) => length > read);
        this.#receive(stream.responses[read] as WatchResponse);
      }
    } catch {
      await delay(resumeMs);
      if (!this.#isClosed) this.#resume();
    }
  }

  #resume(): void {
    this.resumed++;
    this.#creating = [];
    this.#stream = new WatchClient(this.#grpc);
    for (const watch of this.watches) {
      watch.id = undefined;
      this.#create(watch);
    }
    void this.#read(this.#stream);
  }

  #receive(response: WatchResponse): void {
    const { id, created, canceled, revision, events } = response;
    if (canceled) {
      this.wrong.push(`A watch was cancelled: ${JSON.stringify(response)}`);
    } else if (created) {
      const watch = this.#creating.shift();
      if (watch === undefined) return;
      watch.id = id;
      if (watch.next > 0) return;
      watch.start = revision + 1;
      watch.next = revision + 1;
    } else {
      for (const watch of this.watches) {
        if (watch.id === undefined || ![watch.id, "-1"].includes(id)) continue;
        if (id !== "-1" || watch.next <= revision + 1) this.#continue(watch, revision, events);
        else this.#isBehind(watch, `progress ${revision}`);
      }
    }
  }

  #continue(watch: ResumingWatch, revision: number, events: readonly Event[]): void {
    const [first] = events;
    const last = events.at(-1);
    // A watch from now on may begin with what was written while it was created.
    if (first !== undefined && Number(first.kv.mod) < Math.max(watch.next, watch.start)) {
      this.#isBehind(watch, `an event of ${first.kv.mod}`);
    }
    if (first === undefined && revision + 1 < watch.next) {
      this.#isBehind(watch, `progress ${revision}`);
    }
    watch.events.push(...events);
    watch.next = (last === undefined ? revision : Number(last.kv.mod)) + 1;
  }

  #isBehind({ wish, next }: ResumingWatch, what: string): void {
    this.wrong.push(`${what} came to the watch of ${JSON.stringify(wish)}, which was at ${next}`);
  }
}

/** The events that a watch should have been sent, of all that there were. */
export function expectedOf({ wish, start }: ResumingWatch, all: readonly Event[]): Event[] {
  const { key, end, filters, previous } = wish;
  const isWithin = ({ key: of }: Kv): boolean => {
    if (end === "") return of === key;
    return of >= key && of < end;
  };
  return all
    .filter(({ type, kv }) => {
      const isLeftOut = filters.includes(type === "PUT" ? 0 : 1);
      return Number(kv.mod) >= start && isWithin(kv) && !isLeftOut;
    })
    .map((event) => (previous ? event : { ...event, previous: undefined }));
}
