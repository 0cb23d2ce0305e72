import { bytesField, numberField } from "../../protobuf/fields.ts";
import { MessageCursor, WireFault } from "../../protobuf/message-cursor.ts";

/*
 * etcd's WatchRequest. Field numbers are those of its rpc.proto.
 */

/** What a client asks of a new watch. */
export interface CreateRequest {
  readonly kind: "create";
  /** As etcd reads them: an empty key is the smallest one. */
  readonly key: Buffer;
  /** Empty: only the key. One byte 0: all keys from the key on. */
  readonly rangeEnd: Buffer;
  /** 0: from now on. Revisions above 2^53 - 1 are that. */
  readonly startRevision: number;
  readonly progressNotify: boolean;
  readonly withoutPuts: boolean;
  readonly withoutDeletes: boolean;
  readonly withPrevious: boolean;
  readonly fragment: boolean;
  /** 0n: the server chooses. */
  readonly watchId: bigint;
  /** Whether it has a field that is newer than this decoder, or of another type: only etcd may know its meaning. */
  readonly hasUnknownField: boolean;
  /** The encoded WatchCreateRequest. */
  readonly encoded: Buffer;
}

/** A request on a watch stream. `none` has no union that is known: etcd ignores it, too. */
export type WatchStreamRequest =
  | CreateRequest
  | { readonly kind: "cancel"; readonly watchId: bigint }
  | { readonly kind: "progress" }
  | { readonly kind: "none" };

/** What etcd takes an empty key for. */
export const smallestKey: Buffer = Buffer.of(0);
const none: Buffer = Buffer.alloc(0);

/**
 * Maximum number of keys and ends in a request to create a watch. The last of them count, so clients send one of each. With
 * very many a namespace could not translate the request when etcd has to serve the watch later.
 */
const maxBounds = 100;

/** Decodes a request. `emptyKey` is what etcd reads for an empty one. Keeps no view of `message`. Throws a WireFault. */
export function readWatchRequest(
  message: Buffer,
  emptyKey: Buffer = smallestKey,
): WatchStreamRequest {
  const cursor = new MessageCursor(message);
  let request: WatchStreamRequest = { kind: "none" };
  for (let tag = cursor.next(); tag !== 0; tag = cursor.next()) {
    // The last member of the union counts.
    if (tag === 0x0a) request = readCreate(Buffer.from(cursor.view()), emptyKey);
    else if (tag === 0x12) request = { kind: "cancel", watchId: readCancel(cursor.view()) };
    else if (tag === 0x1a) {
      cursor.view();
      request = { kind: "progress" };
    } else cursor.skip(tag);
  }
  return request;
}

function readCreate(encoded: Buffer, emptyKey: Buffer): CreateRequest {
  const cursor = new MessageCursor(encoded);
  const request = {
    ...{ kind: "create" as const, key: none, rangeEnd: none, startRevision: 0, encoded },
    ...{ progressNotify: false, withoutPuts: false, withoutDeletes: false, withPrevious: false },
    ...{ fragment: false, watchId: 0n, hasUnknownField: false },
  };
  let bounds = 0;
  const filter = (number: bigint): void => {
    request.withoutPuts ||= number === 0n;
    request.withoutDeletes ||= number === 1n;
  };
  for (let tag = cursor.next(); tag !== 0; tag = cursor.next()) {
    if ((tag === 0x0a || tag === 0x12) && ++bounds > maxBounds) {
      throw new WireFault("has too many keys");
    }
    if (tag === 0x0a) request.key = cursor.view();
    else if (tag === 0x12) request.rangeEnd = cursor.view();
    else if (tag === 0x18) request.startRevision = bounded(signed(cursor));
    else if (tag === 0x20) request.progressNotify = cursor.bigint() !== 0n;
    else if (tag === 0x28) filter(cursor.bigint());
    else if (tag === 0x2a) {
      // Packed.
      const outer = cursor.enter();
      while (cursor.position < cursor.end) filter(cursor.bigint());
      cursor.leave(outer);
    } else if (tag === 0x30) request.withPrevious = cursor.bigint() !== 0n;
    else if (tag === 0x38) request.watchId = signed(cursor);
    else if (tag === 0x40) request.fragment = cursor.bigint() !== 0n;
    else {
      request.hasUnknownField = true;
      cursor.skip(tag);
    }
  }
  if (request.key.length === 0) request.key = emptyKey;
  return request;
}

function readCancel(message: Buffer): bigint {
  const cursor = new MessageCursor(message);
  let watchId = 0n;
  for (let tag = cursor.next(); tag !== 0; tag = cursor.next()) {
    if (tag === 0x08) watchId = signed(cursor);
    else cursor.skip(tag);
  }
  return watchId;
}

function signed(cursor: MessageCursor): bigint {
  return BigInt.asIntN(64, cursor.bigint());
}

/** As a number. What is beyond the safe integers is as far in the future, or below 0, as the last of them. */
function bounded(revision: bigint): number {
  const max = BigInt(Number.MAX_SAFE_INTEGER);
  if (revision > max) return Number.MAX_SAFE_INTEGER;
  return revision < -max ? -Number.MAX_SAFE_INTEGER : Number(revision);
}

/** The request for the progress of all watches of a stream. */
export const progressRequest: Buffer = Buffer.of(0x1a, 0);

/** The client's request with another start revision and watch id. Of a field that is there twice, the later one counts. */
export function createRequest(parts: readonly Buffer[], startRevision: number, id: number): Buffer {
  return bytesField(0x0a, ...parts, numberField(0x18, startRevision), numberField(0x38, id));
}

/** The request to cancel a watch. */
export function cancelRequest(id: number): Buffer {
  return bytesField(0x12, numberField(0x08, id));
}
