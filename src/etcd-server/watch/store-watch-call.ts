import { status } from "@grpc/grpc-js";
import type { Timer } from "../../base/clock.ts";
import { dropOldest } from "../../base/drop-oldest.ts";
import { EventLoopTurns, type TurnWorker } from "../../base/event-loop-turns.ts";
import { Fifo } from "../../base/fifo.ts";
import { compacted, duplicateWatch, tooMany } from "../../etcd/wire/error-texts.ts";
import {
  type CreateRequest,
  readWatchRequest,
  type WatchStreamRequest,
} from "../../etcd/wire/watch-request.ts";
import { type Answer, encodeAnswer, noWatchId } from "../../etcd/wire/watch-response.ts";
import { WireFault } from "../../protobuf/message-cursor.ts";
import type { FrameParts } from "../../wire/encode.ts";
import { isEmpty, keysOf } from "../kv/key-interval.ts";
import { EtcdError, toEtcdError } from "../protocol/errors.ts";
import type { CallHandler, InProcessCall } from "../protocol/in-process-call.ts";
import type { ServedStore } from "../protocol/served-store.ts";
import { checkWireTypes } from "../protocol/wire-types.ts";
import { StoreWatch } from "./store-watch.ts";

/** Maximum number of watches of a stream. */
const maxWatches = 20_000;

/** Maximum number of ids of watches that a compaction has ended; the oldest are free beyond. */
const maxCompacted = 1_000;

/** Number of answers that wait above which no more requests are read. */
const maxAnswers = 64;

/** Number of answers and batches that are sent at once. */
const maxSteps = 32;

/**
 * A call of etcd's Watch: one stream with many watches. Answers come in the order of their requests, then one batch of each
 * watch in turn, as fast as the caller reads them. The next changes of a watch are read from the journal only when there is
 * room for them, for one watch at a time, so that a caller that does not read holds one chunk.
 */
export class StoreWatchCall implements CallHandler, TurnWorker {
  readonly #call: InProcessCall;
  readonly #served: ServedStore;
  /** Interval of the progress notifications of idle watches, in milliseconds. */
  readonly #progressIntervalMs: number;
  readonly #watches = new Map<bigint, StoreWatch>();
  /** The ids of watches that a compaction has ended. As in etcd they are in use until they are cancelled. */
  readonly #compacted = new Set<bigint>();
  readonly #answers = new Fifo<Buffer>();
  readonly #ready = new Fifo<StoreWatch>();
  /** The watch that reads from the journal, and those that wait for it. */
  #reader: StoreWatch | undefined;
  readonly #readers = new Fifo<StoreWatch>();
  #nextId = 0n;
  #hasRoom = true;
  #isSending = false;
  #isPaused = false;
  #isOver = false;
  /** Number of watches that the answer to a progress request waits for. */
  #awaited = 0;
  /** The revision up to which these have to have read, and whether the client has asked again. */
  #progressRevision = 0;
  #isAskedAgain = false;
  #nextRound: Timer | undefined;

  constructor(call: InProcessCall, served: ServedStore, progressIntervalMs: number) {
    this.#call = call;
    this.#served = served;
    this.#progressIntervalMs = progressIntervalMs;
  }

  /** Serves the call until it ends. A client that half-closes it keeps its watches. */
  start(): void {
    // Clients wait for the headers of a stream before its first response.
    this.#call.sendHeaders();
    this.#call.serve(this);
  }

  closed(): void {
    this.#isOver = true;
    this.#nextRound?.cancel();
    for (const watch of this.#watches.values()) watch.close();
    this.#watches.clear();
  }

  onRoom(): void {
    this.#hasRoom = true;
    this.#send(false);
  }

  take(message: Buffer): void {
    try {
      checkWireTypes("WatchRequest", message);
      this.#perform(readWatchRequest(message));
    } catch (error) {
      if (!(error instanceof WireFault)) throw error;
      const details = `grpc: failed to unmarshal the received message: ${error.message}`;
      this.#end(new EtcdError(status.INTERNAL, details));
    }
    if (this.#answers.length < maxAnswers) return;
    this.#isPaused = true;
    this.#call.pauseRequests();
  }

  #end({ code, message }: EtcdError): void {
    this.#call.finish(code, message);
  }

  #perform(request: WatchStreamRequest): void {
    if (request.kind === "create") this.#create(request);
    else if (request.kind === "cancel") this.#cancel(request.watchId);
    else if (request.kind === "progress") this.#requestProgress();
  }

