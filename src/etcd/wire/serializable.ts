import { MessageCursor, WireFault } from "../../protobuf/message-cursor.ts";
import { readRangeRequest } from "./range-request.ts";

/** Tags in TxnRequest and in RequestOp. */
const successTag = 0x12;
const failureTag = 0x1a;
const rangeTag = 0x0a;

/**
 * Whether a TxnRequest, of which this is the beginning, may show the state that its member has: etcd answers one without
 * anything but serializable reads from there. True also if that does not show.
 */
export function mayBeSerializableTxn(start: Buffer): boolean {
  const cursor = new MessageCursor(start);
  try {
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
  } catch (error) {
    if (!(error instanceof WireFault)) throw error;
  }
  return true;
}
