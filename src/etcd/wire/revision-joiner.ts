import { decoding, UnreadableMessage } from "./messages.ts";
import { headerTag } from "./response-header.ts";
import { enterEvent, eventsTag } from "./watch-response.ts";
import { WholeRevisions } from "./whole-revisions.ts";

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
