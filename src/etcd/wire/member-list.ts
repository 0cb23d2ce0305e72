import { LENGTH_DELIMITED, MessageCursor, WireFault } from "../../protobuf/message-cursor.ts";
import { varintSize, WireWriter } from "../../protobuf/wire-writer.ts";
import { prefixSize } from "../../wire/encode.ts";

/** The path of the method whose response has the members' addresses. */
export const memberListPath = "/etcdserverpb.Cluster/MemberList";

/** Tags in MemberListResponse and Member. */
const membersTag = 0x12;
const clientUrlsTag = 0x22;

/**
 * Replaces the client URLs of all members in a MemberListResponse, so that clients which follow the list (Sync, AutoSync)
 * stay with this service. Header, ids, names, peer URLs and fields that are not known stay. `response` has gRPC's
 * prefix. A member without client URLs has not started, and gets none. Undefined if the response is compressed or
 * invalid.
 */
export function withClientUrls(response: Buffer, url: string): Buffer | undefined {
  const isPlain = response.length >= prefixSize && response[0] === 0;
  if (!isPlain || response.readUInt32BE(1) !== response.length - prefixSize) return undefined;
  try {
    return rewritten(response.subarray(prefixSize), url);
  } catch (error) {
    if (error instanceof WireFault) return undefined;
    throw error;
  }
}

function rewritten(message: Buffer, url: string): Buffer {
  const parts: Uint8Array[] = [];
  for (const { tag, bytes, content } of fieldsOf(message)) {
    parts.push(tag === membersTag ? field(membersTag, memberWith(content, url)) : bytes);
  }
  const body = Buffer.concat(parts);
  const prefix = Buffer.alloc(prefixSize);
  prefix.writeUInt32BE(body.length, 1);
  return Buffer.concat([prefix, body]);
}

function memberWith(member: Buffer, url: string): Buffer {
  const parts: Uint8Array[] = [];
  let hasUrl = false;
  for (const { tag, bytes } of fieldsOf(member)) {
    if (tag !== clientUrlsTag) parts.push(bytes);
    else if (!hasUrl) parts.push(field(clientUrlsTag, Buffer.from(url)));
    hasUrl ||= tag === clientUrlsTag;
  }
  return Buffer.concat(parts);
}

interface Field {
  readonly tag: number;
  /** The field with its tag. */
  readonly bytes: Buffer;
  /** The content of a length-delimited field; otherwise empty. */
  readonly content: Buffer;
}

function* fieldsOf(message: Buffer): Generator<Field, void, void> {
  const cursor = new MessageCursor(message);
  for (let from = 0, tag = cursor.next(); tag !== 0; tag = cursor.next()) {
    let content = message.subarray(0, 0);
    if ((tag & 7) === LENGTH_DELIMITED) content = cursor.view();
    else cursor.skip(tag);
    yield { tag, bytes: message.subarray(from, cursor.position), content };
    from = cursor.position;
  }
}

function field(tag: number, content: Uint8Array): Buffer {
  const head = Buffer.alloc(1 + varintSize(content.length));
  const writer = new WireWriter(head);
  writer.byte(tag);
  writer.varint(content.length);
  return Buffer.concat([head, content]);
}
