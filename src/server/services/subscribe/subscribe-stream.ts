import { status } from "@grpc/grpc-js";
import type { Timer } from "../../../base/clock.ts";
import { hasReason, type Reason, type WatchFanoutError } from "../../../base/errors.ts";
import { runInTimeSlices, type TimeSlicedWork } from "../../../base/event-loop-turns.ts";
import { Fifo } from "../../../base/fifo.ts";
import type { Turns } from "../../../base/turns.ts";
import { expired } from "../../../cacher/request/errors.ts";
import type { RoundReader } from "../../../storage/storage.ts";
import { type FrameParts, prefixSize } from "../../../wire/encode.ts";
import { encodedStatus, statusOf, type WireStatus } from "../../../wire/errors.ts";
import { PartsWriter } from "../../../wire/parts-writer.ts";
import { endedResponse, progressResponse, refusedResponse } from "../../../wire/subscription.ts";
import { MessageSender, type SlowEnd } from "../../calls/message-sender.ts";
import { refused, toClientError } from "../../calls/refusals.ts";
import type { ServerCall } from "../../calls/server-call.ts";
import type { ServiceContext } from "../../calls/service-context.ts";
import type { ServedResource } from "../../calls/service-options.ts";
import { nextStreamId, type OpenStream } from "../../kernel/open-streams.ts";
import type { Rounds } from "../../kernel/rounds.ts";
import { slowConsumer, withResumePoint } from "../watch-sender.ts";
import { endLargest, largestOf, pendingIn } from "./pending-bytes.ts";
import { StreamProgress } from "./stream-progress.ts";
import type { Subscription, SubscriptionOwner } from "./subscription.ts";

/** The name of Subscribe in logs and metrics. */
export const subscribeMethod = "watchfanout.v1.ListWatchService/Subscribe";

/** Size of the responses above which no further one is written at once with them, in bytes. */
const bytesAtOnce = 64 * 1024;

/** Number of answers that wait above which no request is read. */
const maxAnswers = 256;

/**
 * A Subscribe stream: sends the answers to its requests, and then a response of each watch that has one, in turn. So the
 * watches share what the client takes, and those without credit take no part. The buffers of the watches hold what the
 * client has not taken, and these are bounded.
 */
