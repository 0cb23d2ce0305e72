import { memoryBytes, type StoredObject } from "./object.ts";

export type EventType = "ADDED" | "MODIFIED" | "DELETED";

/** What an event, or an object, takes in memory beside what its weight counts, in bytes, as measured. */
export const memoryOverheadBytes = 192;

/** One change of one object. Immutable and shared by everyone who is told of it. */
export class WatchEvent {
  readonly type: EventType;
  /** The object after the change. DELETED: as it last was, with the revision that removed it. */
  readonly object: StoredObject;
  /** The object just before. Undefined where there was none, or the reader did not ask. */
  readonly previous: StoredObject | undefined;
  /** What it takes in memory, in bytes, with the attributes that its objects had when it was made. */
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
 * What a watch delivers: changes, a new resume point, or both.
 *
 * Events are in the order of their revisions, and a revision is never split between batches that have
 * a resume point. Immutable and shared: all watchers of one group get the same batch.
 */
export class WatchBatch {
  /**
   * The resume point: everything asked for up to and including this revision has been delivered.
   * Undefined while a unit is open, that is until an initial state or a fold is complete. A batch with
   * a revision and no events is a bookmark.
   */
  readonly revision: number | undefined;
  readonly events: readonly WatchEvent[];
  /** Whether this batch completes the initial state. */
  readonly initialEventsEnd: boolean;
  /**
   * Whether all of it is of one unit, which it closes if it has a revision. Nobody may then stop between
   * two of its revisions: initial states and folds leave out what was before them.
   */
  readonly isAtomic: boolean;
  /** The sum of the events' weights, in bytes. */
  readonly estimatedBytes: number;
  /** Its encoded frames, kept here by whoever encodes it first. Not part of what it is. */
  frames: readonly Uint8Array[] | undefined;

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
  }
}
