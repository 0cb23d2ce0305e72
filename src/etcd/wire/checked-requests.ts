import { numberField } from "../../protobuf/fields.ts";
import { MessageCursor, WireFault } from "../../protobuf/message-cursor.ts";
import { fieldsOf, unlessFault } from "./messages.ts";
import { readRangeRequest } from "./range-request.ts";

/*
 * What a request of etcd's KV or Lease service does with which keys and leases. Field numbers are those of its rpc.proto.
 *
 * It is for decisions about rights, so whatever another decoder could understand otherwise is not read at all: unknown fields,
 * a field that is there twice, a union with several members or none, a range end that is present and empty.
 */

/** Keys, and what a request does with them. */
export interface KeyAccess {
  readonly kind: "read" | "put" | "delete";
  /** Not empty. */
  readonly key: Buffer;
  /** Empty: one key. One byte 0: all keys from `key` on. */
  readonly rangeEnd: Buffer;
}

/** A key that a request attaches to a lease. */
export interface LeasedKey {
  /** Unsigned. */
  readonly lease: bigint;
  readonly key: Buffer;
}

/** What a request does. */
export interface KeyAccesses {
  readonly keys: readonly KeyAccess[];
  readonly leased: readonly LeasedKey[];
}

/** The methods whose requests are understood. */
const keyMethods = [
  ...["/etcdserverpb.KV/Range", "/etcdserverpb.KV/RangeStream", "/etcdserverpb.KV/Put"],
  ...["/etcdserverpb.KV/DeleteRange", "/etcdserverpb.KV/Txn"],
] as const;
export type KeyMethod = (typeof keyMethods)[number];

/** Whether it is the path of a method whose requests are understood. */
export function isKeyMethod(path: string): path is KeyMethod {
  return (keyMethods as readonly string[]).includes(path);
}

/** Maximum number of accesses of a request, and depth of transactions in it. */
const maxAccesses = 1_024;
const maxDepth = 8;

/** Maximum number of leases of a request. */
const maxLeases = 16;

const none: Buffer = Buffer.alloc(0);

/** Reads a request, without gRPC's prefix. Undefined: it is not understood completely, or has no keys. Keeps views of `message`. */
export function readKeyAccesses(path: KeyMethod, message: Buffer): KeyAccesses | undefined {
  return unlessFault(() => {
    const reader = new AccessReader();
    if (path === "/etcdserverpb.KV/Put") reader.put(message);
    else if (path === "/etcdserverpb.KV/DeleteRange") reader.deleteRange(message);
    else if (path === "/etcdserverpb.KV/Txn") reader.txn(message, 1);
    else reader.range(message);
    return reader.keys.length === 0 ? undefined : reader;
  });
}

class AccessReader implements KeyAccesses {
  readonly keys: KeyAccess[] = [];
  readonly leased: LeasedKey[] = [];
  readonly #leases = new Set<bigint>();

  range(message: Buffer): void {
    const fields = new SingleFields(message, rangeTags);
    // The other numbers must be ones that it understands as well.
    if (readRangeRequest(message) === undefined) throw new WireFault("is not understood");
    this.#add("read", fields.bytes(0x0a), fields.end(0x12));
  }

  put(message: Buffer): void {
    const fields = new SingleFields(message, putTags);
    const key = fields.bytes(0x0a);
    this.#add("put", key, none);
    // The previous value is that of the key.
    if (fields.number(0x20) !== 0n) this.#add("read", key, none);
    const lease = fields.number(0x18);
    if (lease === 0n) return;
    // The end of the lease deletes the key.
    this.#add("delete", key, none);
    this.leased.push({ lease, key });
    if (this.#leases.add(lease).size > maxLeases) throw new WireFault("has too many leases");
  }

  deleteRange(message: Buffer): void {
    const fields = new SingleFields(message, deleteTags);
    this.#add("delete", fields.bytes(0x0a), fields.end(0x12));
  }

  txn(message: Buffer, depth: number): void {
    if (depth > maxDepth) throw new WireFault("is nested too deeply");
    const cursor = new MessageCursor(message);
    for (let tag = cursor.next(); tag !== 0; tag = cursor.next()) {
      if (tag === 0x0a) this.#compare(cursor.view());
      else if (tag === 0x12 || tag === 0x1a) this.#operation(cursor.view(), depth);
      else throw new WireFault("has an unknown field");
    }
  }

  #compare(message: Buffer): void {
    const fields = new SingleFields(message, compareTags);
    const values = [0x20, 0x28, 0x30, 0x3a, 0x40].filter((tag) => fields.has(tag));
    if (values.length > 1) throw new WireFault("has a union with several members");
    this.#add("read", fields.bytes(0x1a), fields.end(compareEndTag));
  }

