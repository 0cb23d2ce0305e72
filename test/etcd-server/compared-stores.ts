import { afterAll } from "vitest";
import { startEtcd } from "../etcd/etcd.ts";
import { startEmbedded, untilReady } from "../etcd-api/front.ts";
import { RawGrpc, type RawResponse, statusOf } from "../etcd-api/raw-grpc.ts";
import { encode, Message } from "../foreign/protobuf.ts";
import { serveStore } from "./served-store.ts";

/** What starts etcds and embedded stores in which nothing was written, until the end of the file that calls this at its top. */
export interface NewStores {
  readonly etcd: () => Promise<RawGrpc>;
  /** The server of the embedded store alone. */
  readonly served: () => Promise<RawGrpc>;
  /** A service with one. */
  readonly service: () => Promise<RawGrpc>;
}

export function storesOfFile(): NewStores {
  const closing: (() => Promise<void> | void)[] = [];
  afterAll(async () => {
    for (const close of closing.splice(0).reverse()) await close();
  });
  const clientOf = (url: string): RawGrpc => {
    const client = new RawGrpc(url);
    closing.push(() => client.close());
    return client;
  };
  return {
    etcd: async () => {
      const etcd = await startEtcd();
      closing.push(() => etcd.stop());
      return clientOf(etcd.url);
    },
    served: async () => {
      const served = await serveStore();
      closing.push(() => served.close());
      return served.client;
    },
    service: async () => {
      const front = await startEmbedded({ resource: ["all="] });
      closing.push(() => front.stop());
      await untilReady(front);
      return clientOf(front.url);
    },
  };
}

/** What two stores with the same past respond the same: all but the ids and the term in the header. */
export type Comparable =
  | { readonly code: string; readonly message: string }
  | { readonly code: "0"; readonly revision: number; readonly rest: string };

export function comparable(response: RawResponse): Comparable {
  const { code, message } = statusOf(response);
  if (code !== "0") return { code, message: decodeURIComponent(message) };
  const { revision, rest } = parts(response.body.subarray(5));
  return { code, revision, rest: rest.toString("hex") };
}

/** The header's revision, and everything behind the header, whose field is the first. */
export function parts(message: Buffer): { readonly revision: number; readonly rest: Buffer } {
  const size = message.readUInt8(1);
  const header = new Message(message.subarray(2, 2 + size));
  return { revision: header.number(3), rest: message.subarray(2 + size) };
}

export async function revisionOf(client: RawGrpc): Promise<number> {
  const request = encode({ 1: "none" });
  const { body } = await client.unary("/etcdserverpb.KV/Range", request);
  return parts(body.subarray(5)).revision;
}

/** Makes the same call of both. Undefined: both stores would not be the same afterwards, and nothing has changed. */
export async function callBoth(
  its: RawGrpc,
  own: RawGrpc,
  path: string,
  request: Buffer,
): Promise<{ readonly theirs: Comparable; readonly ours: Comparable } | undefined> {
  const ours = comparable(await own.unary(path, request));
  // A transaction that changes a key twice in a way that etcd lets pass is refused by the embedded store.
  const isDuplicate = "message" in ours && ours.message.includes("duplicate key");
  if (isDuplicate && mayChangeTwice(request)) return undefined;
  return { ours, theirs: comparable(await its.unary(path, request)) };
}

/** Whether a transaction has deletes that etcd does not compare with its puts: in nested ones, or without an end. */
function mayChangeTwice(request: Buffer): boolean {
  const txn = new Message(request);
  const operations = [...txn.all(2), ...txn.all(3)].map((each) => new Message(each));
  const isEndless = (operation: Message): boolean =>
    operation.message(3)?.bytes(2).equals(Buffer.of(0)) === true;
  return operations.some((operation) => operation.has(4) || isEndless(operation));
}
