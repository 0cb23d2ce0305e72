import { Metadata, type ServerDuplexStream, status } from "@grpc/grpc-js";
import type { Timer } from "../../base/clock.ts";
import { Fifo } from "../../base/fifo.ts";
import { compacted, duplicateWatch, tooMany } from "../../etcd/wire/error-texts.ts";
import {
  type CreateRequest,
  readWatchRequest,
  type WatchStreamRequest,
} from "../../etcd/wire/watch-request.ts";
import { type Answer, encodeAnswer, noWatchId } from "../../etcd/wire/watch-response.ts";
import { WireFault } from "../../protobuf/message-cursor.ts";
import { prefixSize } from "../../wire/encode.ts";
import { isEmpty, keysOf } from "../kv/key-interval.ts";
import { asStatus, EtcdError, toEtcdError } from "../protocol/errors.ts";
import type { ServedStore } from "../protocol/served-store.ts";
import { checkWireTypes } from "../protocol/wire-types.ts";
import { StoreWatch } from "./store-watch.ts";

/** Maximum number of watches of a stream. */
const maxWatches = 20_000;

/** Maximum number of ids of watches that a compaction has ended; the oldest are free beyond. */
const maxCompacted = 1_000;

/** Size of what the transport has not accepted above which nothing more is sent, in bytes. */
const maxUnsentBytes = 256 * 1024;

/** Number of answers that wait above which no more requests are read. */
const maxAnswers = 64;

/** Number of batches that are sent in one turn of the event loop. */
const batchesPerTurn = 32;

export interface StoreWatchCallOptions {
  readonly served: ServedStore;
  /** Interval of the progress notifications of idle watches, in milliseconds. */
  readonly progressIntervalMs: number;
  readonly onEnd: (call: StoreWatchCall) => void;
}

/**
 * A call of etcd's Watch: one stream with many watches. Answers come in the order of their requests, then one batch of each
 * watch in turn, as fast as the client accepts them.
 */
export class StoreWatchCall {
  readonly #call: ServerDuplexStream<Buffer, Buffer>;
  readonly #options: StoreWatchCallOptions;
  readonly #served: ServedStore;
  readonly #watches = new Map<bigint, StoreWatch>();
  /** The ids of watches that a compaction has ended. As in etcd they are in use until they are cancelled. */
  readonly #compacted = new Set<bigint>();
  readonly #answers = new Fifo<Buffer>();
  readonly #ready = new Fifo<StoreWatch>();
  #nextId = 0n;
  #unsentBytes = 0;
  #isPaused = false;
  #isOver = false;
  /** Number of watches that the answer to a progress request waits for. */
  #awaited = 0;
  /** The revision up to which these have to have read, and whether the client has asked again. */
  #progressRevision = 0;
  #isAskedAgain = false;
  #nextRound: Timer | undefined;
  #nextPump: Timer | undefined;

  constructor(call: ServerDuplexStream<Buffer, Buffer>, options: StoreWatchCallOptions) {
    this.#call = call;
    this.#options = options;
    this.#served = options.served;
  }

  /** Serves the call until it ends. */
  start(): void {
    this.#call.on("data", (message: Buffer) => this.#handle(message));
    // A client that half-closes the call keeps its watches.
    this.#call.on("cancelled", () => this.#close());
    this.#call.on("error", () => this.#close());
    this.#call.on("close", () => this.#close());
    // Clients wait for the headers of a stream before its first response.
    this.#call.sendMetadata(new Metadata());
  }

