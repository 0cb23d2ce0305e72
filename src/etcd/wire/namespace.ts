import { prefixEnd } from "../../model/key-bytes.ts";
import { MessageCursor, WireFault } from "../../protobuf/message-cursor.ts";
import { bytesField } from "./fields.ts";

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

/** What the messages of a call are translated by. Throws a WireFault for one that can't be. */
export interface MessageTranslation {
  readonly request?: ((message: Buffer) => Buffer) | undefined;
  readonly response: (message: Buffer) => Buffer;
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
      request: (message) => {
        this.#fieldsLeft = maxRequestFields;
        return this.#add(message, method.request, 0);
      },
      response: (message) => this.#remove(message, method.response),
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

  /** The message is as deep as its request was, and one level more for the objects of a range. */
  #remove(message: Buffer, shape: Shape): Buffer {
    const { key, keys, nested } = shape;
    const cursor = new MessageCursor(message);
    const parts: Uint8Array[] = [];
    /** Where the fields begin that are passed on as they are. */
    let kept = 0;
    for (
      let from = 0, tag = cursor.next();
      tag !== 0;
      from = cursor.position, tag = cursor.next()
    ) {
      const inner = nested?.[tag];
      if (tag !== key && tag !== keys && inner === undefined) {
        cursor.skip(tag);
        continue;
      }
      const content = cursor.view();
      parts.push(message.subarray(kept, from));
      kept = cursor.position;
      if (inner !== undefined) {
        parts.push(bytesField(tag, this.#remove(content, inner)));
        continue;
      }
      const name = this.inner(content);
      if (name !== undefined) parts.push(bytesField(tag, name));
      else if (tag === key) throw new WireFault("has a key of another namespace");
    }
    parts.push(message.subarray(kept));
    return Buffer.concat(parts);
  }
}

function deeper(depth: number): number {
  if (depth === maxDepth) throw new WireFault("is nested too deeply");
  return depth + 1;
}
