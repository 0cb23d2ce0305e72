import { BareStatus } from "../foreign/bare-grpc.ts";
import { encode, type Message } from "../foreign/protobuf.ts";
import type { SeenObject } from "../guarantees/recording.ts";
import { seenObject } from "../guarantees/wire-objects.ts";
import type { Input, Outcome, Output } from "./history.ts";
import { type Caller, unary } from "./service-client.ts";

const leaseService = "/watchfanout.v1.LeaseService";

/** A granted lease: its id, and its length in milliseconds. */
export interface Granted {
  readonly id: string;
  readonly ttlMs: number;
}

/** Undefined: refused, or the response was lost. Then it has no key, and ends by itself. */
export async function grant(url: string, seconds: number): Promise<Granted | undefined> {
  try {
    const response = await unary(url, `${leaseService}/Grant`, { 1: encode({ 1: seconds }) });
    const ttlMs = (response.message(2)?.number(1) ?? 0) * 1_000;
    return { id: String(response.integer(1)), ttlMs };
  } catch (error) {
    if (!(error instanceof BareStatus)) throw error;
    return undefined;
  }
}

/** Calls LeaseService, and Put, Delete, Get and List of objects with leases. */
export function leaseCaller(resource: string): Caller {
  return async (url, input) => {
    try {
      return await called(url, resource, input);
    } catch (error) {
      if (!(error instanceof BareStatus)) throw error;
      return outcomeOf(error);
    }
  };
}

async function called(url: string, resource: string, input: Input): Promise<Output> {
  const { puts = [], deletes = [], range, lease } = input;
  if (lease !== undefined) return leaseCalled(url, lease);
  const [put] = puts;
  if (put !== undefined) {
    const value = Buffer.from(put.value, "latin1");
    const fields = { 1: resource, 2: put.key, 3: value, 5: put.lease && BigInt(put.lease) };
    const response = await unary(url, "/watchfanout.v1.WriteService/Put", fields);
    return { succeeded: true, revision: response.number(1), after: leased(response) };
  }
  const [deleted] = deletes;
  if (deleted !== undefined) {
    const fields = { 1: resource, 2: deleted };
    const response = await unary(url, "/watchfanout.v1.WriteService/Delete", fields);
    return { succeeded: true, revision: response.number(1), before: leased(response) };
  }
  const method = range.isPrefix ? "List" : "Get";
  const fields = { 1: resource, 2: range.key };
  const response = await unary(url, `/watchfanout.v1.ListWatchService/${method}`, fields);
  return { succeeded: true, revision: response.number(1), after: leased(response) };
}

async function leaseCalled(url: string, lease: NonNullable<Input["lease"]>): Promise<Output> {
  const id = BigInt(lease.id);
  if (lease.what === "revoke") {
    await unary(url, `${leaseService}/Revoke`, { 1: id });
    return { succeeded: true };
  }
  const response = await unary(url, `${leaseService}/KeepAlive`, { 1: id });
  const [renewal] = response.messages(1);
  if (renewal === undefined) throw new RangeError("A renewal is missing.");
  if (renewal.has(2)) return { succeeded: true };
  // LEASE_NOT_FOUND is NOT_FOUND; whatever else it is, the lease was perhaps renewed.
  const notFound = 5;
  const isNotFound = renewal.message(3)?.number(1) === notFound;
  if (!isNotFound) throw new BareStatus(14, "The lease was not renewed.");
  return { succeeded: true, hasNoLease: true };
}

function leased(response: Message): SeenObject[] {
  return response.messages(2).map((object) => {
    const lease = object.integer(6);
    return Object.assign(seenObject(object), lease === 0n ? {} : { lease: String(lease) });
  });
}

/** Only the service itself can say that nothing was written. */
function outcomeOf({ reason, metadata, message }: BareStatus): Outcome {
  if (reason === "OBJECT_NOT_FOUND") {
    return { succeeded: true, revision: Number(metadata["revision"]), before: [], after: [] };
  }
  if (reason === "LEASE_NOT_FOUND") return { succeeded: true, hasNoLease: true };
  if (reason === "INVALID_REQUEST") throw new Error(`A request of the test is refused: ${message}`);
  return reason === "" || reason === "OUTCOME_UNKNOWN" || reason === "INTERNAL"
    ? "unknown"
    : "refused";
}
