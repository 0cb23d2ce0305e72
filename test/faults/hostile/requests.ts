import { gzipSync } from "node:zlib";
import type { Delivery } from "../../../src/cacher/request/request.ts";
import { deliveries } from "../../foreign/deliveries.ts";
import { encode } from "../../foreign/protobuf.ts";

/*
 * Requests as bytes. The field numbers are those of the contract, of grpc.health.v1 and of grpc.reflection.v1.
 */

export const paths = {
  get: "/watchfanout.v1.ListWatchService/Get",
  etcdWatch: "/etcdserverpb.Watch/Watch",
  list: "/watchfanout.v1.ListWatchService/List",
  watch: "/watchfanout.v1.ListWatchService/Watch",
  subscribe: "/watchfanout.v1.ListWatchService/Subscribe",
  put: "/watchfanout.v1.WriteService/Put",
  putToEtcd: "/etcdserverpb.KV/Put",
  healthWatch: "/grpc.health.v1.Health/Watch",
  healthCheck: "/grpc.health.v1.Health/Check",
  reflection: "/grpc.reflection.v1.ServerReflection/ServerReflectionInfo",
} as const;

/** RevisionMatch, by number. */
export const match = { linearizable: 1, any: 2, notOlderThan: 3, exact: 4 } as const;

export interface WatchFields {
  readonly resource: string;
  readonly key?: string;
  readonly prefix?: string;
  readonly labels?: string;
  readonly fields?: string;
  readonly initial?: boolean;
  readonly delivery?: Delivery;
}

export function watchRequest(watch: WatchFields): Buffer {
  return encode({
    1: watch.resource,
    2: watch.key,
    3: watch.prefix,
    4: watch.labels,
    5: watch.fields,
    7: watch.initial === true ? true : undefined,
    8: watch.delivery && deliveries[watch.delivery],
  });
}

export interface ListFields {
  readonly resource: string;
  readonly prefix?: string;
  readonly labels?: string;
  readonly match?: number;
  readonly revision?: number;
  readonly pageSize?: number;
  readonly pageToken?: string;
}

export function listRequest(list: ListFields): Buffer {
  return encode({
    1: list.resource,
    2: list.prefix,
    3: list.labels,
    5: list.match,
    6: list.revision,
    7: list.pageSize,
    8: list.pageToken,
  });
}

export interface GetFields {
  readonly resource: string;
  readonly key: string;
  readonly match?: number;
  readonly revision?: number;
}

export function getRequest(get: GetFields): Buffer {
  return encode({ 1: get.resource, 2: get.key, 3: get.match, 4: get.revision });
}

/** A Put of etcd's API: any bytes as the key. */
export function etcdPutRequest(key: Buffer, value: string): Buffer {
  return encode({ 1: key, 2: value });
}

export function putRequest(resource: string, key: string, value: string): Buffer {
  return encode({ 1: resource, 2: key, 3: Buffer.from(value) });
}

export function healthRequest(service: string): Buffer {
  return encode({ 1: service });
}

/** Asks for the names of all services. */
export function reflectionRequest(): Buffer {
  return encode({ 7: "*" });
}

/** The largest message that a server takes by default, in bytes. */
export const maxRequestBytes = 2 * 1024 ** 2;

/** Headers of a call whose messages may be compressed. */
export const gzipEncoding = { "grpc-encoding": "gzip" } as const;

/** A message in gRPC's framing, compressed. */
export function gzipFramed(message: Uint8Array): Buffer {
  const compressed = gzipSync(message);
  const head = Buffer.alloc(5);
  head[0] = 1;
  head.writeUInt32BE(compressed.byteLength, 1);
  return Buffer.concat([head, compressed]);
}

/** A message in gRPC's framing. */
export function framed(message: Uint8Array): Buffer {
  const head = Buffer.alloc(5);
  head.writeUInt32BE(message.byteLength, 1);
  return Buffer.concat([head, message]);
}

/**
 * A label selector with this many requirements that no object of ours meets: all of them but the last, by which it
 * takes them all to find out. Each `salt` gives another selector.
 */
export function longSelector(requirements: number, salt: number): string {
  const met = Array.from({ length: requirements - 1 }, (_, i) => `l${i}!=${salt}`);
  return [...met, "zone=none"].join(",");
}

/**
 * A message of one large text field, compressed: 2 MiB for the server, 2 KiB to send. What is before the text shows
 * one message from another; the text itself is compressed once (RFC 1952, 2.2: members may follow one another).
 */
export class LargeText {
  readonly #tail: Buffer;
  readonly #tailBytes: number;

  /** `bytes` of text, all of it `x`. */
  constructor(bytes: number) {
    this.#tail = gzipSync(Buffer.alloc(bytes, "x"));
    this.#tailBytes = bytes;
  }

  /** `before`: the encoded fields before; `field`: the text's number; `beginning`: what the text begins with. */
  framed(before: Buffer, field: number, beginning: string): Buffer {
    const whole = encode({ [field]: beginning.padEnd(beginning.length + this.#tailBytes, "x") });
    const head = whole.subarray(0, whole.byteLength - this.#tailBytes);
    const compressed = Buffer.concat([gzipSync(Buffer.concat([before, head])), this.#tail]);
    const frame = Buffer.alloc(5);
    frame[0] = 1;
    frame.writeUInt32BE(compressed.byteLength, 1);
    return Buffer.concat([frame, compressed]);
  }
}
