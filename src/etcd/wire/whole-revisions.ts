import { decoding, UnreadableMessage } from "./messages.ts";
import { headerTag } from "./response-header.ts";
import { enterEvent, eventsTag } from "./watch-response.ts";
/** Complete revisions, in order. */
export interface CompleteRevisions<Event> {
  /** The last of them: everything up to it has come. */
  readonly revision: number;
  readonly events: readonly Event[];
}

/**
 * Joins etcd's responses to complete revisions.
 *
 * etcd never splits a revision between two reads of its store: a batch for an unsynced watch ends before the first
 * event of the next revision. Only with `fragment`, one such batch comes as several responses, all but the last of
 * which are marked as fragments. So the last revision of a fragment may be incomplete and is held; all before it are
 * complete.
 *
 * etcd bounds what a transaction writes (--max-txn-ops, --max-request-bytes), but not what it deletes: a range of any
 * number of keys. So the held size of one revision is bounded here.
 */
export class WholeRevisions<Event> {
  readonly #maxBytes: number;
  readonly #tooLarge: (revision: number, maxBytes: number) => Error;
  #open: Event[] = [];
  #openBytes = 0;
  /** The revision of the held events; 0: nothing is held. */
  #openRevision = 0;
  #whole: Event[] = [];
  #wholeRevision = 0;

  /** `maxBytes`: maximum size of the held events of one revision; above it `add` throws the error of `tooLarge`. */
  constructor(maxBytes: number, tooLarge: (revision: number, maxBytes: number) => Error) {
    this.#maxBytes = maxBytes;
    this.#tooLarge = tooLarge;
  }

  /** Whether a revision is incomplete. */
  get isOpen(): boolean {
    return this.#openRevision !== 0;
  }

  /** Adds an event of this size, or only its revision if the event is not for the reader. */
  add(revision: number, event: Event | undefined, bytes: number): void {
    if (revision !== this.#openRevision) {
      this.#close();
      this.#openRevision = revision;
    }
    if (event === undefined) return;
    this.#open.push(event);
    this.#openBytes += bytes;
    if (this.#openBytes > this.#maxBytes) throw this.#tooLarge(revision, this.#maxBytes);
  }

  /** To be called after all events of a response. Returns what is complete, if anything is. */
  endResponse(isFragment: boolean): CompleteRevisions<Event> | undefined {
    if (!isFragment) this.#close();
    if (this.#wholeRevision === 0) return undefined;
    const whole = { revision: this.#wholeRevision, events: this.#whole };
    this.#whole = [];
    this.#wholeRevision = 0;
    return whole;
  }

  #close(): void {
    if (this.#openRevision === 0) return;
    this.#wholeRevision = this.#openRevision;
    if (this.#whole.length === 0) this.#whole = this.#open;
    else for (const event of this.#open) this.#whole.push(event);
    this.#open = [];
    this.#openBytes = 0;
    this.#openRevision = 0;
  }
}

/** Maximum size of the events of one revision, in bytes. etcd itself has no bound. */
const maxRevisionBytes = 1024 ** 3;

/** Events of whole revisions, as a response. */
export interface JoinedResponse {
  /** The message, without the fields of the watch. */
  readonly message: Buffer;
  /** The revision of the last event. */
  readonly lastEvent: number;
}

/**
 * Makes responses of whole revisions of etcd's fragments, for a client that does not ask for fragments. etcd would send all
 * of them in one message, of any size. The events of the last revision of a fragment wait for the next one.
 */
export class RevisionJoiner {
  readonly #revisions: WholeRevisions<Buffer>;

  constructor(maxBytes: number = maxRevisionBytes) {
    this.#revisions = new WholeRevisions(
      maxBytes,
      () => new UnreadableMessage(`A revision has more than ${maxBytes} bytes.`),
    );
  }

  /**
   * Adds a response of etcd; `isFragment`: others of the same follow. Returns what is complete; undefined: nothing is. Throws
   * UnreadableMessage, also if a revision is larger than allowed.
   */
  add(message: Buffer, isFragment: boolean): JoinedResponse | undefined {
    const header = this.#take(message);
    const whole = this.#revisions.endResponse(isFragment);
    if (whole === undefined) return undefined;
    return { message: Buffer.concat([header, ...whole.events]), lastEvent: whole.revision };
  }

  /** Takes the events of a response, and returns the field with its header. */
  #take(message: Buffer): Buffer {
    return decoding("WatchResponse", message, (cursor) => {
      let header = message.subarray(0, 0);
      /** The events of one revision, which follow each other. */
      let [revision, start, end] = [0, 0, 0];
      for (let from = 0, tag = cursor.next(); tag !== 0; tag = cursor.next()) {
        if (tag === eventsTag) {
          const { modRevision } = enterEvent(cursor).kv;
          if (modRevision !== revision || from !== end) {
            this.#hold(revision, message.subarray(start, end));
            [revision, start] = [modRevision, from];
          }
          end = cursor.position;
        } else {
          cursor.skip(tag);
          if (tag === headerTag) header = message.subarray(from, cursor.position);
        }
        from = cursor.position;
      }
      this.#hold(revision, message.subarray(start, end));
      return header;
    });
  }

  #hold(revision: number, events: Buffer): void {
    // What waits must not keep the whole message.
    if (events.length > 0) this.#revisions.add(revision, Buffer.from(events), events.length);
  }
}
