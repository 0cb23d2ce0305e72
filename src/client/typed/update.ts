import { Backoff } from "../../base/backoff.ts";
import { type Clock, pause } from "../../base/clock.ts";
import { hasReason, invalidRequest, type Reason, WatchFanoutError } from "../../base/errors.ts";
import type { StoredObject } from "../../model/object.ts";
import { RevisionConflict } from "../calls/revision-conflict.ts";
import { DecodeFailure, decodeTyped, type TypedObject, typed } from "../values/typed-object.ts";
import type { ValueCodec } from "../values/value-codec.ts";
import type { ClientCalls } from "../watch/client-calls.ts";

/**
 * Makes the new value of an object from its current one. Both arguments are undefined if the object does not exist
 * (or, with `replaceUndecodable`, can't be decoded). A result of undefined leaves the object unchanged. May be called
 * several times, each time with the current value, and must not modify its arguments.
 */
export type Change<T> = (
  value: T | undefined,
  object: TypedObject<T> | undefined,
) => T | undefined | Promise<T | undefined>;

/** Options of `TypedResource.update`. */
export interface UpdateOptions {
  /**
   * Maximum number of attempts, at least 1. Another attempt is made when another writer has changed the object
   * between the read and the write. Default 10.
   */
  readonly maxAttempts?: number | undefined;
  /**
   * The lease of the object after the update; 0n for no lease. Default: the current lease, so that an object that
   * expires still expires.
   */
  readonly lease?: bigint | undefined;
  /** Attaches the object to a new lease of this many milliseconds, as for a put. Not together with `lease`. */
  readonly ttlMs?: number | undefined;
  /**
   * Whether `change` is called with undefined for a value that can't be decoded, and its result replaces that value.
   * The write still requires the revision that was read, and keeps the lease. For a writer that alone decides what
   * the object is, and that an invalid value would otherwise block indefinitely. Default false: the update rejects
   * with a DecodeFailure.
   */
  readonly replaceUndecodable?: boolean | undefined;
  /** Timeout of each read and each write, in milliseconds. Default: the timeout of the client. */
  readonly timeoutMs?: number | undefined;
  /** Aborting it rejects the update with the signal's reason. A write that was sent may still be applied. */
  readonly signal?: AbortSignal | undefined;
}

/** The resource and the client of an update. */
interface UpdateSite<T> {
  readonly client: ClientCalls;
  readonly resource: string;
  readonly codec: ValueCodec<T>;
  readonly clock: Clock;
  readonly random: () => number;
}

const backoffBounds = { initialMs: 10, maxMs: 1_000 };
const defaultMaxAttempts = 10;

/**
 * Another writer has changed the object between the read and the write, so it must be read again. LIST_TOO_LARGE: the current one
 * is too large for the answer of the write.
 */
const overtaken: readonly Reason[] = ["REVISION_CONFLICT", "LIST_TOO_LARGE", "HISTORY_CHANGED"];

/**
 * See TypedResource.update. After the first conflict it begins again at once, with the object that the conflict has. After later
 * ones there are many writers: it pauses, with exponential backoff and jitter, and reads the object, which would be old by then.
 */
export async function update<T>(
  site: UpdateSite<T>,
  key: string,
  change: Change<T>,
  options: UpdateOptions,
): Promise<TypedObject<T> | undefined> {
  const { maxAttempts = defaultMaxAttempts, signal } = options;
  if (!(maxAttempts >= 1)) {
    throw invalidRequest("maxAttempts", `maxAttempts is ${maxAttempts}: it must be at least 1.`);
  }
  const backoff = new Backoff(backoffBounds, site.random);
  let conflict: RevisionConflict | undefined;
  for (let attempt = 1; ; attempt++) {
    const found = conflict === undefined ? await read(site, key, options) : foundBy(conflict);
    const object = found && decoded(site, found, options);
    const value = await change(object?.value, object);
    if (value === undefined) return object;
    signal?.throwIfAborted();
    try {
      return await write(site, key, value, found, options);
    } catch (error) {
      if (!isOvertaken(error, found, options) || attempt >= maxAttempts) throw error;
      conflict = attempt === 1 && error instanceof RevisionConflict ? error : undefined;
    }
    if (conflict === undefined) await pause(site.clock, backoff.next(), signal);
    signal?.throwIfAborted();
  }
}

/** The object, as the store had it at the conflict. */
interface Found {
  readonly object: StoredObject;
  readonly historyId: string;
}

function foundBy({ current, historyId }: RevisionConflict): Found | undefined {
  return current === undefined ? undefined : { object: current, historyId };
}

async function read<T>(
  { client, resource }: UpdateSite<T>,
  key: string,
  { timeoutMs, signal }: UpdateOptions,
): Promise<Found | undefined> {
  try {
    return await client.get(resource, key, { timeoutMs, signal });
  } catch (error) {
    if (hasReason(error, "OBJECT_NOT_FOUND")) return undefined;
    throw error;
  }
}

function decoded<T>(
  { codec, resource }: UpdateSite<T>,
  { object }: Found,
  { replaceUndecodable = false }: UpdateOptions,
): TypedObject<T> | undefined {
  const result = decodeTyped(object, codec, resource);
  if (!(result instanceof DecodeFailure)) return result;
  if (replaceUndecodable) return undefined;
  throw result;
}

async function write<T>(
  { client, resource, codec }: UpdateSite<T>,
  key: string,
  value: T,
  found: Found | undefined,
  { lease, ttlMs, timeoutMs, signal }: UpdateOptions,
): Promise<TypedObject<T>> {
  const { object } = await client.put(resource, key, codec.encode(value), {
    expectedModRevision: found?.object.modRevision ?? 0,
    returnCurrent: true,
    historyId: found?.historyId,
    lease: lease ?? (ttlMs === undefined ? found?.object.lease : undefined),
    ttlMs,
    timeoutMs,
    signal,
  });
  return typed(object, value);
}

function isOvertaken(
  error: unknown,
  found: Found | undefined,
  { lease, ttlMs }: UpdateOptions,
): boolean {
  if (!(error instanceof WatchFanoutError)) return false;
  if (overtaken.includes(error.reason)) return true;
  // The object's lease has expired since the read, and the object with it.
  const inherits = lease === undefined && ttlMs === undefined;
  return error.reason === "LEASE_NOT_FOUND" && inherits && (found?.object.lease ?? 0n) !== 0n;
}
