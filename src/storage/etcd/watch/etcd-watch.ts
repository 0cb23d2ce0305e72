import type { Timer } from "../../../base/clock.ts";
import {
  hasReason,
  historyChanged,
  revisionTooOld,
  upstreamUnavailable,
  WatchFanoutError,
} from "../../../base/errors.ts";
import type { TimeSlicedWork } from "../../../base/time-slices.ts";
import { WatchBatch, type WatchEvent } from "../../../model/event.ts";
import type { StoredObject } from "../../../model/object.ts";
import { Slabs, smallestSlab } from "../../../model/slabs.ts";
import type { WatchRequest, WatchStream } from "../../storage.ts";
import { storedObject } from "../client/decode.ts";
import { cancelError, isServiceError, isStaleToken, readError, says } from "../client/errors.ts";
import type { EtcdClient } from "../client/etcd-client.ts";
import type { KeyRange } from "../client/key-range.ts";
import type { Member } from "../client/member.ts";
import type { WatchCall } from "../client/messages.ts";
import type { DecodedEvent, DecodedKeyValue, DecodedWatch } from "../client/responses.ts";
import type { RevisionProbe } from "../client/revision-probe.ts";
import { CompactionGuard } from "./compaction-guard.ts";
import { decodeEvent, MissingPreviousError } from "./decode-event.ts";
import { FragmentAssembler } from "./fragment-assembler.ts";
import { ProgressRequester } from "./progress-requester.ts";

/** How long etcd may take to say that it has created a watch, in milliseconds. */
const createTimeoutMs = 5_000;

/** How often in a row etcd may leave out what objects were before, until that is a failure. */
const maxOmissions = 3;

/** How many past events are decoded in one step. */
const eventsPerStep = 32;

/** What grpc-js says of a message that is larger than it was told to take. */
const largerThanMax = "Received message larger than max";

/** etcd's watch id in answers to a manual progress request. */
const wholeStream = -1;

/** What a watch needs to know of the storage that it belongs to. */
export interface EtcdWatchSource {
  readonly client: EtcdClient;
  readonly probe: RevisionProbe;
  /** The range in etcd of the request's scope. */
  readonly range: KeyRange;
  /** How long the resource's prefix is, in bytes. */
  readonly prefixBytes: number;
  /** The relative key; undefined if nobody is to be told of it. */
  readonly keyOf: (kv: DecodedKeyValue) => string | undefined;
  /** How much of one revision is held until it is whole, in bytes. */
  readonly maxRevisionBytes: number | undefined;
  /** Called once, when the watch needs nothing of the storage any more. */
  readonly onEnd: (watch: EtcdWatch) => void;
}

/**
 * One watch of etcd, on a gRPC stream of its own: etcd answers a manual progress request only while
 * every watch of the stream has caught up.
 *
 * The resume point is the last whole revision that came, or progress that etcd told of. It is never
 * the revision in a header otherwise: that one is the store's, also while the watch is still behind.
 *
 * What breaks ends the stream. Whoever reads it knows how far it came, and watches anew.
 */
export class EtcdWatch implements WatchStream {
  readonly #source: EtcdWatchSource;
  readonly #request: WatchRequest;
  readonly #queue: CompactionGuard;
  readonly #slabs = new Slabs(smallestSlab);
  #assembler: FragmentAssembler;
  readonly #progress: ProgressRequester;
  readonly #stopping = new AbortController();
  /** Everything up to and including this revision has come. */
  #position = 0;
  #member: Member | undefined;
  #call: WatchCall | undefined;
  /** Counts the streams of etcd: what came of one before is not taken any more. */
  #attempt = 0;
  #creating: Timer | undefined;
  #isCreated = false;
  #isPaused = false;
  /** How often in a row etcd has left out what an object was before. */
  #omissions = 0;
  /** What comes up to this revision is history: etcd reads it from its store, which may be compacted. */
  #syncedRevision = Infinity;
  /** Whether the stream from etcd is over: what still comes from it does not count. */
  #isHungUp = false;
  /** Why it ends, once all that came before has been read. */
  #end: Error | null | undefined;
  #listener: () => void = () => {};
  /** Whether the listener is to be called when there is something to read. */
  #isWaiting = true;
  #isWaking = false;
  /** The position, if the watch of etcd starts there and not after it: its events are repeated and dropped. */
  #repeated: number | undefined;

