import { shardOf } from "../src/client/calls/encode.ts";
import { frameOf } from "../src/wire/encode.ts";
import { encode, Message } from "../test/foreign/protobuf.ts";
import type { CallRequest, Http2Connection } from "./http2-connection.ts";
import type { MessageScanner } from "./message-scanner.ts";
import { keyPrefix, resource, type Target } from "./servers.ts";

const keyPrefixEnd = "/bench0";

/** What of each object a watch receives; a mask leaves a field. */
export type BenchView = "keys" | "attributes" | "mask";

/** As in the proto. A mask is of whole objects. */
const viewNumbers: Readonly<Record<BenchView, number>> = { keys: 2, attributes: 4, mask: 1 };

/** How a watch begins, and its kind. */
export interface WatchTerms {
  /** Deliver everything after this revision; undefined for the current one. */
  readonly afterRevision?: number | undefined;
  /** Begin with the state. Supported by watch-fanout only. */
  readonly initialState?: boolean;
  /** Supported by watch-fanout only. */
  readonly latestState?: boolean;
  /** Default: whole objects. Supported by watch-fanout only. */
  readonly view?: BenchView | undefined;
  /** One of several parts of the keys. Supported by watch-fanout only. */
  readonly shard?: { readonly index: number; readonly of: number };
}

/** A watch over all keys of the resource, in etcd's API or in that of watch-fanout. */
export function watchRequest(target: Target, terms: WatchTerms = {}): CallRequest {
  const { afterRevision, initialState, latestState, view, shard } = terms;
  if (target === "watch-fanout") {
    const message = encode({
      1: resource,
      6: afterRevision,
      7: initialState || undefined,
      8: latestState ? 2 : undefined,
      13: view && viewNumbers[view],
      15: shard && encode({ 1: hashRange(shard.index, shard.of) }),
      16: view === "mask" ? encode({ 1: "spec.node" }) : undefined,
    });
    return { path: "/watchfanout.v1.ListWatchService/Watch", message, ends: true, counted: 2 };
  }
  const start = afterRevision === undefined ? undefined : afterRevision + 1;
  return {
    path: "/etcdserverpb.Watch/Watch",
    // create_request = 1; in it: key = 1, range_end = 2, start_revision = 3.
    message: encode({ 1: encode({ 1: keyPrefix, 2: keyPrefixEnd, 3: start }) }),
    ends: false,
    counted: 11,
  };
}

/** A HashRange: first = 1, last = 2, both of 64 bits. */
function hashRange(index: number, count: number): Buffer {
  const [range = { first: 0n, last: 0n }] = shardOf(index, count);
  const bytes = Buffer.alloc(18);
  bytes.writeUInt8(0x09, 0);
  bytes.writeBigUInt64LE(range.first, 1);
  bytes.writeUInt8(0x11, 9);
  bytes.writeBigUInt64LE(range.last, 10);
  return bytes;
}

/** A stream of etcd's API with watches of the first keys, one of each. */
export function keyWatchesRequest(count: number): CallRequest {
  const creates = Array.from({ length: count }, (_, i) => encode({ 1: encode({ 1: keyOf(i) }) }));
  const [message = Buffer.of(), ...rest] = creates;
  const more = Buffer.concat(rest.flatMap((each) => frameOf(each)));
  return { path: "/etcdserverpb.Watch/Watch", message, more, ends: false, counted: 11 };
}

/** Whether the message confirms that the watch is open. Throws if it ends the watch. */
export function isOpening(target: Target, { count, number3, number4 }: MessageScanner): boolean {
  if (target === "watch-fanout") return count === 0;
  // WatchResponse: created = 3, canceled = 4.
  if (number4 !== 0) throw new Error(`${target} cancelled a watch.`);
  return number3 === 1;
}

export function keyOf(i: number): string {
  return `${keyPrefix}${String(i).padStart(7, "0")}`;
}

/** A put in etcd's API. */
export function putRequest(key: string, value: Uint8Array): CallRequest {
  const message = encode({ 1: key, 2: value });
  return { path: "/etcdserverpb.KV/Put", message, ends: true, counted: 15 };
}

/** The result of one list: its number of objects and its revision. */
export interface Listed {
  readonly objects: number;
  readonly revision: number;
}

/** Lists all objects in one response: linearizable, the default, or serializable. */
export async function range(
  connection: Http2Connection,
  serializable: boolean = false,
): Promise<Listed> {
  // RangeRequest: key = 1, range_end = 2, serializable = 7; RangeResponse: header = 1, kvs = 2.
  const message = encode({ 1: keyPrefix, 2: keyPrefixEnd, 7: serializable || undefined });
  const path = "/etcdserverpb.KV/Range";
  const answer = await connection.unary({ path, message, ends: true, counted: 2 });
  const header = new Message(answer.bytes1 ?? Buffer.of());
  return { objects: answer.count, revision: header.number(3) };
}

/** The first page of a list of all objects, of watch-fanout. */
export function listRequest(): CallRequest {
  const message = encode({ 1: resource });
  return { path: "/watchfanout.v1.ListWatchService/List", message, ends: true, counted: 2 };
}

/** A put by watch-fanout, of a key without the prefix. */
export function writeRequest(key: string, value: Uint8Array): CallRequest {
  const message = encode({ 1: resource, 2: key, 3: value });
  return { path: "/watchfanout.v1.WriteService/Put", message, ends: true, counted: 2 };
}

/** Lists all objects page by page, with the page size of the service. */
export async function listPages(connection: Http2Connection): Promise<Listed & { pages: number }> {
  const path = "/watchfanout.v1.ListWatchService/List";
  let token: Buffer | undefined;
  for (let objects = 0, pages = 1; ; pages++) {
    // ListRequest: page_token = 8; ListResponse: revision = 1, items = 2, next_page_token = 3.
    const message = encode({ 1: resource, 8: token });
    const answer = await connection.unary({ path, message, ends: true, counted: 2 });
    objects += answer.count;
    token = answer.bytes3;
    if (token === undefined) return { objects, pages, revision: answer.number1 };
  }
}
