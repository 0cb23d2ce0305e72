import { bytesField } from "../../protobuf/fields.ts";
import { fieldsOf } from "./messages.ts";

/** The path of the method whose response has the members' addresses. */
export const memberListPath = "/etcdserverpb.Cluster/MemberList";

/** Tags in MemberListResponse and Member. */
const membersTag = 0x12;
const nameTag = 0x12;
const clientUrlsTag = 0x22;

/**
 * Replaces the client URLs of all members in a MemberListResponse, so that clients which follow the list (Sync, AutoSync)
 * stay with this service. Header, ids, names, peer URLs and fields that are not known stay. A member without client URLs
 * has not started, and gets none. Throws a WireFault.
 */
export function withClientUrls(response: Buffer, url: string): Buffer {
  const parts: Uint8Array[] = [];
  for (const { tag, bytes, content } of fieldsOf(response)) {
    parts.push(tag === membersTag ? bytesField(membersTag, memberWith(content, url)) : bytes);
  }
  return Buffer.concat(parts);
}

/** A member as a MemberListResponse of this process names it. */
export interface NamedMember {
  readonly name: string;
  readonly url: string;
}

/** Encodes the members of a MemberListResponse, to which its header is added. Their ids are 0. */
export function memberListOf(members: readonly NamedMember[]): Buffer {
  const encoded = members.map(({ name, url }) =>
    bytesField(
      membersTag,
      bytesField(nameTag, Buffer.from(name)),
      bytesField(clientUrlsTag, Buffer.from(url)),
    ),
  );
  return Buffer.concat(encoded);
}

function memberWith(member: Buffer, url: string): Buffer {
  const parts: Uint8Array[] = [];
  let hasUrl = false;
  for (const { tag, bytes } of fieldsOf(member)) {
    if (tag !== clientUrlsTag) parts.push(bytes);
    else if (!hasUrl) parts.push(bytesField(clientUrlsTag, Buffer.from(url)));
    hasUrl ||= tag === clientUrlsTag;
  }
  return Buffer.concat(parts);
}
