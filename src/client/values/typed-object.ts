import { messageOf } from "../../base/errors.ts";
import type { StoredObject } from "../../model/object.ts";
import { counter } from "../calls/call-telemetry.ts";
import type { ValueCodec } from "./value-codec.ts";

/** An object with its decoded value. Immutable: it is shared by all readers. */
export interface TypedObject<T> {
  /** Unique within the resource. */
  readonly key: string;
  /** Must not be modified. */
  readonly value: T;
  /** The revision that created it. */
  readonly createRevision: number;
  /** The revision that last changed it; for a deleted object, the revision of the deletion. */
  readonly modRevision: number;
  /** Number of writes since it was created, from 1. */
  readonly version: number;
  /** The lease that it is attached to; 0n if none. */
  readonly lease: bigint;
}

/**
 * An object whose value can't be decoded. The object exists: a consumer that keeps state keeps the last value that
 * could be decoded, if any. `cause` is what the codec threw.
 */
export class DecodeFailure extends Error {
  override readonly name = "DecodeFailure";
  /** The object with its encoded value. */
  readonly object: StoredObject;

  constructor(object: StoredObject, cause: unknown) {
    super(
      `The value of ${JSON.stringify(object.key)} at revision ${object.modRevision} can't be decoded: ${messageOf(cause)}`,
      { cause },
    );
    this.object = object;
  }

  /** The key of the object. */
  get key(): string {
    return this.object.key;
  }

  /** The revision of the value that can't be decoded. */
  get modRevision(): number {
    return this.object.modRevision;
  }
}

const failures = counter("watch_fanout_client_undecodable_values", {
  description: "Values that the client's codec could not decode.",
  unit: "{value}",
});

/**
 * Decodes the value of an object. Returns a DecodeFailure if the codec throws, and counts it in a metric for
 * `resource`. Never throws.
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

/** The object with a value that is already decoded. */
export function typed<T>(object: StoredObject, value: T): TypedObject<T> {
  const { key, createRevision, modRevision, version, lease } = object;
  return { key, value, createRevision, modRevision, version, lease };
}

/**
 * A change of one object. A DELETED event is delivered even if no state of the object can be decoded; then only its
 * key is known.
 */
export type TypedEvent<T> =
  | {
      /** ADDED: it came into view of the watch. MODIFIED: it was in view and still is. */
      readonly type: "ADDED" | "MODIFIED";
      /** The key of the object. */
      readonly key: string;
      /** The revision of the change. */
      readonly revision: number;
      /** The state after the change. */
      readonly object: TypedObject<T>;
      /** The state before the change, with `includePrevious`; undefined if it can't be decoded. */
      readonly previous: TypedObject<T> | undefined;
    }
  | {
      /** It was deleted, or went out of view of the watch. */
      readonly type: "DELETED";
      /** The key of the object. */
      readonly key: string;
      /** The revision of the change. */
      readonly revision: number;
      /** The last known state; undefined if it can't be decoded. */
      readonly object: TypedObject<T> | undefined;
      /** The state before the change, with `includePrevious`; undefined if it can't be decoded. */
      readonly previous: TypedObject<T> | undefined;
    };

/** Changes that belong together, and the resume point after them. */
export interface TypedBatch<T> {
  /** Everything that the watch asks for has been delivered, up to and including this revision: the resume point. */
  readonly revision: number;
  /**
   * In revision order; an initial state is in key order. Empty in a bookmark. An object may be MODIFIED without
   * having been ADDED, if its first value could not be decoded.
   */
  readonly events: readonly TypedEvent<T>[];
  /** The objects whose new value can't be decoded. A consumer that keeps state keeps their last value. */
  readonly undecodable: readonly DecodeFailure[];
  /** Whether the events are the initial state. */
  readonly initial: boolean;
  /** The history that the revisions belong to; empty if the server does not know it. */
  readonly historyId: string;
}