  constructor(source: EtcdWatchSource, request: WatchRequest) {
    this.#source = source;
    this.#request = request;
    this.#assembler = new FragmentAssembler(source.maxRevisionBytes);
    const { clock } = source.client;
    this.#queue = new CompactionGuard({
      isAvailable: (revision) => source.probe.isAvailable(revision, this.#stopping.signal),
      onReadable: () => this.#wake(),
      onLost: (after) => {
        this.#endTooOld(after).catch((error: unknown) => this.#fail(error));
      },
      onError: (error) => this.#fail(error),
    });
    this.#progress = new ProgressRequester(
      clock,
      () => this.#call?.write({ progress_request: {} }),
      () => this.#fail(this.#silent("no longer answers on a watch")),
    );
  }

  /** Begins, unless it has been ended before. */
  start(): void {
    this.#open(this.#request.afterRevision).catch((error: unknown) => this.#fail(error));
  }

  get ended(): Error | null | undefined {
    return this.#queue.isEmpty ? this.#end : undefined;
  }

  read(): WatchBatch | undefined {
    const batch = this.#queue.shift();
    this.#isWaiting = batch === undefined && this.#end === undefined;
    if (this.#isPaused && this.#queue.isHalfEmpty) this.#resume();
    return batch;
  }

  onReadable(listener: () => void): void {
    this.#listener = listener;
  }

  close(): void {
    if (this.ended !== undefined) return;
    this.#queue.clear();
    this.#finish(null);
  }

  /** Ends at once with an error: what waits is dropped. Only the first end counts. */
  end(error: Error): void {
    if (this.ended !== undefined) return;
    this.#queue.clear();
    this.#finish(error);
  }

  requestProgress(): void {
    if (this.#end === undefined) this.#progress.request();
  }

  /** Finds a member, makes sure that the history is the one expected, and opens the stream there. */
  async #open(afterRevision: number | undefined): Promise<void> {
    if (this.#isHungUp) return;
    const { client, probe } = this.#source;
    const { signal } = this.#stopping;
    const { member, limits, current } = await client.onSomeMember(async (member, limits) => {
      // Above etcd's own revision a watch would wait in silence. The read also renews the token, which
      // a stream can't, and shows that this member is in touch with the others.
      return { member, limits, current: await probe.currentOn(member, limits) };
    }, signal);
    this.#member = member;
    if (afterRevision !== undefined && afterRevision > current) {
      throw historyChanged(afterRevision, current);
    }
    this.#position = afterRevision ?? current;
    // Nothing may follow for long, and progress is to be reported meanwhile.
    const isIdle = this.#position === current && member.reportsProgressFromStart;
    this.#repeated = isIdle ? current : undefined;
    const isPast = this.#request.upTo !== undefined;
    const call = await client.openWatch(member, limits, isPast);
    this.#call = call;
    this.#listen(call);
    if (this.#isHungUp) return call.cancel();
    call.write({
      create_request: {
        ...this.#source.range,
        start_revision: this.#repeated ?? this.#position + 1,
        progress_notify: true,
        prev_kv: this.#request.withPrevious,
        // To cut an answer, etcd adds up all events of the part so far for each event: the square of a large one.
        fragment: !isPast,
      },
    });
    this.#creating = client.clock.setTimeout(
      () => this.#fail(this.#silent("did not create a watch in time")),
      createTimeoutMs,
    );
  }

  #listen(call: WatchCall): void {
    const isOver = (): boolean => this.#isHungUp || this.#call !== call;
    call.on("error", (error: Error) => {
      if (!isOver()) this.#fail(this.#isTooLarge(error) ? answerTooLarge(this.#position) : error);
    });
    call.on("end", () => {
      if (!isOver()) this.#fail(this.#silent("ended a watch without a reason"));
    });
    call.on("data", (response: DecodedWatch) => {
      if (isOver()) return;
      try {
        this.#take(response);
      } catch (error) {
        this.#notTaken(error);
      }
    });
  }

  /** Whether an answer about the past was larger than is held of one, which is known before it has come. */
  #isTooLarge(error: Error): boolean {
    const isPast = this.#request.upTo !== undefined;
    return isPast && isServiceError(error) && says(error.details, largerThanMax);
  }

  #notTaken(error: unknown): void {
    if (error instanceof MissingPreviousError) {
      this.#reopen().catch((failure: unknown) => this.#fail(failure));
    } else {
      this.#fail(error);
    }
  }

  /** After a MissingPreviousError: if nothing of what follows the position is compacted, asks again for it. */
  async #reopen(): Promise<void> {
    this.#attempt++;
    this.#call?.cancel();
    this.#call = undefined;
    this.#isCreated = false;
    this.#progress.lost();
    this.#assembler = new FragmentAssembler(this.#source.maxRevisionBytes);
    if (this.#isPaused) this.#resume();
    if (++this.#omissions > maxOmissions) {
      throw this.#silent("keeps leaving out what objects were before, on a watch");
    }
    const isAvailable = await this.#source.probe.isAvailable(this.#position, this.#stopping.signal);
    if (isAvailable) await this.#open(this.#position);
    else await this.#endTooOld(this.#position);
  }

  #take(response: DecodedWatch): void {
    this.#progress.heard();
    if (response.canceled) {
      this.#cancelled(response);
    } else if (response.created) {
      this.#creating?.cancel();
      this.#isCreated = true;
      this.#syncedRevision = response.revision;
      this.#progress.ready();
    } else if (!this.#isCreated) {
      // Progress that overtook `created` may have overtaken events too, which etcd keeps for after it.
      return;
    } else if (this.#request.upTo !== undefined) {
      this.#takePast(response, this.#request.upTo);
    } else if (response.events.length > 0) {
      this.#takeEvents(response);
    } else {
      this.#takeProgress(response);
    }
  }

  #takeEvents({ events, fragment }: DecodedWatch): void {
    for (let i = 0; i < events.length; i++) this.#takeEvent(events.at(i));
    const whole = this.#assembler.endResponse(fragment);
    if (whole !== undefined) this.#deliver(whole.revision, whole.events);
  }

  #takeEvent(event: DecodedEvent | undefined): void {
    if (event === undefined) return;
    const revision = event.kv.modRevision;
    if (revision <= this.#position) {
      if (revision === this.#repeated) return;
      throw this.#silent(`sent revision ${revision} again, after ${this.#position}, on a watch`);
    }
    const key = this.#source.keyOf(event.kv);
    const decoded =
      key === undefined ? undefined : decodeEvent(event, key, this.#request, this.#stored);
    this.#assembler.add(revision, decoded);
  }

  /**
   * Takes what came of a part of the past, of which many watches read one each: in time slices, shared with those.
   * Before that the stream of etcd is ended if this is all: at its next pass etcd would read everything again.
   */
  #takePast(response: DecodedWatch, upTo: number): void {
    const last = response.events.at(-1)?.kv.modRevision ?? 0;
    const isAll = last > upTo || (last === upTo && !response.fragment);
    if (isAll) {
      this.#progress.stop();
      this.#call?.cancel();
      this.#call = undefined;
    }
    const attempt = this.#attempt;
    this.#source.client.timeSlices
      .run(this, this.#pastOrFailure(response, upTo, isAll, attempt))
      .catch((error: unknown) => {
        if (attempt === this.#attempt) this.#notTaken(error);
      });
  }

  /** What goes wrong counts at once: the next answer may be taken in the same slice, and must not be. */
  *#pastOrFailure(
    response: DecodedWatch,
    upTo: number,
    isAll: boolean,
    attempt: number,
  ): TimeSlicedWork<void> {
    try {
      yield* this.#pastOf(response, upTo, isAll, attempt);
    } catch (error) {
      this.#notTaken(error);
    }
  }

  *#pastOf(
    response: DecodedWatch,
    upTo: number,
    isAll: boolean,
    attempt: number,
  ): TimeSlicedWork<void> {
    const { events, fragment } = response;
    for (let i = 0; i < events.length; i++) {
      if (attempt !== this.#attempt || this.#end !== undefined) return;
      const event = events.at(i);
      if (event === undefined || event.kv.modRevision > upTo) break;
      this.#takeEvent(event);
      if (i % eventsPerStep === 0) yield;
    }
    if (attempt !== this.#attempt || this.#end !== undefined) return;
    if (events.length === 0) return this.#takeProgress(response);
    const whole = this.#assembler.endResponse(fragment && !isAll);
    if (isAll) this.#deliver(upTo, whole?.events ?? []);
    else if (whole !== undefined) this.#deliver(whole.revision, whole.events);
  }

  readonly #stored = (key: string, kv: DecodedKeyValue): StoredObject =>
    storedObject(key, kv, this.#source.prefixBytes, this.#slabs);

  /** Progress says that everything up to its revision has been sent. */
  #takeProgress({ revision, watchId }: DecodedWatch): void {
    if (!this.#assembler.isOpen && revision >= this.#position) this.#deliver(revision, []);
    if (watchId === wholeStream) this.#progress.answered();
  }

  #deliver(revision: number, events: readonly WatchEvent[]): void {
    const after = this.#position;
    this.#position = revision;
    this.#omissions = 0;
    // The first too where nothing seems to be missing: there may have been writes before it was created.
    const isHistory = after < this.#syncedRevision || after === this.#request.afterRevision;
    this.#queue.push(new WatchBatch(revision, events), after, isHistory);
    if (this.#queue.isFull) this.#pause();
  }

  #cancelled({ compactRevision, cancelReason }: DecodedWatch): void {
    if (compactRevision > 0) this.#finish(revisionTooOld(this.#position, compactRevision));
    else this.#fail(cancelError(cancelReason, this.#member?.endpoint ?? ""));
  }

  /** Ends with an error after what came before it has been read. */
  #fail(error: unknown): void {
    if (this.#isHungUp) return;
    const { client } = this.#source;
    // A token may have been what was wrong: the next watch gets another.
    if (isStaleToken(error)) client.forgetToken();
    const end = readError(error, this.#member?.endpoint ?? "");
    if (this.#member !== undefined && hasReason(end, "UPSTREAM_UNAVAILABLE")) {
      client.failed(this.#member);
    }
    this.#finish(end);
  }

  async #endTooOld(requested: number): Promise<void> {
    this.#hangUp();
    const tooOld = await this.#source.probe.tooOld(requested);
    if (this.#end === undefined) this.#finish(tooOld);
  }

  #silent(what: string): WatchFanoutError {
    const endpoint = this.#member?.endpoint ?? "";
    return upstreamUnavailable(
      `The etcd at ${endpoint} ${what}. Watch again from the last revision.`,
    );
  }

  #finish(end: Error | null): void {
    if (this.#end === undefined) this.#source.onEnd(this);
    this.#end = end;
    this.#queue.close();
    this.#hangUp();
    this.#wake();
  }

  #hangUp(): void {
    this.#isHungUp = true;
    this.#stopping.abort(upstreamUnavailable("The watch has ended."));
    this.#creating?.cancel();
    this.#progress.stop();
    this.#call?.cancel();
  }

  #pause(): void {
    if (this.#isPaused) return;
    this.#isPaused = true;
    this.#progress.pause();
    this.#call?.pause();
  }

  #resume(): void {
    this.#isPaused = false;
    this.#progress.resume();
    this.#call?.resume();
  }

  /** Never from within `read`, `close` or the listener. */
  #wake(): void {
    if (this.#isWaking) return;
    this.#isWaking = true;
    queueMicrotask(() => {
      this.#isWaking = false;
      if (!this.#isWaiting || (this.#queue.isEmpty && this.ended === undefined)) return;
      this.#isWaiting = false;
      this.#listener();
    });
  }
}

function answerTooLarge(after: number): WatchFanoutError {
  return new WatchFanoutError(
    "HISTORY_LOST",
    `What etcd answers at once of the time after revision ${after} is more than is held of one answer. Ask for less ` +
      "by beginning later.",
    { metadata: { current_revision: String(after) } },
  );
}
