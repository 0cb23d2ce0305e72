import { revisionTooOld, toError } from "../../base/errors.ts";
import { WatchBatch, WatchEvent } from "../../model/event.ts";
import type { KeptChanges } from "../journal/journal.ts";
import { includesKey, type WatchRequest, type WatchScope, type WatchStream } from "../storage.ts";
import type { JournalReads } from "./journal-reads.ts";
import type { ResourceKeys } from "./resource-keys.ts";
import type { TransactionLog } from "./transaction-log.ts";

/**
 * Bounds of a batch, which ends after the revision that reaches one of them. There may be thousands of streams that hold one
 * each, as their clients do not read.
 */
const maxBatchEvents = 1000;
const maxBatchBytes = 256 * 1024;

/**
 * Maximum number of events that one `read` looks at before it returns a bookmark, so as not to block the event loop.
 */
const maxExamined = 10_000;

/**
 * A watch of the embedded store: a position in its history.
 *
 * Nothing is queued for a slow reader: it reads from the history that the store keeps anyway. A stream holds at most one
 * batch of its own. What has left memory is read from the journal, in chunks: a `read` begins that, returns undefined, and
 * the listener is called once it is there. When the history is compacted past the position, the stream ends with an error.
 */
export class MemoryWatch implements WatchStream {
  readonly #log: TransactionLog;
  readonly #keys: ResourceKeys;
  readonly #matches: (key: string) => boolean;
  readonly #withPrevious: boolean;
  readonly #wake: () => void;
  /** Where the history is that is not in memory; undefined: nowhere. */
  readonly #past: JournalReads | undefined;
  /** Ends the read of a chunk that is on its way. */
  #reading: AbortController | undefined;
  /** The next changes, from the journal, the first one last. Empty: nothing was read. */
  #chunk: KeptChanges[] = [];
  /** Everything up to this revision has been read from the history. */
  #position: number;
  /** The reader is waiting for a batch with at least this revision, with or without events; 0: it is not. */
  #requestedRevision = 0;
  /** The batch that was found when checking whether to call the listener. */
  #next: WatchBatch | undefined;
  #ended: Error | null | undefined;
  #listener: () => void = () => {};
  /** Whether the last read returned nothing, so that the listener must be called. */
  #isWaiting = true;

  /** `wake` makes the store call `notify` soon, in a later turn. */
  constructor(
    request: WatchRequest,
    log: TransactionLog,
    keys: ResourceKeys,
    past: JournalReads | undefined,
    wake: () => void,
  ) {
    this.#log = log;
    this.#past = past;
    this.#keys = keys;
    this.#matches = matcher(keys.wholeScope(request.scope), keys);
    this.#withPrevious = request.withPrevious;
    this.#wake = wake;
    // Nothing was written at the first revision.
    this.#position = Math.max(1, request.afterRevision ?? log.kept);
  }

  get ended(): Error | null | undefined {
    return this.#ended;
  }

  /** Whether its next changes are in the journal and were not read. */
  get isBehind(): boolean {
    if (this.#ended !== undefined || this.#next !== undefined || this.#chunk.length > 0)
      return false;
    return this.#reading === undefined && this.#position < this.#log.oldest;
  }

  /** Whether it has read more from the journal than it has returned, or is reading. */
  get holdsPast(): boolean {
    return this.#reading !== undefined || this.#chunk.length > 0;
  }

  read(): WatchBatch | undefined {
    if (this.isBehind) this.#readPast();
    const batch = this.#next ?? this.#take();
    this.#next = undefined;
    this.#isWaiting = batch === undefined && this.#ended === undefined;
    return batch;
  }

  onReadable(listener: () => void): void {
    this.#listener = listener;
  }

  close(): void {
    this.end(null);
  }

  /** Drops the unread batch. Only the first end counts. */
  end(reason: Error | null): void {
    if (this.#ended !== undefined) return;
    this.#ended = reason;
    this.#next = undefined;
    this.#chunk = [];
    this.#reading?.abort();
    this.#wake();
  }

  /** Makes the stream deliver a batch at the current revision or later, with or without events. */
  requestProgress(): void {
    this.#requestedRevision = this.#log.kept;
    this.#wake();
  }

  /** Calls the listener if the reader waits and there is something to read, or the end. */
  notify(): void {
    if (!this.#isWaiting) return;
    const { isBehind } = this;
    if (!isBehind) this.#next ??= this.#take();
    if (!isBehind && this.#next === undefined && this.#ended === undefined) return;
    this.#isWaiting = false;
    this.#listener();
  }

  /** Continues from the position to the next batch, to the newest revision, or to the end. */
  #take(): WatchBatch | undefined {
    if (this.#ended !== undefined) return undefined;
    if (this.#chunk.length === 0 && this.#position < this.#log.oldest) return undefined;
    const from = this.#position;
    const events: WatchEvent[] = [];
    let bytes = 0;
    let examined = 0;
    while (events.length < maxBatchEvents && bytes < maxBatchBytes && examined < maxExamined) {
      const changes = this.#nextChanges();
      if (changes === undefined) break;
      this.#position = changes.revision;
      examined += 1 + changes.events.length;
      for (const event of changes.events) {
        const seen = this.#see(event);
        if (seen === undefined) continue;
        events.push(seen);
        bytes += seen.estimatedBytes;
      }
    }
    const owes = this.#requestedRevision > 0 && this.#position >= this.#requestedRevision;
    const isNew = this.#position > from && this.#position !== this.#log.kept;
    if (events.length === 0 && !owes && !isNew) return undefined;
    if (owes) this.#requestedRevision = 0;
    return new WatchBatch(this.#position, events);
  }

  /** The changes after the position, if these are in memory. */
  #nextChanges(): KeptChanges | undefined {
    const next = this.#chunk.pop();
    if (next !== undefined) return next;
    return this.#position < this.#log.kept ? this.#log.at(this.#position + 1) : undefined;
  }

  /** Reads a chunk from the journal, and lets the reader know of it. */
  #readPast(): void {
    const { oldest } = this.#log;
    if (this.#past === undefined) {
      this.end(revisionTooOld(this.#position, oldest));
      return;
    }
    const reading = new AbortController();
    this.#reading = reading;
    this.#past
      .changesAfter(this.#position, oldest, this, reading.signal)
      .then(
        (chunk) => {
          if (this.#ended !== undefined) return;
          if (chunk.length === 0) this.end(revisionTooOld(this.#position, this.#past?.oldest));
          this.#chunk = chunk.toReversed();
          // The reader waits for it, also if nothing of it is for the reader.
          this.#requestedRevision = Math.max(1, this.#requestedRevision);
        },
        (error: unknown) => this.end(toError(error)),
      )
      .finally(() => {
        this.#reading = undefined;
        this.#wake();
      });
  }

  /** The event as the reader asked for it; undefined if it did not ask for this one. */
  #see(event: WatchEvent): WatchEvent | undefined {
    if (!this.#matches(event.object.key)) return undefined;
    const previous = this.#withPrevious ? event.previous : undefined;
    return new WatchEvent(
      event.type,
      this.#keys.shown(event.object),
      previous && this.#keys.shown(previous),
    );
  }
}

/** Whether a whole key is of the resource and in the scope, which is of whole keys as well. */
function matcher(scope: WatchScope, keys: ResourceKeys): (key: string) => boolean {
  const isAll = "prefix" in scope && scope.prefix === keys.prefix;
  return isAll ? (key) => keys.has(key) : (key) => includesKey(scope, key) && keys.has(key);
}
