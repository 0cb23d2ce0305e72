import { bytesField } from "../../protobuf/fields.ts";
import { MessageCursor } from "../../protobuf/message-cursor.ts";
import { unlessFault } from "./messages.ts";

/*
 * etcd's RangeRequest. Field numbers are those of its rpc.proto.
 */

/** By what objects are sorted, by etcd's numbers. */
export const sortTargets = ["key", "version", "create", "mod", "value"] as const;
export type SortTarget = (typeof sortTargets)[number];

/** In which order, by etcd's numbers. */
export const sortOrders = ["none", "ascend", "descend"] as const;
export type SortOrder = (typeof sortOrders)[number];

/** A Range that a cache may serve. */
export interface RangeRequest {
  /** Not empty. */
  readonly key: Buffer;
  /** Empty: one key. One byte 0: all keys from `key` on. */
  readonly rangeEnd: Buffer;
  /**
   * Whether `rangeEnd` is present and empty, which only etcd must answer: its version 3.5 does not read the key, but all keys
   * from it on.
   */
  readonly hasEmptyEnd: boolean;
  /** 0: no limit. */
  readonly limit: number;
  /** 0: the newest. */
  readonly revision: number;
  readonly sortOrder: SortOrder;
  readonly sortTarget: SortTarget;
  readonly serializable: boolean;
  readonly keysOnly: boolean;
  readonly countOnly: boolean;
  /** Bounds, both included; 0: none. */
  readonly minModRevision: number;
  readonly maxModRevision: number;
  readonly minCreateRevision: number;
  readonly maxCreateRevision: number;
}

const none: Buffer = Buffer.alloc(0);

/** Revision 2^63 - 1, which no store reaches, and the answer from the member's own state. */
const ofNoRevision = Buffer.from("20ffffffffffffffff7f3801", "hex");

/** A request of the same keys that etcd permits or refuses as this one, and then does not read, as its revision is far in the future. */
export function permissionRequest({ key, rangeEnd }: RangeRequest): Buffer {
  const end = rangeEnd.length === 0 ? rangeEnd : bytesField(0x12, rangeEnd);
  return Buffer.concat([bytesField(0x0a, key), end, ofNoRevision]);
}

/**
 * Decodes a request. Undefined if etcd has to answer it: it is invalid, has a field that is newer than this decoder, or a
 * number that only etcd has to know the meaning of.
 */
export function readRangeRequest(message: Buffer): RangeRequest | undefined {
  return unlessFault(() => read(new MessageCursor(message)));
}

function read(cursor: MessageCursor): RangeRequest | undefined {
  let key = none;
  let rangeEnd = none;
  let hasEmptyEnd = false;
  /** By field number. */
  const numbers: number[] = new Array(14).fill(0);
  for (let tag = cursor.next(); tag !== 0; tag = cursor.next()) {
    if (tag === 0x0a) key = cursor.view();
    else if (tag === 0x12) {
      rangeEnd = cursor.view();
      hasEmptyEnd = rangeEnd.length === 0;
    } else if (tag >= 0x18 && tag <= 0x68 && (tag & 7) === 0) numbers[tag >>> 3] = cursor.natural();
    else return undefined;
  }
  const sortOrder = sortOrders[numbers[5] ?? 0];
  const sortTarget = sortTargets[numbers[6] ?? 0];
  if (key.length === 0 || sortOrder === undefined || sortTarget === undefined) return undefined;
  return {
    ...{ key, rangeEnd, hasEmptyEnd, sortOrder, sortTarget },
    limit: numbers[3] ?? 0,
    revision: numbers[4] ?? 0,
    serializable: numbers[7] !== 0,
    keysOnly: numbers[8] !== 0,
    countOnly: numbers[9] !== 0,
    minModRevision: numbers[10] ?? 0,
    maxModRevision: numbers[11] ?? 0,
    minCreateRevision: numbers[12] ?? 0,
    maxCreateRevision: numbers[13] ?? 0,
  };
}

/** Tags in TxnRequest and in RequestOp. */
const successTag = 0x12;
const failureTag = 0x1a;
const rangeTag = 0x0a;

/**
 * Whether a TxnRequest, of which this is the beginning, may show the state that its member has: etcd answers one without
 * anything but serializable reads from there. True also if that does not show.
 */
export function mayBeSerializableTxn(start: Buffer): boolean {
  const isSerializable = unlessFault(() => {
    const cursor = new MessageCursor(start);
    for (let tag = cursor.next(); tag !== 0; tag = cursor.next()) {
      if (tag !== successTag && tag !== failureTag) {
        cursor.skip(tag);
        continue;
      }
      // The operation may be incomplete, but what it does comes first.
      cursor.number();
      if (cursor.next() !== rangeTag) return false;
      if (readRangeRequest(cursor.view())?.serializable === false) return false;
    }
    return true;
  });
  return isSerializable ?? true;
}
