import {
  hasReason,
  historyChanged,
  revisionTooOld,
  upstreamUnavailable,
} from "../../base/errors.ts";
import type { TimeSlicedWork } from "../../base/event-loop-turns.ts";
import {
  cancelError,
  isResponseTooLarge,
  isStaleToken,
  readError,
  responseTooLarge,
  revisionTooLarge,
} from "../../etcd/client/errors.ts";
import type { EtcdClient } from "../../etcd/client/etcd-client.ts";
import type { KeyRange } from "../../etcd/client/key-range.ts";
import { type DecodedEvent, type DecodedWatch, noWatchId } from "../../etcd/wire/watch-response.ts";
import { WholeRevisions } from "../../etcd/wire/whole-revisions.ts";
import { memoryOverheadBytes, WatchBatch, type WatchEvent } from "../../model/event.ts";
import { ReadableNotifier } from "../readable-notifier.ts";
import type { WatchRequest, WatchStream } from "../storage.ts";
import { CompactionGuard } from "./compaction-guard.ts";
import { EventDecoder, MissingPreviousError } from "./objects/decode.ts";
import type { ResourceKeys } from "./objects/resource-keys.ts";
import type { RangeReader } from "./range-reader.ts";
import { WatchConnection } from "./watch-connection.ts";

/** Maximum number of times in a row that etcd may leave out previous objects before the watch fails. */
const maxOmissions = 3;

/** Maximum number of responses about the past that are held while they are decoded; then no more are read from etcd. */
const maxUndecoded = 2;

/**
 * Number of events in a pass of etcd after which another may follow: it gives each watch the first 1,000 revisions with
 * events.
 */
const eventsOfPass = 1_000;

/** Past events that are decoded in one step of a time slice. */
const eventsPerStep = 32;

/** What a watch needs from the storage that it belongs to. */
interface EtcdWatchSource {
  readonly client: EtcdClient;
  readonly reader: RangeReader;
  readonly keys: ResourceKeys;
  /** Maximum size of one revision that is held until it is complete, in bytes. */
  readonly maxRevisionBytes: number;
  /** Whether etcd sends only deletions. Default false. */
  readonly onlyDeletions?: boolean | undefined;
  /** Called with the endpoint that a stream is opened to. */
  readonly onOpen: (endpoint: string) => void;
  /** Called once, when the watch no longer needs the storage. */
  readonly onEnd: (watch: EtcdWatch) => void;
}

/**
 * One watch of etcd, on a gRPC stream of its own: etcd responds to a manual progress request only while
 * every watch of the stream is synced.
 *
 * The resume point is the last complete revision that came, or the revision of a progress notification. The revision
 * in any other header is the store's, also while the watch is unsynced, so it is never the resume point.
 *
 * An error ends the stream. Its reader knows the resume point and opens another watch from there.
 */
export class EtcdWatch implements WatchStream {
  readonly #source: EtcdWatchSource;
  readonly #request: WatchRequest;
  readonly #range: KeyRange;
  readonly #connection: WatchConnection;
  readonly #decoder: EventDecoder;
  #revisions: WholeRevisions<WatchEvent>;
  readonly #queue: CompactionGuard;
  readonly #notifier: ReadableNotifier;
  readonly #stopping = new AbortController();
  /** Whether it reads the past alone, pass by pass. */
  readonly #isPaced: boolean;
  /** Number of events of the current pass, and what ends it. */
  #passEvents = 0;
  #endPass = (): void => {};
  /** Whether a pass is over, and what it gave has to be read before the next. */
  #isBetweenPasses = false;
  /** Everything up to and including this revision has come. */
  #position = 0;
  /** The position, if the stream starts at it instead of after it: its events are repeated, and dropped. */
  #repeated: number | undefined;
  /** Number of times in a row that etcd has left out a previous object. */
  #omissions = 0;
  /** When the first part of an incomplete revision arrived, in the clock's milliseconds. Undefined: all are complete. */
  #openSince: number | undefined;
  /** Number of responses that are being decoded. */
  #undecoded = 0;
  /** Events up to this revision come from etcd's store, which may be compacted. */
  #syncedRevision = Infinity;
  /** Why the stream ends, once everything before the end has been read. */
  #end: Error | null | undefined;

