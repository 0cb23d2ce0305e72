import type {
  CallOptions,
  Client,
  ClientDuplexStream,
  ClientUnaryCall,
  Metadata,
  MethodDefinition,
  ServiceError,
} from "@grpc/grpc-js";
import type { DecodedWatch } from "./responses.ts";

/*
 * etcd's messages as etcd3 loads them (int64 as decimal strings, enums by name, bytes as Buffers, every
 * field present), as far as they are used here. What they mean is said in etcd3's proto/rpc.proto. The answers
 * to Range and Watch are decoded by hand instead: see responses.ts.
 */

export interface ResponseHeader {
  readonly revision: string;
}

export interface KeyValue {
  readonly key: Buffer;
  readonly value: Buffer;
  readonly create_revision: string;
  readonly mod_revision: string;
  readonly version: string;
  readonly lease: string;
}

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

export interface RangeResponse {
  readonly header: ResponseHeader;
  readonly kvs: readonly KeyValue[];
  readonly more: boolean;
  readonly count: string;
}

interface PutRequest {
  readonly key: Buffer;
  readonly value: Uint8Array;
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

export interface TxnRequest {
  readonly compare: readonly Compare[];
  readonly success: readonly RequestOp[];
  readonly failure: readonly RequestOp[];
}

export interface ResponseOp {
  readonly response_range?: RangeResponse;
  readonly response_delete_range?: { readonly prev_kvs: readonly KeyValue[] };
}

export interface TxnResponse {
  readonly header: ResponseHeader;
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

export interface StatusResponse {
  readonly version: string;
}

export interface LeaseGrantRequest {
  /** In seconds. */
  readonly TTL: number;
}

export interface LeaseGrantResponse {
  readonly ID: string;
}

export interface LeaseRevokeRequest {
  readonly ID: string;
}

export interface AuthenticateResponse {
  readonly token: string;
}

export type WatchCall = ClientDuplexStream<WatchRequest, DecodedWatch>;

/** A unary method of one of etcd3's raw clients. */
export type UnaryMethod<Request, Response> = (
  request: Request,
  metadata: Metadata,
  options: CallOptions,
  callback: (error: ServiceError | null, response?: Response) => void,
) => ClientUnaryCall;

/** The raw clients, of which etcd3's types say nothing but that they are gRPC clients. */
export interface RawClients {
  readonly KV: Client & {
    range: MethodDefinition<RangeRequest, unknown>;
    txn: UnaryMethod<TxnRequest, TxnResponse>;
  };
  readonly Lease: {
    leaseGrant: UnaryMethod<LeaseGrantRequest, LeaseGrantResponse>;
    leaseRevoke: UnaryMethod<LeaseRevokeRequest, Record<string, never>>;
  };
  readonly Auth: {
    authenticate: UnaryMethod<{ name: string; password: string }, AuthenticateResponse>;
  };
  readonly Maintenance: {
    status: UnaryMethod<Record<string, never>, StatusResponse>;
  };
  readonly Watch: Client & {
    watch: MethodDefinition<WatchRequest, unknown>;
  };
}