export class SubscribeStream
  extends MessageSender
  implements OpenStream, RoundReader, SubscriptionOwner
{
  readonly id = nextStreamId();
  readonly streamKind = "subscribe";
  readonly hasOwnStreams = true;
  readonly access = undefined;
  readonly openedAt: number;
  /** When it reaches the maximum age, in the clock's milliseconds; undefined: never. */
  readonly expiresAt: number | undefined;
  readonly progress = new StreamProgress(this);
  protected override readonly isOneMessage = true;
  /** `bytesAtOnce`; 1, which any response exceeds, where each has to be written by itself. */
  readonly #bytesAtOnce: number;
  readonly #rounds: Rounds<SubscribeStream>;
  /** For work whose time grows with the watches, by caller. */
  readonly #turns: Turns;
  /** The open watches, by the client's id. */
  readonly #watches = new Map<number, Subscription>();
  /** How many of them are of each resource. */
  readonly #resources = new Map<ServedResource, number>();
  readonly #answers = new Fifo<Uint8Array>();
  readonly #ready = new Fifo<Subscription>();
  /** The watches whose responses were sent last and are not accepted, in any number each. */
  #sending: Subscription[] = [];
  /** Continues the reader of requests, once few answers wait. */
  #onRoom: (() => void) | undefined;
  /** Why it ends once everything has been sent, and takes no further watches; undefined: it continues. */
  ending: WatchFanoutError | undefined;
  /** The client sends nothing more: it ends with its last watch. */
  #isHalfClosed = false;
  /** Called when it ends. */
  onOver: (() => void) | undefined;
  #endTimer: Timer | undefined;
  #isChecking = false;

  constructor(
    call: ServerCall,
    context: ServiceContext,
    rounds: Rounds<SubscribeStream>,
    turns: Turns,
    expiresAt: number | undefined,
  ) {
    super(call, context);
    this.#rounds = rounds;
    this.#turns = turns;
    this.#bytesAtOnce = call.sendsSeveral === true ? bytesAtOnce : 1;
    this.expiresAt = expiresAt;
    this.openedAt = context.clock.now();
    call.onOver(() => this.close());
  }

  get watches(): ReadonlyMap<number, Subscription> {
    return this.#watches;
  }

  get resources(): Iterable<ServedResource> {
    return this.#resources.keys();
  }

  run(work: TimeSlicedWork<void>): Promise<void> {
    return this.#turns.run(this.owner, work);
  }

  /** Counts it until it has ended. */
  open(): void {
    this.context.streams.add(this);
    this.#rounds.add(this);
  }

  /** Adds a watch, which begins to send. */
  add(watch: Subscription): void {
    this.#watches.set(watch.key, watch);
    this.#countResource(watch.served, 1);
    this.context.streams.add(watch);
    watch.start();
  }

  /** The client removes a watch. */
  remove(watch: Subscription): void {
    this.#forget(watch);
    this.#answer(endedResponse(watch.key));
    this.progress.ended(watch);
  }

  endWatch(watch: Subscription, cause: unknown): void {
    // With its stream it was counted.
    if (watch.isOver || this.isOver) return;
    this.#forget(watch);
    this.refuseWatch(watch.key, withResumePoint(this.#reported(cause), watch.resumePoint));
    this.progress.ended(watch);
    if (hasReason(cause, "SLOW_CONSUMER")) {
      const { resource, watchStatus } = watch;
      this.context.slowClients.ended(this.call, { resource, scope: watchStatus?.scope });
    }
  }

  /** Sends the end of a watch that was not opened, or was open and has been closed. */
  refuseWatch(key: number, error: WatchFanoutError): void {
    this.context.observer?.watchEnded?.(error.reason);
    this.sendEnd(key, statusOf(error));
  }

  sendEnd(key: number, why: WireStatus): void {
    this.#answer(endedResponse(key, encodedStatus(why)));
  }

  /** A request is refused. `key`: the id that it names; 0: none that is valid. */
  refuse(key: number, error: WatchFanoutError): void {
    this.#answer(refusedResponse(key, encodedStatus(statusOf(error))));
  }

  progressed(revision: number, tag: bigint): void {
    this.#answer(progressResponse(revision, tag));
  }

  progressFailed(key: number, error: unknown): void {
    this.refuse(key, this.#reported(error));
  }

  /** Ends it, and its watches with it. */
  endBecause(cause: unknown): void {
    const error = this.#reported(cause);
    this.endWith(statusOf(error), error.reason);
  }

  /** As `endBecause`. `reason`: what its watches are counted as. */
  endWith(why: WireStatus, reason: Reason): void {
    if (this.isOver) return;
    this.#countWatches(reason);
    this.end(why);
  }

  ready(watch: Subscription): void {
    if (watch.isQueued || watch.isOver || this.isOver) return;
    watch.isQueued = true;
    this.#ready.push(watch);
    if (this.isBlocked) return;
    // What is new to several watches is written together.
    if (this.#watches.size > 1) watch.readAfterOffers(this);
    else this.pump();
  }

  roundOffered(): void {
    this.pump();
  }

  settled(watch: Subscription): void {
    this.progress.settled(watch);
  }

  /** Resolves when so few answers wait that the next request may be read. */
  async room(): Promise<void> {
    if (this.#answers.length <= maxAnswers || this.isOver) return;
    await new Promise<void>((resolve) => {
      this.#onRoom = resolve;
    });
  }

  /** The client sends no more requests: ends with its last watch. */
  halfClosed(): void {
    this.#isHalfClosed = true;
    this.pump();
  }

  evict(error: WatchFanoutError): void {
    this.#endSoon(error);
    runInTimeSlices(this.context.clock, this.#endAll(error));
  }

  /** The resources drain: ends once its watches have ended, each behind its last bookmark. */
  endAfterWatches(error: WatchFanoutError): void {
    this.#endSoon(error);
    this.check();
  }

  /** Called about once a second. */
  check(): void {
    const { clock } = this.context;
    const isExpired = this.expiresAt !== undefined && clock.now() >= this.expiresAt;
    // Its watches have the same maximum age.
    if (isExpired) this.ending ??= expired();
    if (this.#isChecking) return;
    this.#isChecking = true;
    runInTimeSlices(clock, this.#checkWatches());
  }

  protected override get waitsFor(): "nothing" | "room" {
    return this.#answers.length > 0 || this.#ready.length === 0 ? "nothing" : "room";
  }

  protected override next(): FrameParts | undefined {
    if (this.#answers.length > 0) return this.#takeAnswers();
    const parts = this.#takeResponses();
    if (parts.length > 0) return parts;
    // Watches have ended.
    if (this.#answers.length > 0) return this.#takeAnswers();
    if (this.#watches.size > 0) return undefined;
    if (this.ending !== undefined) this.end(statusOf(this.ending));
    else if (this.#isHalfClosed) this.end(refused(status.OK, ""));
    return undefined;
  }

  protected override onAccepted(): void {
    const accepted = this.#sending;
    this.#sending = [];
    for (const watch of accepted) watch.accepted();
  }

  /**
   * The watches whose responses are outstanding lose them, and end. If the client has got a part of these already, the call
   * is reset; also if answers wait, which may say that the responses were sent. Of what waits the largest watch loses its
   * own.
   */
  protected override onEvicted(isOutstanding: boolean): void {
    const lost = isOutstanding ? new Set(this.#sending) : largestOf(this.#watches.values());
    const mayLose = !isOutstanding || (this.#answers.length === 0 && this.withdraw());
    if (lost.size === 0 || !mayLose) {
      super.onEvicted(isOutstanding);
      return;
    }
    if (isOutstanding) this.#sending = [];
    for (const watch of lost) {
      if (isOutstanding) watch.withdrawn();
      watch.evict(slowConsumer("too little"));
    }
    this.pump();
  }

  protected override slowStatus(end: SlowEnd): WireStatus | undefined {
    this.#countWatches(end === "unreachable" ? "RESET" : "SLOW_CONSUMER");
    if (end === "unreachable") return undefined;
    const accepted = `nothing from the stream for ${this.context.limits.responseFlushMs / 1_000} s`;
    return statusOf(slowConsumer(end === "stalled" ? accepted : "too little"));
  }

  protected override onFailed(error: unknown): void {
    if (!this.isOver) this.endBecause(error);
  }

  protected override onClosed(): void {
    this.context.streams.delete(this);
    this.#rounds.delete(this);
    this.#endTimer?.cancel();
    this.#sending = [];
    this.#wakeReader();
    this.onOver?.();
    runInTimeSlices(this.context.clock, this.#closeAll());
  }

  #takeAnswers(): FrameParts {
    const parts = new PartsWriter();
    let [bytes, count] = [0, 0];
    while (bytes < this.#bytesAtOnce) {
      const answer = this.#answers.shift();
      if (answer === undefined) break;
      parts.add(answer, 0, answer.byteLength);
      bytes += answer.byteLength;
      count++;
    }
    this.#count(count, bytes);
    if (this.#answers.length <= maxAnswers) this.#wakeReader();
    return parts.finish();
  }

  #takeResponses(): FrameParts {
    const parts = new PartsWriter();
    let [bytes, count] = [0, 0];
    while (bytes < this.#bytesAtOnce) {
      const watch = this.#ready.shift();
      if (watch === undefined) break;
      watch.isQueued = false;
      if (watch.isOver) continue;
      const taken = watch.take(parts);
      if (taken === 0) continue;
      bytes += taken;
      count++;
      this.#sending.push(watch);
      if (!watch.hasMore()) continue;
      // Behind the others.
      watch.isQueued = true;
      this.#ready.push(watch);
    }
    this.#count(count, bytes);
    return parts.finish();
  }

  /** Counts its open watches as ended. */
  #countWatches(reason: Reason | "RESET"): void {
    const { size } = this.#watches;
    if (size > 0) this.context.observer?.watchEnded?.(reason, size);
  }

  #count(messages: number, bytes: number): void {
    if (messages === 0) return;
    this.context.observer?.sent(subscribeMethod, messages, bytes - messages * prefixSize);
  }

  #answer(message: Uint8Array): void {
    if (this.isOver) return;
    this.#answers.push(message);
    this.pump();
  }

  /** To be followed by its end, and only then by the progress that it delays, which is not about it any more. */
  #forget(watch: Subscription): void {
    this.#watches.delete(watch.key);
    this.#countResource(watch.served, -1);
    this.#closeWatch(watch);
  }

  #countResource(resource: ServedResource, change: 1 | -1): void {
    const count = (this.#resources.get(resource) ?? 0) + change;
    if (count === 0) this.#resources.delete(resource);
    else this.#resources.set(resource, count);
  }

  #closeWatch(watch: Subscription): void {
    watch.close();
    this.context.streams.delete(watch);
  }

  /** Ends once all is sent, but before long. It takes no further watches. */
  #endSoon(error: WatchFanoutError): void {
    if (this.isOver) return;
    this.ending = error;
    const { clock, limits } = this.context;
    this.#endTimer ??= clock.setTimeout(() => this.endBecause(error), limits.endFlushMs);
  }

  /** Ends watches that can't notify it of their end, and the largest of those without credit that hold too much together. */
  *#checkWatches(): TimeSlicedWork<void> {
    const pending = yield* pendingIn(this.#watches.values(), this);
    this.chargeIfStuck(this.outstanding ? pending.bytes : 0);
    yield* endLargest(pending, this.context.limits.maxUnsentBytesPerConnection);
    this.#isChecking = false;
    this.pump();
  }

  *#endAll(error: WatchFanoutError): TimeSlicedWork<void> {
    for (const watch of this.#watches.values()) {
      this.endWatch(watch, error);
      yield;
    }
    this.pump();
  }

  *#closeAll(): TimeSlicedWork<void> {
    for (const watch of this.#watches.values()) {
      this.#closeWatch(watch);
      yield;
    }
    this.#watches.clear();
  }

  #wakeReader(): void {
    const onRoom = this.#onRoom;
    this.#onRoom = undefined;
    onRoom?.();
  }

  #reported(error: unknown): WatchFanoutError {
    return toClientError(error, subscribeMethod, this.context.logger, this.call);
  }
}
