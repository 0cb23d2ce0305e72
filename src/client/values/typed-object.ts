import type { StoredObject } from "../../model/object.ts";
import { counter } from "../calls/metering.ts";
import type { ValueCodec } from "./value-codec.ts";

/** One object with its decoded value. Immutable, shared. */
export interface TypedObject<T> {
  readonly key: string;
  readonly value: T;
  readonly createRevision: number;
  /** The revision that last changed it; of a deleted object, the one that removed it. */
  readonly modRevision: number;
  /** How often it was written since it was created, from 1. */
  readonly version: number;
  /** 0n: none. */
  readonly lease: bigint;
}

/**
 * A value that its codec can't decode. The object is there all the same: whoever keeps state keeps the last
 * that could be decoded, or none.
 */
export class DecodeFailure extends Error {
  override readonly name = "DecodeFailure";
  /** As it is stored. */
  readonly object: StoredObject;

  constructor(object: StoredObject, cause: unknown) {
    const why = cause instanceof Error ? cause.message : String(cause);
    super(
      `The value of ${JSON.stringify(object.key)} at revision ${object.modRevision} can't be decoded: ${why}`,
      { cause },
    );
    this.object = object;
  }

  get key(): string {
    return this.object.key;
  }

  get modRevision(): number {
    return this.object.modRevision;
  }
}

const failures = counter("watch_fanout_client_undecodable_values", {
  description: "Values that the client's codec could not decode.",
  unit: "{value}",
});

/**
 * The object with its value decoded, or why that can't be, which is counted under `resource`. Never throws.
 */
export function decodeTyped<T>(
  object: StoredObject,
  codec: ValueCodec<T>,
  resource: string = "",
): TypedObject<T> | DecodeFailure {
  try {
    return typed(object, codec.decode(object.value, object.key));
  } catch (error) {
    failures.add(1, { resource });
    return new DecodeFailure(object, error);
  }
}

/** The object with its value, decoded already. */
export function typed<T>(object: StoredObject, value: T): TypedObject<T> {
  const { key, createRevision, modRevision, version, lease } = object;
  return { key, value, createRevision, modRevision, version, lease };
}

/** A change of one object. Where nothing else could be decoded, of a DELETED one the key is all there is. */
export type TypedEvent<T> =
  | {
      readonly type: "ADDED" | "MODIFIED";
      readonly key: string;
      readonly revision: number;
      readonly object: TypedObject<T>;
      /** As it stood just before, with `includePrevious`, if that can be decoded. */
      readonly previous: TypedObject<T> | undefined;
    }
  | {
      readonly type: "DELETED";
      readonly key: string;
      readonly revision: number;
      /** As it last was. */
      readonly object: TypedObject<T> | undefined;
      readonly previous: TypedObject<T> | undefined;
    };

/** Changes that belong together, and the resume point that they lead to. */
export interface TypedBatch<T> {
  /** Everything the watch asks for, up to and including this revision, has been delivered. */
  readonly revision: number;
  /**
   * In the order of their revisions; the initial state in key order. Empty in a bookmark. An object may be
   * MODIFIED without having been ADDED, if its first value was undecodable.
   */
  readonly events: readonly TypedEvent<T>[];
  /** The objects that were added or modified to what can't be decoded. Who keeps state keeps the old ones. */
  readonly undecodable: readonly DecodeFailure[];
  /** Whether these events are the initial state. */
  readonly initial: boolean;
  readonly historyId: string;
}
