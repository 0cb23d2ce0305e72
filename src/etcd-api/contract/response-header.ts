import { MessageCursor, WireFault } from "../../protobuf/message-cursor.ts";
import { prefixSize } from "../../wire/encode.ts";
import type { HeaderPlace } from "./methods.ts";

/** etcd's ResponseHeader. What a response leaves out is 0. */
export interface ResponseHeader {
  readonly clusterId: bigint;
  readonly memberId: bigint;
  readonly revision: number;
  readonly raftTerm: number;
}

/**
 * Reads the ResponseHeader of a response from its first bytes, with gRPC's prefix. Undefined if the message is
 * compressed, has no header at that place, or if not all of the header is there: then it is not known.
 */
export function readResponseHeader(
  bytes: Uint8Array,
  place: HeaderPlace = "first",
): ResponseHeader | undefined {
  if (bytes.length < prefixSize || bytes[0] !== 0) return undefined;
  return headerOfMessage(bytes.subarray(prefixSize), place);
}

function headerOfMessage(message: Uint8Array, place: HeaderPlace): ResponseHeader | undefined {
  const cursor = new MessageCursor(message);
  const header = { clusterId: 0n, memberId: 0n, revision: 0, raftTerm: 0 };
  try {
    if (place === "nested") {
      if (cursor.next() !== 0x0a) return undefined;
      // The size of the nested message, most of which may not be there.
      cursor.number();
    }
    if (cursor.next() !== 0x0a) return undefined;
    cursor.enter();
    for (let tag = cursor.next(); tag !== 0; tag = cursor.next()) {
      if (tag === 0x08) header.clusterId = cursor.bigint();
      else if (tag === 0x10) header.memberId = cursor.bigint();
      else if (tag === 0x18) header.revision = cursor.natural();
      else if (tag === 0x20) header.raftTerm = cursor.natural();
      else cursor.skip(tag);
    }
    return header;
  } catch (error) {
    if (error instanceof WireFault) return undefined;
    throw error;
  }
}

/** A connection that responses come from: it is to one member. */
export interface ResponseSource {
  /** Whether calls go to its member now. */
  readonly isInUse: boolean;
}

/**
 * What etcd's responses have said of the cluster. `floor` is the highest revision that a client may know of by a
 * response that was relayed: no answer of this process' own may be older.
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
    this.#observe(source, headerOfMessage(message, "first"));
  }

  /**
   * Whether the member of a connection may be behind what clients know of. Only what came on that connection shows that it is
   * not: another one may be to another member, or to one that was restarted since. Undefined: there is no connection yet.
   */
  mayBeBehind(source: ResponseSource | undefined): boolean {
    const shown = source && this.#shown.get(source);
    return this.#floor > (shown ?? 0);
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