  /** Ends the call with this error. */
  end(error: EtcdError): void {
    if (this.#isOver) return;
    this.#close();
    this.#call.emit("error", asStatus(error));
  }

  #close(): void {
    if (this.#isOver) return;
    this.#isOver = true;
    this.#nextRound?.cancel();
    this.#nextPump?.cancel();
    for (const watch of this.#watches.values()) watch.close();
    this.#watches.clear();
    this.#options.onEnd(this);
  }

  #handle(message: Buffer): void {
    if (this.#isOver) return;
    try {
      checkWireTypes("WatchRequest", message);
      this.#perform(readWatchRequest(message));
    } catch (error) {
      if (!(error instanceof WireFault)) throw error;
      const details = `grpc: failed to unmarshal the received message: ${error.message}`;
      this.end(new EtcdError(status.INTERNAL, details));
    }
    if (this.#answers.length >= maxAnswers && !this.#isPaused) {
      this.#isPaused = true;
      this.#call.pause();
    }
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
    if (watch.compactedAt !== undefined) this.#onReadable(watch);
    if (this.#awaited > 0) this.#await(watch);
    if (request.progressNotify) this.#nextRound ??= this.#planRound();
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
    }, this.#options.progressIntervalMs);
  }

  #answer(answer: Answer, revision: number = this.#served.revision): void {
    const frame = encodeAnswer(this.#served.header(revision), answer);
    this.#answers.push(frame.subarray(prefixSize));
    this.#pump();
  }

  #onReadable(watch: StoreWatch): void {
    if (this.#isOver || watch.isQueued || this.#watches.get(watch.id) !== watch) return;
    watch.isQueued = true;
    this.#ready.push(watch);
    this.#pump();
  }

  /** Sends what there is, as long as the transport accepts it. */
  #pump(): void {
    if (this.#nextPump !== undefined) return;
    for (let batches = 0; !this.#isOver && this.#unsentBytes < maxUnsentBytes; ) {
      const answer = this.#answers.shift();
      if (answer !== undefined) {
        this.#send(answer);
        continue;
      }
      const watch = this.#ready.shift();
      if (watch === undefined) break;
      watch.isQueued = false;
      this.#sendBatch(watch);
      if (++batches < batchesPerTurn) continue;
      this.#nextPump = this.#served.clock.setImmediate(() => {
        this.#nextPump = undefined;
        this.#pump();
      });
      break;
    }
    if (!this.#isPaused || this.#answers.length > 0) return;
    this.#isPaused = false;
    this.#call.resume();
  }

  #sendBatch(watch: StoreWatch): void {
    if (this.#watches.get(watch.id) !== watch) return;
    const batch = watch.read();
    if (batch === undefined) {
      this.#ended(watch);
      return;
    }
    watch.isQueued = true;
    this.#ready.push(watch);
    for (const message of watch.messagesOf(batch)) {
      watch.isActive = true;
      watch.owesProgress = false;
      this.#send(message);
    }
    const { revision = 0 } = batch;
    if (watch.owesProgress && revision >= watch.from - 1) {
      watch.owesProgress = false;
      this.#answer({ watchId: watch.id }, revision);
    }
    if (revision >= this.#progressRevision) this.#reached(watch);
  }

  /** A watch has nothing more to read. If it has ended, its client learns why. */
  #ended(watch: StoreWatch): void {
    const { compactedAt, failure } = watch;
    if (failure !== undefined) this.end(toEtcdError(failure));
    if (compactedAt === undefined) return;
    this.#forget(watch);
    this.#keepCompacted(watch.id);
    // As from etcd, the header has no revision.
    this.#answer({ watchId: watch.id, canceled: true, compactRevision: compactedAt }, 0);
  }

  #keepCompacted(id: bigint): void {
    this.#compacted.add(id);
    if (this.#compacted.size <= maxCompacted) return;
    for (const oldest of this.#compacted) {
      this.#compacted.delete(oldest);
      return;
    }
  }

  #send(message: Buffer): void {
    this.#unsentBytes += message.length;
    this.#call.write(message, () => {
      this.#unsentBytes -= message.length;
      if (this.#unsentBytes < maxUnsentBytes / 2) this.#pump();
    });
  }
}

const emptyRange = "mvcc: watcher range is empty";