  #create(request: CreateRequest): void {
    const keys = keysOf(request.key, request.rangeEnd);
    const cancelReason = this.#reasonToRefuse(request, !("key" in keys) && isEmpty(keys));
    if (cancelReason !== undefined) {
      const watchId = BigInt(noWatchId);
      this.#answer({ watchId, created: true, canceled: true, cancelReason });
      return;
    }
    const id = request.watchId === 0n ? this.#freeId() : request.watchId;
    const watch = new StoreWatch(id, request, keys, this.#served, (each) => this.#onReadable(each));
    this.#watches.set(id, watch);
    this.#answer({ watchId: id, created: true });
    // First, as it may end at once.
    if (this.#awaited > 0) this.#await(watch);
    if (watch.compactedAt !== undefined) this.#onReadable(watch);
    // The caller may have ended the call at the answer.
    if (request.progressNotify && !this.#isOver) this.#nextRound ??= this.#planRound();
  }

  /** Why etcd refuses a watch; undefined: it does not. */
  #reasonToRefuse(request: CreateRequest, isEmptyRange: boolean): string | undefined {
    if (request.startRevision < 0) return compacted;
    if (isEmptyRange) return emptyRange;
    if (this.#watches.size >= maxWatches) return tooMany;
    const { watchId } = request;
    return watchId !== 0n && this.#isTaken(watchId) ? duplicateWatch : undefined;
  }

  #isTaken(id: bigint): boolean {
    return this.#watches.has(id) || this.#compacted.has(id);
  }

  /** The id of the next watch whose client does not choose one. */
  #freeId(): bigint {
    while (this.#isTaken(this.#nextId)) this.#nextId++;
    return this.#nextId++;
  }

  /** Cancels a watch. An unknown id has no answer. */
  #cancel(id: bigint): void {
    const watch = this.#watches.get(id);
    if (watch !== undefined) this.#forget(watch);
    else if (!this.#compacted.delete(id)) return;
    this.#answer({ watchId: id, canceled: true });
  }

  #forget(watch: StoreWatch): void {
    this.#watches.delete(watch.id);
    watch.close();
    if (this.#reader === watch) this.#nextReader();
    this.#reached(watch);
  }

  /** As etcd, without an answer if a watch begins later. */
  #requestProgress(): void {
    if (this.#awaited > 0) {
      this.#isAskedAgain = true;
      return;
    }
    const { revision } = this.#served;
    for (const { from } of this.#watches.values()) if (from > revision + 1) return;
    this.#progressRevision = revision;
    for (const watch of this.#watches.values()) this.#await(watch);
  }

  #await(watch: StoreWatch): void {
    watch.isAwaited = true;
    this.#awaited++;
    watch.requestProgress();
  }

  /** A watch has been sent everything up to the revision of the progress, or has ended. */
  #reached(watch: StoreWatch): void {
    if (!watch.isAwaited) return;
    watch.isAwaited = false;
    if (--this.#awaited > 0) return;
    if (this.#watches.size > 0)
      this.#answer({ watchId: BigInt(noWatchId) }, this.#progressRevision);
    const isAskedAgain = this.#isAskedAgain;
    this.#isAskedAgain = false;
    if (isAskedAgain) this.#requestProgress();
  }

  #planRound(): Timer {
    return this.#served.clock.setTimeout(() => {
      this.#nextRound = undefined;
      let isNeeded = false;
      for (const watch of this.#watches.values()) {
        if (!watch.request.progressNotify) continue;
        isNeeded = true;
        watch.owesProgress = !watch.isActive;
        watch.isActive = false;
        if (watch.owesProgress) watch.requestProgress();
      }
      if (isNeeded) this.#nextRound = this.#planRound();
    }, this.#progressIntervalMs);
  }

