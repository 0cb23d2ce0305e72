import { prefixEnd } from "../../model/key-bytes.ts";
import { bytesField } from "../../protobuf/fields.ts";
import { MessageCursor, WireFault } from "../../protobuf/message-cursor.ts";
import { varintSize, WireWriter } from "../../protobuf/wire-writer.ts";

/*
 * Where the messages of etcd have keys. Field numbers are those of its rpc.proto and kv.proto.
 */

/** A message, by the tags of its fields that have keys, or messages with keys. */
interface Shape {
  readonly key?: number;
  /** `key`, in a request that etcd refuses without one: it is left to etcd without a prefix. */
  readonly requiredKey?: number;
  readonly rangeEnd?: number;
  /** Keys of which those of other namespaces are left out. */
  readonly keys?: number;
  readonly nested?: { readonly [tag: number]: Shape };
}

const range: Shape = { key: 0x0a, rangeEnd: 0x12 };
const put: Shape = { key: 0x0a };
const compare: Shape = { key: 0x1a, rangeEnd: (64 << 3) | 2 };
const operation: Shape = {
  nested: {
    ...{ 10: range, 18: put, 26: range },
    get 34() {
      return txn;
    },
  },
};
const txn: Shape = { nested: { 10: compare, 18: operation, 26: operation } };

const object: Shape = { key: 0x0a };
const rangeResponse: Shape = { nested: { 18: object } };
const deleteResponse: Shape = { nested: { 26: object } };
const operationResponse: Shape = {
  nested: {
    ...{ 10: rangeResponse, 18: rangeResponse, 26: deleteResponse },
    get 34() {
      return txnResponse;
    },
  },
};
const txnResponse: Shape = { nested: { 26: operationResponse } };
const event: Shape = { nested: { 18: object, 26: object } };

const oneRange: Shape = { requiredKey: 0x0a, rangeEnd: 0x12 };

/** The methods whose keys are translated. As with grpc-proxy, names of locks and elections and the keys of rights are not. */
const methods: Readonly<Record<string, { readonly request: Shape; readonly response: Shape }>> = {
  "/etcdserverpb.KV/Range": { request: oneRange, response: rangeResponse },
  "/etcdserverpb.KV/RangeStream": {
    request: oneRange,
    response: { nested: { 10: rangeResponse } },
  },
  // The previous object has the tag that objects of a range have.
  "/etcdserverpb.KV/Put": { request: { requiredKey: 0x0a }, response: rangeResponse },
  "/etcdserverpb.KV/DeleteRange": { request: oneRange, response: deleteResponse },
  "/etcdserverpb.KV/Txn": { request: txn, response: txnResponse },
  "/etcdserverpb.Watch/Watch": {
    request: { nested: { 10: range } },
    response: { nested: { 90: event } },
  },
  "/etcdserverpb.Lease/LeaseTimeToLive": { request: {}, response: { keys: 0x2a } },
};

/** Maximum depth of messages in a request, since each is copied for each level: a transaction in a transaction takes two. */
const maxDepth = 16;

/**
 * Maximum number of keys, and of messages with keys, in a request: those of 10,000 operations of a transaction, of which etcd takes
 * 128 by default. Each has two bytes at least, and can become one of the size of the prefix: millions would delay all other calls.
 */
const maxRequestFields = 32_768;

/** Translates a message, behind `room` bytes for its prefix; default: none. Throws a WireFault if it can't be. */
export type Translate = (message: Buffer, room?: number) => Buffer;

/** A Translate by a function that leaves no room. */
export function behindRoom(translate: (message: Buffer) => Buffer): Translate {
  return (message, room = 0) => Buffer.concat([Buffer.alloc(room), translate(message)]);
}

/** What the messages of a call are translated by. */
export interface MessageTranslation {
  readonly request?: Translate | undefined;
  readonly response: Translate;
}

/**
 * The keys of etcd with a prefix, as if there were no others: what is passed to etcd gets the prefix, and what comes from it
 * loses it. As clientv3's namespace package, and etcd grpc-proxy with --namespace.
 */
export class Namespace {
  /** Not empty. */
  readonly prefix: Buffer;
  /** The end of all keys of the namespace. */
  readonly #end: Buffer;
  /** Number of fields of the current request that may still be translated. */
  #fieldsLeft = 0;

  constructor(prefix: Buffer) {
    this.prefix = prefix;
    // Of a prefix of 0xff alone all further keys have it.
    this.#end = prefixEnd(prefix) ?? Buffer.of(0);
  }

