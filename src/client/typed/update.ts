import { Backoff } from "../../base/backoff.ts";
import { type Clock, pause } from "../../base/clock.ts";
import { hasReason, invalidRequest, type Reason, WatchFanoutError } from "../../base/errors.ts";
import type { ObjectResult } from "../calls/results.ts";
import { DecodeFailure, decodeTyped, type TypedObject, typed } from "../values/typed-object.ts";
import type { ValueCodec } from "../values/value-codec.ts";
import type { ClientCalls } from "../watch/client-calls.ts";

/**
 * Makes the new value of an object from the one that it has, both undefined where there is none (or none that can be
 * decoded, with `replaceUndecodable`). Undefined:
 * the object stays as it is. May be called several times, each time with what then stands, and must not change
 * what it is given.
 */
export type Change<T> = (
  value: T | undefined,
  object: TypedObject<T> | undefined,
) => T | undefined | Promise<T | undefined>;

export interface UpdateOptions {
  /** How often to begin anew when another writer comes between, until it rejects. Default 10 attempts. */
  readonly maxAttempts?: number | undefined;
  /**
   * The lease of the object from then on; 0n: none. Default: the one that it has, so that an update does not
   * take what expires away from its lease.
   */
  readonly lease?: bigint | undefined;
  /** As of a put: a new lease of this many milliseconds. Not with `lease`. */
  readonly ttlMs?: number | undefined;
  /**
   * Whether a value that can't be decoded is as none to `change`, which may then make one to take its place: written
   * only if the object still stands where it was read, and on its lease, as ever. For who is the only one to say what
   * the object is, and would else be stopped for ever by what somebody has put there by mistake. Default: the update
   * rejects with a DecodeFailure.
   */
  readonly replaceUndecodable?: boolean | undefined;
  /** How long each read and each write may take, in milliseconds. Default: the client's. */
  readonly timeoutMs?: number | undefined;
  readonly signal?: AbortSignal | undefined;
}

/** Where an update is done. */
interface UpdateSite<T> {
  readonly client: ClientCalls;
  readonly resource: string;
  readonly codec: ValueCodec<T>;
  readonly clock: Clock;
  readonly random: () => number;
}

const backoffBounds = { initialMs: 10, maxMs: 1_000 };
const defaultMaxAttempts = 10;

/** Somebody has come between the read and the write: what stands now has to be read. */
const overtaken: readonly Reason[] = ["REVISION_CONFLICT", "HISTORY_CHANGED"];

/**
 * Reads, changes, and writes what was made if the object still stands where it was read, in the same history;
 * otherwise begins anew after a pause that grows and varies, at most `maxAttempts` times. An object that is
 * not there is created if `change` makes a value of nothing.
 *
 * Resolves to the object as it then stands; undefined: `change` has found none and made none. Rejects with what `change` throws; with a
 * DecodeFailure, without calling it, where what stands can't be decoded (unless `replaceUndecodable`); with REVISION_CONFLICT when all
 * attempts were overtaken; and with OUTCOME_UNKNOWN at once, as a change that is made twice may be wrong.
 */
export async function update<T>(
  site: UpdateSite<T>,
  key: string,
  change: Change<T>,
  options: UpdateOptions,
): Promise<TypedObject<T> | undefined> {
  const { maxAttempts = defaultMaxAttempts, signal } = options;
  if (!(maxAttempts >= 1)) {
    throw invalidRequest("maxAttempts", `maxAttempts is ${maxAttempts}: it has to be at least 1.`);
  }
  const backoff = new Backoff(backoffBounds, site.random);
  for (let attempt = 1; ; attempt++) {
    const found = await read(site, key, options);
    const object = found && decoded(site, found, options);
    const value = await change(object?.value, object);
    if (value === undefined) return object;
    signal?.throwIfAborted();
    try {
      return await write(site, key, value, found, options);
    } catch (error) {
      if (!isOvertaken(error, found, options) || attempt >= maxAttempts) throw error;
    }
    await pause(site.clock, backoff.next(), signal);
    signal?.throwIfAborted();
  }
}

async function read<T>(
  { client, resource }: UpdateSite<T>,
  key: string,
  { timeoutMs, signal }: UpdateOptions,
): Promise<ObjectResult | undefined> {
  try {
    return await client.get(resource, key, { timeoutMs, signal });
  } catch (error) {
    if (hasReason(error, "OBJECT_NOT_FOUND")) return undefined;
    throw error;
  }
}

function decoded<T>(
  { codec, resource }: UpdateSite<T>,
  { object }: ObjectResult,
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
  found: ObjectResult | undefined,
  { lease, ttlMs, timeoutMs, signal }: UpdateOptions,
): Promise<TypedObject<T>> {
  const { object } = await client.put(resource, key, codec.encode(value), {
    expectedModRevision: found?.object.modRevision ?? 0,
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
  found: ObjectResult | undefined,
  { lease, ttlMs }: UpdateOptions,
): boolean {
  if (!(error instanceof WatchFanoutError)) return false;
  if (overtaken.includes(error.reason)) return true;
  // The lease that the object had has ended meanwhile, and the object with it.
  const inherits = lease === undefined && ttlMs === undefined;
  return error.reason === "LEASE_NOT_FOUND" && inherits && (found?.object.lease ?? 0n) !== 0n;
}
