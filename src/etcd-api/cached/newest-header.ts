import type { HeaderPlace } from "../../etcd/wire/methods.ts";
import {
  headerOf,
  type ResponseHeader,
  readResponseHeader,
} from "../../etcd/wire/response-header.ts";

/** A connection that responses come from: it is to one member. */
export interface ResponseSource {
  /** Whether calls go to its member now. */
  readonly isInUse: boolean;
}

/**
 * What etcd's responses have said of the cluster. `floor` is the highest revision that a client may know of by a
 * response that was forwarded: no answer of this process' own may be older.
 */
export class NewestHeader {
  #header: ResponseHeader | undefined;
  #floor = 0;
  /** The highest revision in the responses of each connection. */
  #shown = new WeakMap<ResponseSource, number>();

  /** The header with the highest revision of the member in use that responded last; undefined before the first response. */
  get header(): ResponseHeader | undefined {
    return this.#header;
  }

  get floor(): number {
    return this.#floor;
  }

  /** A response begins with these bytes, with gRPC's prefix. */
  observe(source: ResponseSource, bytes: Uint8Array, place: HeaderPlace = "first"): void {
    this.#observe(source, readResponseHeader(bytes, place));
  }

  /** A response, without gRPC's prefix. */
  observeMessage(source: ResponseSource, message: Uint8Array): void {
    this.#observe(source, headerOf(message));
  }

  /**
   * Whether the member of a connection may be behind this revision, by default what clients know of. Only what came on that
   * connection shows that it is not: another one may be to another member, or to one that was restarted since. Undefined:
   * there is no connection yet.
   */
  mayBeBehind(source: ResponseSource | undefined, revision: number = this.#floor): boolean {
    const shown = source && this.#shown.get(source);
    return revision > (shown ?? 0);
  }

  /** This revision was reported to a client. */
  raise(revision: number): void {
    if (revision > this.#floor) this.#floor = revision;
  }

  /** etcd has another history, whose revisions are its own: it was restored from a backup. */
  historyChanged(): void {
    this.#floor = 0;
    this.#shown = new WeakMap();
    if (this.#header !== undefined) this.#header = { ...this.#header, revision: 0 };
  }

  #observe(source: ResponseSource, header: ResponseHeader | undefined): void {
    if (header === undefined) return;
    const known = this.#header ?? header;
    // What is in front of etcd may leave out the ids.
    const hasIds = header.clusterId !== 0n;
    const isOfOther = hasIds && header.clusterId !== known.clusterId;
    // A member that was left may respond late.
    const isLate = this.#header !== undefined && !source.isInUse;
    if (isOfOther) {
      // Another cluster has revisions of its own.
      if (isLate) return;
      this.historyChanged();
    }
    // A slow client gets old responses, and the header of some methods has no revision.
    const isOlder = header.memberId === known.memberId && header.revision < known.revision;
    if (hasIds && !isLate && (isOfOther || !isOlder)) this.#header = header;
    this.raise(header.revision);
    if (header.revision > (this.#shown.get(source) ?? 0)) this.#shown.set(source, header.revision);
  }
}
