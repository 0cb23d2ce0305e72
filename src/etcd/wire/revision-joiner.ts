import type { MessageCursor } from "../../protobuf/message-cursor.ts";
import { decoding, UnreadableMessage } from "./messages.ts";
import { headerTag } from "./response-header.ts";
import { enterEvent, eventsTag } from "./watch-response.ts";

/** Maximum size of the events of one revision, in bytes. etcd itself has no bound. */
const maxRevisionBytes = 1024 ** 3;

/** Events of whole revisions, as a response. */
export interface WholeRevisions {
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
  readonly #maxBytes: number;
  /** The events of a revision that may not be complete. */
  #events: Buffer[] = [];
  #revision = 0;
  #bytes = 0;

  constructor(maxBytes: number = maxRevisionBytes) {
    this.#maxBytes = maxBytes;
  }

  /**
   * Adds a response of etcd; `isFragment`: others of the same follow. Returns what is complete; undefined: nothing is. Throws
   * UnreadableMessage, also if a revision is larger than allowed.
   */
  add(message: Buffer, isFragment: boolean): WholeRevisions | undefined {
    return decoding("WatchResponse", message, (cursor) => this.#add(cursor, message, isFragment));
  }

  #add(cursor: MessageCursor, message: Buffer, isFragment: boolean): WholeRevisions | undefined {
    let header: Buffer = message.subarray(0, 0);
    let done: Buffer[] = [];
    let lastEvent = 0;
    for (
      let from = 0, tag = cursor.next();
      tag !== 0;
      from = cursor.position, tag = cursor.next()
    ) {
      if (tag === headerTag) {
        cursor.content();
        header = message.subarray(from, cursor.position);
      } else if (tag === eventsTag) {
        const revision = enterEvent(cursor).kv.modRevision;
        if (revision !== this.#revision && this.#events.length > 0) {
          done = done.concat(this.#events);
          lastEvent = this.#revision;
          this.#clear();
        }
        this.#hold(message.subarray(from, cursor.position), revision);
      } else {
        cursor.skip(tag);
      }
    }
    if (!isFragment && this.#events.length > 0) {
      done = done.concat(this.#events);
      lastEvent = this.#revision;
      this.#clear();
    }
    // What waits must not keep the whole message.
    this.#events = this.#events.length === 0 ? [] : [Buffer.concat(this.#events)];
    return done.length === 0 ? undefined : { message: Buffer.concat([header, ...done]), lastEvent };
  }

  #hold(event: Buffer, revision: number): void {
    this.#events.push(event);
    this.#revision = revision;
    this.#bytes += event.length;
    if (this.#bytes > this.#maxBytes) {
      throw new UnreadableMessage(`A revision has more than ${this.#maxBytes} bytes.`);
    }
  }

  #clear(): void {
    this.#events = [];
    this.#bytes = 0;
  }
}
