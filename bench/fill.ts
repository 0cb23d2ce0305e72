import { randomBytes } from "node:crypto";
import type { Etcd } from "../test/etcd/etcd.ts";
import { encode } from "../test/foreign/protobuf.ts";
import { Http2Connection } from "./http2-connection.ts";
import { keyOf } from "./requests.ts";

const transactionsInFlight = 8;
/**
 * As many objects as fit one request in one HTTP/2 frame, and etcd's default limit of 128 operations per transaction.
 */
const requestBytes = 15_000;
const overheadBytes = 40;
const mostOperations = 120;

/** Puts objects of random bytes into etcd, many per transaction. */
export async function fill(etcd: Etcd, objects: number, valueBytes: number): Promise<void> {
  const lost = (error: Error): void => void Promise.reject(error);
  const connection = await Http2Connection.to(etcd.url, lost);
  const fitting = Math.floor(requestBytes / (valueBytes + overheadBytes));
  const perTransaction = Math.max(1, Math.min(mostOperations, fitting));
  let next = 0;
  const keepOn = async (): Promise<void> => {
    while (next < objects) {
      const from = next;
      next = Math.min(objects, from + perTransaction);
      const values = randomBytes(valueBytes * (next - from));
      const operations = Array.from({ length: next - from }, (_, i) =>
        // RequestOp: request_put = 2; PutRequest: key = 1, value = 2.
        encode({
          2: encode({
            1: keyOf(from + i),
            2: values.subarray(i * valueBytes, (i + 1) * valueBytes),
          }),
        }),
      );
      // TxnRequest: success = 2.
      const message = encode({ 2: operations });
      await connection.unary({ path: "/etcdserverpb.KV/Txn", message, ends: true, counted: 15 });
    }
  };
  await Promise.all(Array.from({ length: transactionsInFlight }, keepOn));
  connection.close();
}