  constructor(source: EtcdWatchSource, request: WatchRequest) {
    const { client, reader, keys, maxRevisionBytes, onlyDeletions = false } = source;
    const range = keys.rangeOf(request.scope);
    const isPart = request.concurrent !== undefined;
    this.#isPaced = request.upTo !== undefined && !isPart && !onlyDeletions;
    this.#source = source;
    this.#request = request;
    this.#range = range;
    this.#decoder = new EventDecoder(request, keys);
    this.#revisions = new WholeRevisions(maxRevisionBytes, revisionTooLarge);
    this.#notifier = new ReadableNotifier(() => !this.#queue.isEmpty || this.ended !== undefined);
    this.#queue = new CompactionGuard(
      {
        isAvailable: (revision) => reader.isAvailable(revision, this.#stopping.signal),
        onReadable: () => this.#notifier.notify(),
        onLost: (after) => {
          this.#endTooOld(after).catch((error: unknown) => this.#fail(error));
        },
        onError: (error) => this.#fail(error),
      },
      request.maxHeldBytes,
    );
    this.#connection = new WatchConnection({
      ...{ client, range, withPrevious: request.withPrevious, onlyDeletions },
      past: request.upTo === undefined ? undefined : (request.concurrent ?? 1),
      fragment: !isPart,
      onCreated: (revision) => {
        this.#syncedRevision = revision;
      },
      onResponse: (response) => this.#receive(response),
      onError: (error) => {
        const isTooLarge = request.upTo !== undefined && isResponseTooLarge(error);
        this.#fail(isTooLarge ? responseTooLarge(this.#position) : error);
      },
    });
  }

  /** Opens the stream to etcd, unless the watch has been ended before. */
  start(): void {
    this.#open(this.#request.afterRevision).catch((error: unknown) => this.#fail(error));
  }

  get ended(): Error | null | undefined {
    return this.#queue.isEmpty ? this.#end : undefined;
  }

  read(): WatchBatch | undefined {
    const batch = this.#queue.shift();
    this.#notifier.isWaiting = batch === undefined && this.#end === undefined;
    this.#resume();
    return batch;
  }

  onReadable(listener: () => void): void {
    this.#notifier.listener = listener;
  }

  close(): void {
    this.end(null);
  }

  /** Ends at once and drops the unread batches. Only the first end counts. */
  end(why: Error | null): void {
    if (this.ended !== undefined) return;
    this.#queue.clear();
    this.#finish(why);
  }

  requestProgress(): void {
    if (this.#end === undefined) this.#connection.requestProgress();
  }

  /** Finds a member, checks that the history is the expected one, and opens the stream there. */
  async #open(afterRevision: number | undefined): Promise<void> {
    if (this.#connection.isClosed) return;
    const { client, reader } = this.#source;
    const { signal } = this.#stopping;
    if (this.#isPaced) await client.passPacing.turn(signal);
    const { member, limits, current } = await client.onSomeMember(
      async (member, limits) => {
        // Above etcd's own revision a watch would wait in silence. The read also renews the token, which a stream can't
        // do, and shows that this member is connected to the others.
        return { member, limits, current: await reader.currentOn(member, limits) };
      },
      signal,
      this.#range,
    );
    this.#connection.member = member;
    this.#source.onOpen(member.endpoint);
    if (afterRevision !== undefined && afterRevision > current) {
      throw historyChanged(afterRevision, current);
    }
    this.#position = afterRevision ?? current;
    this.#passEvents = 0;
    if (this.#isPaced) this.#endPass = client.passPacing.begin(current - this.#position);
    // An idle store may send nothing for long, and this member would report no progress from the next revision.
    const isIdle = this.#position === current && member.withholdsProgressBeforeStart;
    this.#repeated = isIdle ? current : undefined;
    await this.#connection.open(member, limits, this.#repeated ?? this.#position + 1);
  }

  /** After a MissingPreviousError: watches again from the position, if nothing after it is compacted. */
  async #reopen(): Promise<void> {
    this.#connection.reset();
    this.#openSince = undefined;
    this.#revisions = new WholeRevisions(this.#source.maxRevisionBytes, revisionTooLarge);
    if (++this.#omissions > maxOmissions) {
      throw this.#connection.failure("keeps leaving out previous objects on a watch");
    }
    const isAvailable = await this.#source.reader.isAvailable(
      this.#position,
      this.#stopping.signal,
    );
    if (isAvailable) await this.#open(this.#position);
    else await this.#endTooOld(this.#position);
  }

  #receive(response: DecodedWatch): void {
    try {
      if (response.canceled) this.#cancelled(response);
      else if (this.#request.upTo !== undefined) this.#takePast(response, this.#request.upTo);
      else if (response.events.length > 0) this.#takeEvents(response);
      else this.#takeProgress(response);
    } catch (error) {
      this.#notTaken(error);
    }
  }

  #notTaken(error: unknown): void {
    if (error instanceof MissingPreviousError) {
      this.#reopen().catch((failure: unknown) => this.#fail(failure));
    } else {
      this.#fail(error);
    }
  }

  #takeEvents({ events, fragment, revision }: DecodedWatch): void {
    const now = this.#source.client.clock.now();
    // A watch that etcd could not keep synced reads from its store again: only then its revision is above that of an event.
    const first = events.at(0)?.kv.modRevision ?? revision;
    if (first < revision && revision > this.#syncedRevision) this.#syncedRevision = revision;
    const arrivedAt = this.#openSince ?? now;
    for (let i = 0; i < events.length; i++) this.#takeEvent(events.at(i));
    const whole = this.#revisions.endResponse(fragment);
    // What is incomplete after a complete revision is part of the next one, which began with this response.
    const openSince = whole === undefined ? arrivedAt : now;
    this.#openSince = this.#revisions.isOpen ? openSince : undefined;
    if (whole !== undefined) this.#deliver(whole.revision, whole.events, arrivedAt);
  }

  #takeEvent(event: DecodedEvent | undefined): void {
    if (event === undefined) return;
    const revision = event.kv.modRevision;
    if (revision <= this.#position) {
      if (revision === this.#repeated && revision === this.#position) return;
      const what = `sent revision ${revision} again, after ${this.#position}, on a watch`;
      throw this.#connection.failure(what);
    }
    const decoded = this.#decoder.decode(event);
    const bytes = decoded === undefined ? 0 : decoded.estimatedBytes + memoryOverheadBytes;
    this.#revisions.add(revision, decoded, bytes);
  }

  /**
   * Decodes a response of past events in time slices, which the watches of all parts of the past share. If it is the
   * last one, the stream is ended before that: at its next pass etcd would read everything again. If it is the last one of a
   * pass, too: the next pass is that of another stream, behind a pause.
   */
  #takePast(response: DecodedWatch, upTo: number): void {
    const { events, fragment } = response;
    const last = events.at(-1)?.kv.modRevision ?? 0;
    const isAll = last > upTo || (last === upTo && !fragment);
    this.#endPass();
    this.#passEvents += events.length;
    const isPass = this.#isPaced && !isAll && !fragment && this.#passEvents >= eventsOfPass;
    if (isAll || isPass) this.#connection.complete();
    const { attempt } = this.#connection;
    this.#undecoded++;
    if (this.#undecoded >= maxUndecoded) this.#connection.pause();
    this.#source.client.timeSlices
      .run(this, this.#pastOf(response, upTo, isAll, attempt))
      .catch((error: unknown) => {
        if (attempt === this.#connection.attempt) this.#notTaken(error);
      })
      .finally(() => {
        this.#undecoded--;
        this.#isBetweenPasses ||= isPass && !this.#isOver(attempt);
        this.#resume();
      });
  }

  #resume(): void {
    if (this.#isBetweenPasses && this.#queue.isHalfEmpty) {
      this.#isBetweenPasses = false;
      this.#connection.reset();
      this.#open(this.#position).catch((error: unknown) => this.#fail(error));
    }
    if (!this.#connection.isPaused || this.#undecoded >= maxUndecoded) return;
    if (this.#queue.isHalfEmpty) this.#connection.resume();
  }

  /** An error takes effect at once: the next response may be taken in the same slice, and must not be. */
  *#pastOf(
    response: DecodedWatch,
    upTo: number,
    isAll: boolean,
    attempt: number,
  ): TimeSlicedWork<void> {
    const { events, fragment } = response;
    try {
      for (let i = 0; i < events.length; i++) {
        if (this.#isOver(attempt)) return;
        const event = events.at(i);
        if (event === undefined || event.kv.modRevision > upTo) break;
        this.#takeEvent(event);
        if (i % eventsPerStep === 0) yield;
      }
      if (this.#isOver(attempt)) return;
      if (events.length === 0) return this.#takeProgress(response);
      const whole = this.#revisions.endResponse(fragment && !isAll);
      if (isAll) this.#deliver(upTo, whole?.events ?? []);
      else if (whole !== undefined) this.#deliver(whole.revision, whole.events);
    } catch (error) {
      this.#notTaken(error);
    }
  }

  #isOver(attempt: number): boolean {
    return attempt !== this.#connection.attempt || this.#end !== undefined;
  }

  /** A progress notification says that everything up to its revision has been sent. */
  #takeProgress({ revision, watchId }: DecodedWatch): void {
    if (!this.#revisions.isOpen && revision >= this.#position) this.#deliver(revision, []);
    if (watchId === noWatchId) this.#connection.progressReceived();
  }

  #deliver(revision: number, events: readonly WatchEvent[], arrivedAt?: number): void {
    const after = this.#position;
    this.#position = revision;
    this.#omissions = 0;
    // The first batch, too, even if nothing seems to be missing: there may have been writes before the watch was created.
    const isHistorical = after < this.#syncedRevision || after === this.#request.afterRevision;
    const batch = new WatchBatch(revision, events).arrived(arrivedAt);
    this.#queue.push(batch, after, isHistorical);
    if (this.#queue.isFull) this.#connection.pause();
  }

  #cancelled({ compactRevision, cancelReason }: DecodedWatch): void {
    if (compactRevision > 0) this.#finish(revisionTooOld(this.#position, compactRevision));
    else
      this.#fail(cancelError(cancelReason, this.#connection.member?.endpoint ?? "", this.#range));
  }

  /** Ends with an error once everything before it has been read. */
  #fail(error: unknown): void {
    if (this.#connection.isClosed) return;
    const { client } = this.#source;
    const { member } = this.#connection;
    // The token may have been the cause: the next watch gets another.
    if (isStaleToken(error)) client.forgetToken();
    const end = readError(error, member?.endpoint ?? "", this.#range);
    if (member !== undefined && hasReason(end, "UPSTREAM_UNAVAILABLE")) client.failed(member);
    this.#finish(end);
  }

  async #endTooOld(requested: number): Promise<void> {
    this.#hangUp();
    const tooOld = await this.#source.reader.tooOld(requested);
    if (this.#end === undefined) this.#finish(tooOld);
  }

  #finish(end: Error | null): void {
    if (this.#end === undefined) this.#source.onEnd(this);
    this.#end = end;
    this.#queue.close();
    this.#hangUp();
    this.#notifier.notify();
  }

  #hangUp(): void {
    this.#endPass();
    this.#connection.close();
    this.#stopping.abort(upstreamUnavailable("The watch has ended."));
  }
}
