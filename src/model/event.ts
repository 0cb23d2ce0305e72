import { memoryBytes, type StoredObject } from "./object.ts";

export type EventType = "ADDED" | "MODIFIED" | "DELETED";

/** Memory that an event or an object takes beyond its estimated bytes, in bytes, as measured. */
export const memoryOverheadBytes = 192;

/** One change of one object. Immutable, and shared by all readers. */
export class WatchEvent {
  readonly type: EventType;
  /** The object after the change. DELETED: its last content, if the storage knows it, at the revision of the event. */
  readonly object: StoredObject;
  /** The object before the change. Undefined if the object did not exist, or the reader did not ask for it. */
  readonly previous: StoredObject | undefined;
  /** Estimated memory in bytes, with the attributes that its objects had when the event was made. */
  readonly estimatedBytes: number;

  constructor(type: EventType, object: StoredObject, previous: StoredObject | undefined) {
    this.type = type;
    this.object = object;
    this.previous = previous;
    this.estimatedBytes =
      memoryBytes(object) + (previous === undefined ? 0 : memoryBytes(previous));
  }

  /** The revision of the change. */
  get revision(): number {
    return this.object.modRevision;
  }
}

/**
 * What a watch delivers: events, a new resume point, or both.
 *
 * Events are in the order of their revisions. A revision is never split between batches that have a resume point.
 * Immutable and shared: all watchers with the same filter get the same batch.
 */
export class WatchBatch {
  /**
   * The resume point: everything asked for up to and including this revision has been delivered. Undefined while an
   * atomic batch is open, that is before the last part of an initial state or a coalesced backlog. A batch with a
   * revision and no events is a bookmark.
   */
  readonly revision: number | undefined;
  readonly events: readonly WatchEvent[];
  /** Whether this batch completes the initial state. */
  readonly initialEventsEnd: boolean;
  /**
   * Whether all events belong to one atomic batch, which a batch with a revision completes. A reader must not resume
   * from between two of its revisions: initial states and coalesced backlogs leave out older events.
   */
  readonly isAtomic: boolean;
  /** Sum of the events' estimated bytes. */
  readonly estimatedBytes: number;
  /** The encoded frames, cached by their first encoder. Not part of the batch's identity. */
  frames: readonly Uint8Array[] | undefined;
  /**
   * The frames in the wire format of etcd's own API, by the options of its watches, cached by their first encoder. Not part
   * of the batch's identity.
   */
  etcdFrames: (readonly Uint8Array[] | undefined)[] | undefined;
  #arrivedAt: number | undefined;

  constructor(
    revision: number | undefined,
    events: readonly WatchEvent[],
    initialEventsEnd: boolean = false,
    isAtomic: boolean = initialEventsEnd || revision === undefined,
  ) {
    this.revision = revision;
    this.events = events;
    this.initialEventsEnd = initialEventsEnd;
    this.isAtomic = isAtomic;
    let estimatedBytes = 0;
    for (const event of events) estimatedBytes += event.estimatedBytes;
    this.estimatedBytes = estimatedBytes;
    this.frames = undefined;
    this.etcdFrames = undefined;
    this.#arrivedAt = undefined;
  }

  /**
   * When the oldest of its events arrived from the store, in the milliseconds of the clock; undefined: not known, or it is
   * part of a state. Not part of the batch's identity.
   */
  get arrivedAt(): number | undefined {
    return this.#arrivedAt;
  }

  /** Sets `arrivedAt`, before the batch is shared. */
  arrived(at: number | undefined): this {
    this.#arrivedAt = at;
    return this;
  }
}
