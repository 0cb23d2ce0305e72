import { MessageCursor, WireFault } from "../../protobuf/message-cursor.ts";
import { bigFieldSize, WireWriter } from "../../protobuf/wire-writer.ts";
import { SingleFields } from "./single-fields.ts";

/*
 * Messages of etcd's Lease service. Field numbers are those of its rpc.proto. Requests are read as those of KV are: what another
 * decoder could understand otherwise is not read.
 */

/** The methods whose requests name a lease, with the tags that these have. */
const tagsByMethod = {
  "/etcdserverpb.Lease/LeaseGrant": new Set([0x08, 0x10]),
  "/etcdserverpb.Lease/LeaseRevoke": new Set([0x08]),
  "/etcdserverpb.Lease/LeaseKeepAlive": new Set([0x08]),
  "/etcdserverpb.Lease/LeaseTimeToLive": new Set([0x08, 0x10]),
} as const;
export type LeaseMethod = keyof typeof tagsByMethod;

/** Whether it is the path of a method whose requests name a lease. */
export function isLeaseMethod(path: string): path is LeaseMethod {
  return Object.hasOwn(tagsByMethod, path);
}

/** A request of one of these methods. */
export interface LeaseRequest {
  /** Unsigned. 0: none. */
  readonly lease: bigint;
  /** Whether it asks for the keys that are attached to the lease. */
  readonly hasKeys: boolean;
}

const idTag = 0x08;
const keysTag = 0x10;
/** Of LeaseGrant. */
const ttlTag = 0x08;
const grantedIdTag = 0x10;

/** Reads a request, without gRPC's prefix. Undefined: it is not understood completely. */
export function readLeaseRequest(path: LeaseMethod, message: Buffer): LeaseRequest | undefined {
  try {
    const fields = new SingleFields(message, tagsByMethod[path]);
    const isGrant = path === "/etcdserverpb.Lease/LeaseGrant";
    const lease = fields.number(isGrant ? grantedIdTag : idTag);
    return { lease, hasKeys: !isGrant && fields.number(keysTag) !== 0n };
  } catch (error) {
    if (error instanceof WireFault) return undefined;
    throw error;
  }
}

/** A request of LeaseGrant that `readLeaseRequest` understands, with another id. */
export function grantWithId(message: Buffer, lease: bigint): Buffer {
  const tags = tagsByMethod["/etcdserverpb.Lease/LeaseGrant"];
  const ttl = new SingleFields(message, tags).number(ttlTag);
  const writer = new WireWriter(Buffer.allocUnsafe(bigFieldSize(ttl) + bigFieldSize(lease)));
  writer.bigField(ttlTag, ttl);
  writer.bigField(grantedIdTag, lease);
  return writer.bytes;
}

/** Encodes a request for a lease's time to live and its keys. */
export function timeToLiveRequest(lease: bigint): Buffer {
  const writer = new WireWriter(Buffer.allocUnsafe(bigFieldSize(lease) + 2));
  writer.bigField(idTag, lease);
  writer.byte(keysTag);
  writer.byte(1);
  return writer.bytes;
}

/** The keys of a response to `timeToLiveRequest`, as views of it. Undefined: it is not such a response. */
export function attachedKeys(response: Buffer): Buffer[] | undefined {
  const keys: Buffer[] = [];
  try {
    const cursor = new MessageCursor(response);
    for (let tag = cursor.next(); tag !== 0; tag = cursor.next()) {
      if (tag === 0x2a) keys.push(cursor.view());
      else cursor.skip(tag);
    }
    return keys;
  } catch (error) {
    if (error instanceof WireFault) return undefined;
    throw error;
  }
}

/** Encodes the response to a keepalive of a lease that does not exist, as far as its client may know: without a time to live. */
export function notKeptAlive(lease: bigint): Buffer {
  const writer = new WireWriter(Buffer.allocUnsafe(bigFieldSize(lease)));
  writer.bigField(0x10, lease);
  return writer.bytes;
}
