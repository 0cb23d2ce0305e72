import { Backoff } from "../../base/backoff.ts";
import { type Clock, pause } from "../../base/clock.ts";
import { hasReason, upstreamUnavailable, WatchFanoutError } from "../../base/errors.ts";
import type { StoredObject } from "../../model/object.ts";
import type { ObjectName } from "../../storage/store.ts";
import { CallFailure } from "../calls/call-failure.ts";
import type { ClientCalls } from "../watch/client-calls.ts";
import { type Lease, leaseLost } from "./lease.ts";
import type { Leases } from "./leases.ts";

/** What sessions need of a Client. */
export interface LeaseClient
  extends Omit<ClientCalls, "batchGet" | "deletePrefix" | "transaction"> {
  readonly leases: Pick<Leases, "grant" | "release" | "revoke" | "site">;
}

const backoffBounds = { initialMs: 50, maxMs: 1_000 };

/**
 * Calls again while the failure is temporary, with backoff and jitter. For calls that have the same effect when they are
 * repeated. Rejects with any other error, and with the signal's reason when it is aborted.
 */
export async function persist<T>(
  call: () => Promise<T>,
  { clock, random }: { readonly clock: Clock; readonly random: () => number },
  signal: AbortSignal,
): Promise<T> {
  const backoff = new Backoff(backoffBounds, random);
  for (;;) {
    signal.throwIfAborted();
    try {
      return await call();
    } catch (error) {
      signal.throwIfAborted();
      if (!isTemporary(error)) throw error;
    }
    await pause(clock, backoff.next(), signal);
  }
}

function isTemporary(error: unknown): boolean {
  return error instanceof WatchFanoutError && new CallFailure(error).resumable;
}

/** Puts an object that is attached to `lease`. A lease that the store does not have is lost by that. */
export async function putLeased(
  client: LeaseClient,
  lease: Lease,
  { resource, key }: ObjectName,
  value: Uint8Array,
  options: { readonly expectedModRevision?: number; readonly signal?: AbortSignal },
): Promise<StoredObject> {
  try {
    const { object } = await client.put(resource, key, value, { ...options, lease: lease.id });
    return object;
  } catch (error) {
    if (!hasReason(error, "LEASE_NOT_FOUND")) throw error;
    const lost = leaseLost(lease.id, "the store does not have it", error);
    lease.end(lost);
    throw lost;
  }
}

/**
 * Creates an object that is attached to `lease`. If the key exists, it returns that object, whose `lease` says whose it is. The
 * result is that of the store also if the response to a put was lost: the put is repeated, and finds this lease's object.
 *
 * Rejects with the signal's reason if that is aborted; the object may then be created, even some seconds later.
 */
export function createLeased(
  client: LeaseClient,
  lease: Lease,
  name: ObjectName,
  value: Uint8Array,
  signal: AbortSignal,
): Promise<StoredObject> {
  const create = async (): Promise<StoredObject> => {
    try {
      return await putLeased(client, lease, name, value, { expectedModRevision: 0, signal });
    } catch (error) {
      if (!hasReason(error, "REVISION_CONFLICT")) throw error;
    }
    const found = await read(client, name, signal);
    if (found === undefined) throw upstreamUnavailable(`${name.key} was deleted meanwhile.`);
    return found;
  };
  return persist(create, client.leases.site, signal);
}

/** Reads an object, linearizably. Undefined: it does not exist. */
export async function read(
  client: LeaseClient,
  { resource, key }: ObjectName,
  signal: AbortSignal,
): Promise<StoredObject | undefined> {
  try {
    return (await client.get(resource, key, { signal })).object;
  } catch (error) {
    if (hasReason(error, "OBJECT_NOT_FOUND")) return undefined;
    throw error;
  }
}

/**
 * Deletes an object that is attached to `lease`, and repeats that until it is certain, or the lease has ended, which deletes
 * it as well. With `modRevision` it deletes nothing that was created later.
 */
export async function deleteLeased(
  client: LeaseClient,
  lease: Lease,
  { resource, key }: ObjectName,
  modRevision?: number,
): Promise<void> {
  try {
    const { signal } = lease;
    const options = { expectedModRevision: modRevision, signal };
    await persist(() => client.delete(resource, key, options), client.leases.site, signal);
  } catch (error) {
    const isGone = hasReason(error, "OBJECT_NOT_FOUND") || hasReason(error, "REVISION_CONFLICT");
    if (!isGone && !lease.signal.aborted) throw error;
  }
}
