import { MessageCursor, WireFault } from "../../protobuf/message-cursor.ts";
import {
  bigFieldSize,
  bytesFieldSize,
  numberFieldSize,
  WireWriter,
} from "../../protobuf/wire-writer.ts";
import { prefixSize } from "../../wire/encode.ts";
import type { HeaderPlace } from "./methods.ts";

/** The tag of the header in all responses that have one. */
export const headerTag = 0x0a;

/** The tag of the response in a message that it is nested in. */
const nestedTag = 0x0a;

const clusterIdTag = 0x08;
const memberIdTag = 0x10;
const revisionTag = 0x18;
const raftTermTag = 0x20;

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
  return headerOf(bytes.subarray(prefixSize), place);
}

/** The same, without gRPC's prefix. */
export function headerOf(
  message: Uint8Array,
  place: HeaderPlace = "first",
): ResponseHeader | undefined {
  const cursor = new MessageCursor(message);
  const header = { clusterId: 0n, memberId: 0n, revision: 0, raftTerm: 0 };
  try {
    if (place === "nested") {
      if (cursor.next() !== nestedTag) return undefined;
      // The size of the nested message, most of which may not be there.
      cursor.number();
    }
    if (cursor.next() !== headerTag) return undefined;
    cursor.enter();
    for (let tag = cursor.next(); tag !== 0; tag = cursor.next()) {
      if (tag === clusterIdTag) header.clusterId = cursor.bigint();
      else if (tag === memberIdTag) header.memberId = cursor.bigint();
      else if (tag === revisionTag) header.revision = cursor.natural();
      else if (tag === raftTermTag) header.raftTerm = cursor.natural();
      else cursor.skip(tag);
    }
    return header;
  } catch (error) {
    if (error instanceof WireFault) return undefined;
    throw error;
  }
}

/** The same response, without gRPC's prefix, with a revision that is no lower than this one. */
export function raisedTo(message: Buffer, revision: number): Buffer {
  const header = headerOf(message);
  if (header === undefined || header.revision >= revision) return message;
  // The last of equal fields counts.
  return Buffer.concat([message, headerField(header, revision)]);
}

/** Reads the header in this field, of which it returns the revision. */
export function readRevision(cursor: MessageCursor): number {
  let revision = 0;
  const outer = cursor.enter();
  for (let tag = cursor.next(); tag !== 0; tag = cursor.next()) {
    if (tag === revisionTag) revision = cursor.natural();
    else cursor.skip(tag);
  }
  cursor.leave(outer);
  return revision;
}

/** Encodes the field of a response with its header. The ids and the term are those of `header`. */
export function headerField(header: Omit<ResponseHeader, "revision">, revision: number): Buffer {
  const { clusterId, memberId, raftTerm } = header;
  const size =
    bigFieldSize(clusterId) +
    bigFieldSize(memberId) +
    numberFieldSize(revision) +
    numberFieldSize(raftTerm);
  const writer = new WireWriter(Buffer.allocUnsafe(bytesFieldSize(size)));
  writer.byte(headerTag);
  writer.varint(size);
  writer.bigField(clusterIdTag, clusterId);
  writer.bigField(memberIdTag, memberId);
  writer.numberField(revisionTag, revision);
  writer.numberField(raftTermTag, raftTerm);
  return writer.bytes;
}