  #operation(message: Buffer, depth: number): void {
    const cursor = new MessageCursor(message);
    const tag = cursor.next();
    if (tag === 0) throw new WireFault("has a union without a member");
    const content = cursor.view();
    if (cursor.next() !== 0) throw new WireFault("has a union with several members");
    if (tag === 0x0a) this.range(content);
    else if (tag === 0x12) this.put(content);
    else if (tag === 0x1a) this.deleteRange(content);
    else if (tag === 0x22) this.txn(content, depth + 1);
    else throw new WireFault("has an unknown field");
  }

  #add(kind: KeyAccess["kind"], key: Buffer, rangeEnd: Buffer): void {
    if (key.length === 0) throw new WireFault("has no key");
    if (this.keys.length === maxAccesses) throw new WireFault("has too many operations");
    this.keys.push({ kind, key, rangeEnd });
  }
}

/** The tag of the range end of a comparison, field 64. */
const compareEndTag = (64 << 3) | 2;
const rangeTags: ReadonlySet<number> = new Set([
  ...[0x0a, 0x12, 0x18, 0x20, 0x28, 0x30, 0x38, 0x40, 0x48, 0x50, 0x58, 0x60, 0x68],
]);
const putTags: ReadonlySet<number> = new Set([0x0a, 0x12, 0x18, 0x20, 0x28, 0x30]);
const deleteTags: ReadonlySet<number> = new Set([0x0a, 0x12, 0x18]);
const compareTags: ReadonlySet<number> = new Set([
  ...[0x08, 0x10, 0x1a, 0x20, 0x28, 0x30, 0x3a, 0x40],
  compareEndTag,
]);

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
  return unlessFault(() => {
    const fields = new SingleFields(message, tagsByMethod[path]);
    const isGrant = path === "/etcdserverpb.Lease/LeaseGrant";
    const lease = fields.number(isGrant ? grantedIdTag : idTag);
    return { lease, hasKeys: !isGrant && fields.number(keysTag) !== 0n };
  });
}

/** A request of LeaseGrant that `readLeaseRequest` understands, with another id. */
export function grantWithId(message: Buffer, lease: bigint): Buffer {
  const tags = tagsByMethod["/etcdserverpb.Lease/LeaseGrant"];
  const ttl = new SingleFields(message, tags).number(ttlTag);
  return Buffer.concat([numberField(ttlTag, ttl), numberField(grantedIdTag, lease)]);
}

/** Encodes a request for a lease's time to live and its keys. */
export function timeToLiveRequest(lease: bigint): Buffer {
  return Buffer.concat([numberField(idTag, lease), numberField(keysTag, 1)]);
}

/** The keys of a response to `timeToLiveRequest`, as views of it. Undefined: it is not such a response. */
export function attachedKeys(response: Buffer): Buffer[] | undefined {
  return unlessFault(() =>
    [...fieldsOf(response)].filter(({ tag }) => tag === 0x2a).map(({ content }) => content),
  );
}

/** Encodes the response to a keepalive of a lease that does not exist, as far as its client may know: without a time to live. */
export function notKeptAlive(lease: bigint): Buffer {
  return numberField(0x10, lease);
}

/** The fields of a message that has each of these tags once at most, and no others. Throws a WireFault for all else. */
class SingleFields {
  readonly #values = new Map<number, Buffer | bigint>();

  constructor(message: Buffer, tags: ReadonlySet<number>) {
    const cursor = new MessageCursor(message);
    for (let tag = cursor.next(); tag !== 0; tag = cursor.next()) {
      if (!tags.has(tag)) throw new WireFault("has an unknown field");
      if (this.#values.has(tag)) throw new WireFault("has a field twice");
      this.#values.set(tag, (tag & 7) === 2 ? cursor.view() : cursor.bigint());
    }
  }

  has(tag: number): boolean {
    return this.#values.has(tag);
  }

  bytes(tag: number): Buffer {
    const value = this.#values.get(tag);
    return Buffer.isBuffer(value) ? value : none;
  }

  number(tag: number): bigint {
    const value = this.#values.get(tag);
    return typeof value === "bigint" ? value : 0n;
  }

  /** A range end. Some versions of etcd do not read one key if it is present and empty. */
  end(tag: number): Buffer {
    const end = this.bytes(tag);
    if (this.has(tag) && end.length === 0) throw new WireFault("has an empty range end");
    return end;
  }
}
