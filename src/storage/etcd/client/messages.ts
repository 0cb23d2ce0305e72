import type { ClientDuplexStream } from "@grpc/grpc-js";
import type { IKeyValue, IRangeResponse } from "etcd3";
import type { DecodedWatch } from "./responses.ts";

/*
 * The requests that etcd is sent, stricter than etcd3's types have them, and of its answers to transactions what is
 * read: there etcd3's types have every part of a oneof present. What the fields mean is said in etcd3's
 * proto/rpc.proto. The answers to Range and Watch are decoded by hand: see responses.ts.
 */

export interface RangeRequest {
  readonly key: Buffer;
  readonly range_end?: Buffer;
  readonly limit?: number;
  readonly revision?: number;
  readonly serializable?: boolean;
  readonly keys_only?: boolean;
  readonly count_only?: boolean;
  /** Leaves out what was written before. etcd looks at all keys of the range all the same, and counts them. */
  readonly min_mod_revision?: number;
}

interface PutRequest {
  readonly key: Buffer;
  readonly value: Buffer;
  readonly lease?: string;
}

interface DeleteRangeRequest {
  readonly key: Buffer;
  readonly prev_kv?: boolean;
}

export type Compare = { readonly result: "Equal"; readonly key: Buffer } & (
  | { readonly target: "Mod"; readonly mod_revision: number }
  /** Never holds of a key that is not there. */
  | { readonly target: "Value"; readonly value: Buffer }
);

export type RequestOp =
  | { readonly request_range: RangeRequest }
  | { readonly request_put: PutRequest }
  | { readonly request_delete_range: DeleteRangeRequest };

/** The arrays are not read-only because etcd3's are not. */
export interface TxnRequest {
  readonly compare: Compare[];
  readonly success: RequestOp[];
  readonly failure: RequestOp[];
}

export interface ResponseOp {
  readonly response_range?: IRangeResponse;
  readonly response_delete_range?: { readonly prev_kvs: readonly IKeyValue[] };
}

export interface TxnResponse {
  readonly header: { readonly revision: string };
  readonly succeeded: boolean;
  readonly responses: readonly ResponseOp[];
}

export interface WatchCreateRequest {
  readonly key: Buffer;
  readonly range_end?: Buffer;
  readonly start_revision: number;
  readonly progress_notify?: boolean;
  readonly prev_kv?: boolean;
  readonly fragment?: boolean;
}

export type WatchRequest =
  | { readonly create_request: WatchCreateRequest }
  | { readonly progress_request: Record<string, never> };

export type WatchCall = ClientDuplexStream<WatchRequest, DecodedWatch>;
