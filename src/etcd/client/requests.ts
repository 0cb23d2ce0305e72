import { createRequire } from "node:module";
import type { ClientDuplexStream, MethodDefinition, ServiceDefinition } from "@grpc/grpc-js";
import { loadSync } from "@grpc/proto-loader";
import type { IKeyValue, IRangeResponse, Services } from "etcd3";
import type { DecodedWatch } from "../wire/watch-response.ts";
import type { KeyRange } from "./key-range.ts";

/*
 * Requests to etcd, with stricter types than etcd3's, and the used parts of its transaction responses, whose oneofs
 * etcd3 declares as all present. etcd3's proto/rpc.proto says what the fields mean. Responses to Range and Watch are
 * decoded by hand: see ../wire.
 */

export interface RangeRequest {
  readonly key: Buffer;
  readonly range_end?: Buffer;
  readonly limit?: number;
  readonly revision?: number;
  readonly serializable?: boolean;
  readonly keys_only?: boolean;
  readonly count_only?: boolean;
  /** Leaves out keys that were written before. etcd still reads and counts all keys of the range. */
  readonly min_mod_revision?: number;
}

interface PutRequest {
  readonly key: Buffer;
  readonly value: Buffer;
  readonly lease?: string;
  readonly prev_kv?: boolean;
}

interface DeleteRangeRequest {
  readonly key: Buffer;
  readonly range_end?: Buffer;
  readonly prev_kv?: boolean;
}

/** Revisions of a key that does not exist are 0. */
export type Compare = { readonly result: "Equal" | "Greater"; readonly key: Buffer } & (
  | { readonly target: "Mod"; readonly mod_revision: number }
  | { readonly target: "Create"; readonly create_revision: number }
  /** Never holds for a key that does not exist. */
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

interface ResponseOp {
  readonly response_range?: IRangeResponse;
  readonly response_put?: { readonly prev_kv?: IKeyValue | null };
  readonly response_delete_range?: {
    readonly deleted: string;
    readonly prev_kvs: readonly IKeyValue[];
  };
}

export interface TxnResponse {
  readonly header: { readonly revision: string };
  readonly succeeded: boolean;
  readonly responses: readonly ResponseOp[];
}

interface WatchCreateRequest {
  readonly key: Buffer;
  readonly range_end?: Buffer;
  readonly start_revision: number;
  readonly progress_notify?: boolean;
  readonly prev_kv?: boolean;
  readonly fragment?: boolean;
  /** NOPUT: only deletions are sent. */
  readonly filters?: readonly "NOPUT"[];
}

export type WatchRequest =
  | { readonly create_request: WatchCreateRequest }
  | { readonly progress_request: Record<string, never> };

export type WatchCall = ClientDuplexStream<WatchRequest, DecodedWatch>;

/** `ID` is a lease. */
export interface KeepAliveRequest {
  readonly ID: string;
}

/** `TTL`: in seconds; 0 or less: there is no such lease. */
export interface KeepAliveResponse extends KeepAliveRequest {
  readonly TTL: string;
}

export type KeepAliveCall = ClientDuplexStream<KeepAliveRequest, KeepAliveResponse>;

/** etcd's API as etcd3's package declares it, loaded as etcd3's types describe it. */
const definitions = loadSync(createRequire(import.meta.url).resolve("etcd3/proto/rpc.proto"), {
  keepCase: true,
  longs: String,
  enums: String,
  defaults: true,
  oneofs: true,
});

/**
 * The gRPC method definition of an etcd call. `name` is in lower camel case, such as "leaseGrant".
 *
 * @throws Error if etcd3's package declares no such method
 */
export function methodOf(
  service: keyof typeof Services,
  name: string,
): MethodDefinition<unknown, unknown> {
  const methods = definitions[`etcdserverpb.${service}`] as unknown as ServiceDefinition;
  const found = Object.values(methods).find(({ originalName }) => originalName === name);
  if (found === undefined) throw new Error(`etcd3's rpc.proto has no ${service}.${name}.`);
  return found;
}

/** A field of a message, as the descriptors of protobuf describe it. All numbers of etcd's requests are varints. */
export interface ProtoField {
  readonly number: number;
  readonly name: string;
  readonly type: string;
  /** The name of its message, without the package. */
  readonly typeName: string;
  readonly label: string;
}

/**
 * The fields of a message, such as "PutRequest".
 *
 * @throws Error if etcd3's package declares no such message
 */
export function protoFieldsOf(message: string): readonly ProtoField[] {
  const found = definitions[`etcdserverpb.${message}`];
  if (found === undefined || !("type" in found)) {
    throw new Error(`etcd3's rpc.proto has no message ${message}.`);
  }
  const { field } = found.type as { readonly field: readonly ProtoField[] };
  return field;
}

/** The two methods whose responses are decoded by hand. */
export const rangeMethod = methodOf("KV", "range") as MethodDefinition<RangeRequest, unknown>;
export const watchMethod = methodOf("Watch", "watch") as MethodDefinition<WatchRequest, unknown>;

export const keepAliveMethod = methodOf("Lease", "leaseKeepAlive") as MethodDefinition<
  KeepAliveRequest,
  KeepAliveResponse
>;

/** The key that a transaction writes; undefined for one that writes none. */
export function writtenBy({ success }: TxnRequest): KeyRange | undefined {
  for (const operation of success) {
    if ("request_put" in operation) return { key: operation.request_put.key };
    if ("request_delete_range" in operation) return { key: operation.request_delete_range.key };
  }
  return undefined;
}