  /** Undefined: its messages have no keys. */
  translationOf(path: string): MessageTranslation | undefined {
    const method = methods[path];
    if (method === undefined) return undefined;
    return {
      request: (message, room = 0) => {
        this.#fieldsLeft = maxRequestFields;
        return Buffer.concat([Buffer.alloc(room), this.#add(message, method.request, 0)]);
      },
      response: (message, room = 0) => {
        const changes: Changes = [];
        const size = this.#plan(new MessageCursor(message), method.response, changes);
        const bytes = Buffer.allocUnsafe(room + size);
        writeChanged(bytes, room, message, changes);
        return bytes;
      },
    };
  }

  /** The key as clients name it; undefined: it is not in the namespace. */
  inner(key: Buffer): Buffer | undefined {
    return key.subarray(0, this.prefix.length).equals(this.prefix)
      ? key.subarray(this.prefix.length)
      : undefined;
  }

  #add(message: Buffer, shape: Shape, depth: number): Buffer {
    const { key, requiredKey, rangeEnd, nested } = shape;
    const cursor = new MessageCursor(message);
    const parts: Uint8Array[] = [];
    /** Where the fields begin that are passed on as they are. */
    let kept = 0;
    let hasKey = false;
    let end: Buffer | undefined;
    for (
      let from = 0, tag = cursor.next();
      tag !== 0;
      from = cursor.position, tag = cursor.next()
    ) {
      const inner = nested?.[tag];
      const isKey = tag === key || tag === requiredKey;
      if (!isKey && tag !== rangeEnd && inner === undefined) {
        cursor.skip(tag);
        continue;
      }
      if (this.#fieldsLeft-- === 0) throw new WireFault("has too many keys for a namespace");
      const content = cursor.view();
      parts.push(message.subarray(kept, from));
      kept = cursor.position;
      if (isKey) {
        const isLeft = tag === requiredKey && content.length === 0;
        parts.push(isLeft ? bytesField(tag) : bytesField(tag, this.prefix, content));
        hasKey = true;
      } else if (inner !== undefined) {
        parts.push(bytesField(tag, this.#add(content, inner, deeper(depth))));
      } else {
        // The last one counts, and etcd 3.5 would take one that is empty for all keys that follow.
        end = content;
      }
    }
    parts.push(message.subarray(kept));
    if (key !== undefined && !hasKey) parts.push(bytesField(key, this.prefix));
    if (rangeEnd !== undefined && end !== undefined && end.length > 0) {
      const isEndless = end.length === 1 && end[0] === 0;
      parts.push(
        isEndless ? bytesField(rangeEnd, this.#end) : bytesField(rangeEnd, this.prefix, end),
      );
    }
    return Buffer.concat(parts);
  }

  /**
   * Adds the changes of the message that the cursor is in, and returns its size with them. It is as deep as its request was, and one
   * level more for the objects of a range.
   */
  #plan(cursor: MessageCursor, { key, keys, nested }: Shape, changes: Changes): number {
    let size = 0;
    /** Where the bytes begin that are passed on as they are. */
    let kept = cursor.position;
    for (
      let from = kept, tag = cursor.next();
      tag !== 0;
      from = cursor.position, tag = cursor.next()
    ) {
      const inner = nested?.[tag];
      if (tag !== key && tag !== keys && inner === undefined) {
        cursor.skip(tag);
        continue;
      }
      const lengthAt = cursor.position;
      let changedSize: number;
      if (inner !== undefined) {
        const outer = cursor.enter();
        const index = changes.push(lengthAt, 0, cursor.position) - 2;
        changedSize = this.#plan(cursor, inner, changes);
        changes[index] = changedSize;
        cursor.leave(outer);
      } else {
        changedSize = this.inner(cursor.view())?.length ?? -1;
        if (changedSize >= 0) changes.push(lengthAt, changedSize, cursor.end - changedSize);
        else if (tag === key) throw new WireFault("has a key of another namespace");
        else changes.push(from, -1, cursor.end);
      }
      size +=
        changedSize < 0 ? from - kept : lengthAt - kept + varintSize(changedSize) + changedSize;
      kept = cursor.position;
    }
    return size + cursor.position - kept;
  }
}

/**
 * What differs from a message, in its order, in threes: up to where it is passed on as it is, the length that follows there (-1:
 * none), and where it continues. Numbers in one array, since a response may have millions.
 */
type Changes = number[];

/** Writes the message with the changes from a position on. It is copied once, however deep it is. */
function writeChanged(bytes: Buffer, at: number, message: Buffer, changes: Changes): void {
  const writer = new WireWriter(bytes);
  writer.moveTo(bytes, at);
  let from = 0;
  for (let i = 0; i < changes.length; i += 3) {
    writer.copy(message, from, changes[i] as number);
    const length = changes[i + 1] as number;
    if (length >= 0) writer.varint(length);
    from = changes[i + 2] as number;
  }
  writer.copy(message, from, message.length);
}

function deeper(depth: number): number {
  if (depth === maxDepth) throw new WireFault("is nested too deeply");
  return depth + 1;
}
