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

/**
 * What etcd's responses have said of the cluster. `floor` is the highest revision that a client may know of by a
 * response that was relayed: no answer of this process' own may be older.
 */
export class NewestHeader {
  #header: ResponseHeader | undefined;
  #floor = 0;

  /** The header with the highest revision of the member that responded last; undefined before the first response. */
  get header(): ResponseHeader | undefined {
    return this.#header;
  }

  get floor(): number {
    return this.#floor;
  }

  /** A response begins with these bytes, with gRPC's prefix. */
  observe(bytes: Uint8Array, place: HeaderPlace = "first"): void {
    this.#observe(readResponseHeader(bytes, place));
  }

  /** A response, without gRPC's prefix. */
  observeMessage(message: Uint8Array): void {
    this.#observe(headerOfMessage(message, "first"));
  }

  /** This revision was reported to a client. */
  raise(revision: number): void {
    if (revision > this.#floor) this.#floor = revision;
  }

  /** Calls go to another member, of which nothing is known: it may be behind what clients know of. */
  memberChanged(): void {
    if (this.#header !== undefined) this.#header = { ...this.#header, revision: 0 };
  }

  /** etcd has another history, whose revisions are its own: it was restored from a backup. */
  historyChanged(): void {
    this.#floor = 0;
    this.memberChanged();
  }

  #observe(header: ResponseHeader | undefined): void {
    if (header === undefined) return;
    // What is in front of etcd may leave out the ids.
    if (header.clusterId !== 0n) {
      const { clusterId, memberId, revision } = this.#header ?? header;
      // Another cluster has revisions of its own.
      if (clusterId !== header.clusterId) this.#floor = 0;
      // A slow client gets old responses, and the header of some methods has no revision.
      const isOlder = header.memberId === memberId && header.revision < revision;
      if (!isOlder || clusterId !== header.clusterId) this.#header = header;
    }
    this.raise(header.revision);
  }
}