  #answer(answer: Answer, revision: number = this.#served.revision): void {
    this.#answers.push(encodeAnswer(this.#served.header(revision), answer));
    this.#send(true);
  }

  #onReadable(watch: StoreWatch): void {
    if (this.#isOver || watch.isQueued || this.#watches.get(watch.id) !== watch) return;
    watch.isQueued = true;
    this.#ready.push(watch);
    this.#send(watch.isSynced);
  }

  /** Sends what there is: `now`, or in the event loop's time slices, as what is of the past may be much, of many calls. */
  #send(now: boolean): void {
    if (this.#isSending || this.#isOver) return;
    this.#isSending = true;
    let steps = now ? maxSteps : 0;
    while (steps > 0 && this.#sendNext()) steps--;
    if (now && steps > 0) this.#isSending = false;
    else EventLoopTurns.of(this.#served.clock).start(this);
  }

  work(until: number): boolean {
    const { clock } = this.#served;
    do {
      if (this.#sendNext()) continue;
      this.#isSending = false;
      return false;
    } while (clock.now() < until);
    return true;
  }

  /** Sends an answer, or a batch. Returns false if there is nothing to be sent, or no room. */
  #sendNext(): boolean {
    if (this.#isOver || !this.#hasRoom) return false;
    const answer = this.#answers.shift();
    if (answer !== undefined) {
      this.#respond([answer]);
      return true;
    }
    if (this.#isPaused) {
      this.#isPaused = false;
      this.#call.resumeRequests();
    }
    const watch = this.#ready.shift();
    if (watch === undefined) return false;
    this.#sendBatch(watch);
    return true;
  }

  #sendBatch(watch: StoreWatch): void {
    if (this.#watches.get(watch.id) !== watch) return;
    if (watch.isBehind) {
      if (this.#reader !== undefined && this.#reader !== watch) {
        this.#readers.push(watch);
        return;
      }
      this.#reader = watch;
    }
    watch.isQueued = false;
    const batch = watch.read();
    if (batch === undefined) {
      this.#ended(watch);
      return;
    }
    watch.isQueued = true;
    this.#ready.push(watch);
    if (this.#reader === watch && !watch.holdsPast) this.#nextReader();
    for (const frames of watch.framesOf(batch)) {
      watch.isActive = true;
      watch.owesProgress = false;
      this.#respond(frames);
    }
    const { revision = 0 } = batch;
    if (watch.owesProgress && revision >= watch.from - 1) {
      watch.owesProgress = false;
      this.#answer({ watchId: watch.id }, revision);
    }
    if (revision >= this.#progressRevision) this.#reached(watch);
  }

  #nextReader(): void {
    this.#reader = undefined;
    for (let next = this.#readers.shift(); next !== undefined; next = this.#readers.shift()) {
      if (this.#watches.get(next.id) !== next) continue;
      this.#reader = next;
      this.#ready.push(next);
      this.#send(false);
      return;
    }
  }

  /** A watch has nothing more to read. If it has ended, its client learns why. */
  #ended(watch: StoreWatch): void {
    const { compactedAt, failure } = watch;
    if (failure !== undefined) this.#end(toEtcdError(failure));
    if (compactedAt === undefined) return;
    this.#forget(watch);
    this.#compacted.add(watch.id);
    dropOldest(this.#compacted, maxCompacted);
    // As from etcd, the header has no revision.
    this.#answer({ watchId: watch.id, canceled: true, compactRevision: compactedAt }, 0);
  }

  #respond(frames: FrameParts): void {
    this.#hasRoom = this.#call.respond(frames);
  }
}

const emptyRange = "mvcc: watcher range is empty";
