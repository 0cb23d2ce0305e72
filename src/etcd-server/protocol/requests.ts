import { status } from "@grpc/grpc-js";
import { methodOf } from "../../etcd/client/requests.ts";
import { EtcdError } from "./errors.ts";
import { checkWireTypes } from "./wire-types.ts";

/*
 * Requests of etcd's API as the decoder of its protos returns them: numbers of 64 bits as text, enums by their names, or as
 * a number without a name. etcd3's proto/rpc.proto says what the fields mean.
 */

export interface RangeRequest {
  readonly key: Buffer;
  readonly range_end: Buffer;
  readonly limit: string;
  readonly revision: string;
  readonly sort_order: "None" | "Ascend" | "Descend" | number;
  readonly sort_target: "Key" | "Version" | "Create" | "Mod" | "Value" | number;
  readonly keys_only: boolean;
  readonly count_only: boolean;
  readonly min_mod_revision: string;
  readonly max_mod_revision: string;
  readonly min_create_revision: string;
  readonly max_create_revision: string;
}

export interface PutRequest {
  readonly key: Buffer;
  readonly value: Buffer;
  readonly lease: string;
  readonly prev_kv: boolean;
  readonly ignore_value: boolean;
  readonly ignore_lease: boolean;
}

export interface DeleteRangeRequest {
  readonly key: Buffer;
  readonly range_end: Buffer;
  readonly prev_kv: boolean;
}

export interface Compare {
  readonly result: "Equal" | "Greater" | "Less" | "NotEqual" | number;
  readonly target: "Version" | "Create" | "Mod" | "Value" | "Lease" | number;
  readonly key: Buffer;
  readonly range_end: Buffer;
  readonly version?: string;
  readonly create_revision?: string;
  readonly mod_revision?: string;
  readonly value?: Buffer;
  readonly lease?: string;
}

/** One of them is there, or none. */
export interface RequestOp {
  readonly request_range?: RangeRequest;
  readonly request_put?: PutRequest;
  readonly request_delete_range?: DeleteRangeRequest;
  readonly request_txn?: TxnRequest;
}

export interface TxnRequest {
  readonly compare: readonly Compare[];
  readonly success: readonly RequestOp[];
  readonly failure: readonly RequestOp[];
}

export interface CompactionRequest {
  readonly revision: string;
}

export interface LeaseGrantRequest {
  readonly TTL: string;
  readonly ID: string;
}

/** Of all other methods of the lease service. */
export interface LeaseRequest {
  readonly ID: string;
  readonly keys?: boolean;
}

export interface HashKvRequest {
  readonly revision: string;
}

export interface AlarmRequest {
  readonly action: "GET" | "ACTIVATE" | "DEACTIVATE" | number;
}

/** The decoders. Each throws an EtcdError for bytes that are no such request. */
export const decode = {
  range: decoderOf<RangeRequest>("KV", "range", "RangeRequest"),
  put: decoderOf<PutRequest>("KV", "put", "PutRequest"),
  deleteRange: decoderOf<DeleteRangeRequest>("KV", "deleteRange", "DeleteRangeRequest"),
  txn: decoderOf<TxnRequest>("KV", "txn", "TxnRequest"),
  compact: decoderOf<CompactionRequest>("KV", "compact", "CompactionRequest"),
  leaseGrant: decoderOf<LeaseGrantRequest>("Lease", "leaseGrant", "LeaseGrantRequest"),
  leaseRevoke: decoderOf<LeaseRequest>("Lease", "leaseRevoke", "LeaseRevokeRequest"),
  leaseKeepAlive: decoderOf<LeaseRequest>("Lease", "leaseKeepAlive", "LeaseKeepAliveRequest"),
  leaseTimeToLive: decoderOf<LeaseRequest>("Lease", "leaseTimeToLive", "LeaseTimeToLiveRequest"),
  alarm: decoderOf<AlarmRequest>("Maintenance", "alarm", "AlarmRequest"),
  hashKv: decoderOf<HashKvRequest>("Maintenance", "hashKv", "HashKVRequest"),
};

function decoderOf<Request>(
  service: Parameters<typeof methodOf>[0],
  name: string,
  requestName: string,
): (message: Buffer) => Request {
  const { requestDeserialize } = methodOf(service, name);
  return (message) => {
    checkWireTypes(requestName, message);
    try {
      return requestDeserialize(message) as Request;
    } catch (error) {
      const details = `grpc: error unmarshalling request: ${String(error)}`;
      // Without a cause: a failure of the client is not logged.
      throw new EtcdError(status.INTERNAL, details);
    }
  };
}

/** A lease's id as the store has it: unsigned. */
export function leaseId(text: string | undefined): bigint {
  return BigInt.asUintN(64, BigInt(text ?? 0));
}
