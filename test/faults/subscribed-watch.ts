import type { Message } from "../foreign/protobuf.ts";
import { encode } from "../foreign/protobuf.ts";
import { resumePointOf } from "../guarantees/recording.ts";
import type { Seeded } from "./seeded.ts";
import { type RecordedTime, type StreamEnd, WatchRecord } from "./watch-record.ts";
import { type Delivered, deliveredIn, type Wish, watchRequest } from "./wire.ts";

/** What the client grants a watch: any number of responses, a few, or a few bytes. */
export type CreditKind = "unlimited" | "messages" | "bytes";

/** How much is granted at once, at most. */
const most = { messages: 4, bytes: 1_500 };

/** One watch of a Subscribe stream, which is resumed on the same one or another. */
export class SubscribedWatch extends WatchRecord {
  readonly #credit: CreditKind;
  readonly #random: Seeded;
  /** Its id on the present stream; 0: it is not open. */
  id = 0;
  /** How often it was opened. */
  opened = 0;
  /** Whether the client has removed it, and its end has not come yet. */
  isRemoving = false;
  /** Requests for its progress that may not be answered yet: the answers take no credit. */
  progressRequests = 0;
  #delivered: Delivered[] = [];
  /** The last resume point that its own responses on this stream had. */
  #point: number | undefined;
  #granted = 0;
  #used = 0;

  constructor(
    name: string,
    wish: Wish,
    time: RecordedTime,
    { credit, random }: { readonly credit: CreditKind; readonly random: Seeded },
  ) {
    super(name, wish, time);
    this.#credit = credit;
    this.#random = random;
  }

  get isOpen(): boolean {
    return this.id > 0;
  }

  /** Whether the server may send nothing of it until it gets credit. */
  get isParked(): boolean {
    return this.isOpen && this.#used >= this.#limit;
  }

  get #limit(): number {
    return this.#credit === "unlimited" ? Infinity : this.#granted;
  }

  /** Returns the request that adds it, where it had ended. */
  open(id: number): Buffer {
    const { streams, historyId } = this.current();
    const afterRevision = resumePointOf(streams.flat());
    this.id = id;
    this.opened++;
    this.#delivered = [];
    this.#point = undefined;
    this.progressRequests = 0;
    this.#used = 0;
    this.#granted = this.#amount();
    streams.push(this.#delivered);
    const isResumed = afterRevision !== undefined;
    const wish = isResumed ? { ...this.wish, sendInitialEvents: false } : this.wish;
    const watch = watchRequest(wish, { afterRevision, historyId });
    return encode({ 1: encode({ 1: id, 2: watch, ...this.#fields(this.#granted, 3) }) });
  }

  /** Returns the request that grants it more. Undefined: it has no limit. */
  grant(isHurried: boolean): Buffer | undefined {
    if (this.#credit === "unlimited") return undefined;
    const more = this.#amount() * (isHurried ? 100 : 1);
    this.#granted += more;
    return encode({ 3: encode({ 1: this.id, ...this.#fields(more, 2) }) });
  }

  /** Returns what is wrong with a response. */
  take(bytes: Buffer, response: Message): string[] {
    const delivered = deliveredIn(response);
    const { revision, events, historyId } = delivered;
    const isProgress =
      this.progressRequests > 0 && events.length === 0 && this.#delivered.length > 0;
    const wrong =
      this.isParked && !isProgress
        ? [`Credit: it got ${this.#textOf(delivered)} without credit`]
        : [];
    // With credit it may be a bookmark that nothing asked for, which takes some, and the answer comes later.
    if (isProgress && this.isParked) this.progressRequests--;
    // The id of the history, with its tag and length, is added on the way.
    if (!isProgress && this.#credit === "bytes") {
      this.#used += bytes.length - (historyId === "" ? 0 : historyId.length + 2);
    } else if (!isProgress) this.#used++;
    this.#delivered.push(delivered);
    this.record(this.current(), delivered);
    if (revision !== undefined) this.#point = revision;
    return wrong;
  }

  /**
   * All watches of the stream have delivered everything up to this revision, it as well: recorded as a resume point, unless it
   * is ahead. Returns what is wrong with that.
   */
  progressed(revision: number): string[] {
    const point = resumePointOf(this.#delivered);
    if (point === undefined) return [`Cut: it has said nothing yet, and is at ${revision}`];
    if (point >= revision) return [];
    if (this.#delivered.at(-1)?.revision === undefined) {
      return [`Cut: an atomic batch after ${point} is open, and it is at ${revision}`];
    }
    const said = { revision, events: [], initialEventsEnd: false, historyId: "" };
    this.#delivered.push(said);
    this.record(this.current(), said);
    return [];
  }

  /** It has ended on its stream. `end` is undefined if the client has removed it, or left the stream. */
  close(end: Omit<StreamEnd, "resumePoint"> | undefined): void {
    const { streams } = this.current();
    // No stream can be resumed from one without a response.
    if (this.#delivered.length === 0) streams.splice(streams.indexOf(this.#delivered), 1);
    this.id = 0;
    this.isRemoving = false;
    this.recordEnd(end && { ...end, resumePoint: this.#point });
  }

  #amount(): number {
    if (this.#credit === "unlimited") return Infinity;
    const atMost = most[this.#credit];
    return this.#random.between(Math.ceil(atMost / 4), atMost);
  }

  /** `first`: the number of the field for messages, before that for bytes. */
  #fields(amount: number, first: number): Record<number, number> {
    if (this.#credit === "unlimited") return {};
    return { [this.#credit === "messages" ? first : first + 1]: amount };
  }

  #textOf({ revision, events }: Delivered): string {
    return revision === undefined ? `${events.length} events` : `the resume point ${revision}`;
  }
}
