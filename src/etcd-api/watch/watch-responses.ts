import { Fifo } from "../../base/fifo.ts";
import {
  type Answer,
  encodeAnswer,
  noWatchId,
  withFieldsInEach,
} from "../../etcd/wire/watch-response.ts";
import type { RawCall } from "../../server/calls/methods.ts";
import type { ServiceContext } from "../../server/calls/service-context.ts";
import { type FrameParts, sizeOf } from "../../wire/encode.ts";
import { EtcdCall } from "../calls/etcd-call.ts";
import type { AnswerSlot, ClientWatch, ProgressSlot } from "./client-watch.ts";
import { watchPath } from "./member-monitor.ts";
import type { ForwardedResponse, UpstreamWatches } from "./upstream-watches.ts";
import { WatchProgress } from "./watch-progress.ts";
import type { WatchService } from "./watch-service.ts";

const noFrames: readonly Uint8Array[] = [];

/**
 * The responses of a call of etcd's Watch, to all of its watches, one message at a time: answers in the order of the requests,
 * then one batch of each watch in turn. So the buffers of the watches hold what a slow client has not read, and these are
 * bounded.
 *
 * Reports up to which revision the watches have received everything, too: regularly, and when the client asks.
 */
export abstract class WatchResponses extends EtcdCall {
  readonly service: WatchService;
  /** Those that are created. */
  readonly watches = new Map<bigint, ClientWatch>();
  /** Number of watches, with those that etcd has not created yet. */
  protected size = 0;
  /** Those that etcd serves, or is asked about. */
  abstract readonly upstream: UpstreamWatches;
  readonly #answers = new Fifo<AnswerSlot | ProgressSlot>();
  readonly #ready = new Fifo<ClientWatch>();
  /** Whether answers are kept back, and whether there are such. */
  #isHolding = false;
  #hasHeld = false;
  #forwarded = new Fifo<ForwardedResponse>();
  #forwardedBytes = 0;
  /** The watch of etcd of which a fragment was sent last. The rest of the response follows at once. */
  #fragmented: ClientWatch | undefined;
  /** Whether it was a response of etcd that was sent last, so that a cached watch is next. */
  #wasForwarded = false;
  /** The responses of a batch of a watch, and the index of the next one to send. */
  #frames = noFrames;
  #next = 0;
  #watch: ClientWatch | undefined;
  /** A watch whose batch was sent and that has nothing more, until it is read again, so that it notifies of its next one. */
  #idle: ClientWatch | undefined;
  /** The watch whose creation the message that was sent last reports. */
  #announced: ClientWatch | undefined;
  readonly #progress: WatchProgress;

  constructor(call: RawCall, context: ServiceContext, service: WatchService) {
    super(call, context, service.calls, "etcd watch", watchPath.slice(1));
    this.service = service;
    this.#progress = new WatchProgress(this, context.clock);
  }

  /** Whether the client is another watch-fanout. */
  abstract get isFollower(): boolean;

  /** The client has accepted an answer that waited, or everything: more of its requests may be read. */
  protected abstract onRoom(): void;

  /** Number of answers that wait. */
  get waitingAnswers(): number {
    return this.#answers.length;
  }

  /** Size of etcd's responses that wait, in bytes. */
  get forwardedBytes(): number {
    return this.#forwardedBytes;
  }

  /** Sends a response without events, behind those before. */
  protected answer(answer: Answer, revision: number): void {
    this.service.reported(revision);
    this.addAnswer(this.encode(answer, revision));
  }

  protected encode(answer: Answer, revision: number): Buffer {
    return encodeAnswer(this.service.header(revision), answer);
  }

  /** Adds an answer behind those before. */
  protected addAnswer(frame: Uint8Array): void {
    this.#answers.push({ frame, watch: undefined });
    this.#pumpAnswers();
  }

  /** Adds the place of the answer to the create request of a watch, which `settle` makes known. */
  protected expect(watch: ClientWatch): void {
    watch.answer = { frame: undefined, watch };
    this.#answers.push(watch.answer);
  }

  /** The answer to the create request of a watch is known. */
  settle(watch: ClientWatch, frame: Uint8Array): void {
    if (watch.answer !== undefined) watch.answer.frame = frame;
    watch.answer = undefined;
    this.#pumpAnswers();
  }

  /** Keeps answers back until `sendAnswers`, so that they are written together. */
  protected holdAnswers(): void {
    this.#isHolding = true;
  }

  protected sendAnswers(): void {
    const hasHeld = this.#hasHeld;
    this.#isHolding = false;
    this.#hasHeld = false;
    if (hasHeld) this.pump();
  }

  #pumpAnswers(): void {
    if (this.#isHolding) this.#hasHeld = true;
    else this.pump();
  }

  /** The watch may have something to send. */
  ready(watch: ClientWatch): void {
    if (watch.isQueued || watch.isOver || !watch.isAnnounced) return;
    watch.isQueued = true;
    this.#ready.push(watch);
    if (this.isBlocked) return;
    // What is new to several watches is written together.
    if (this.size > 1 && watch.watcher !== undefined) watch.watcher.readAfterOffers(this);
    else this.pump();
  }

  /** All watches have what a round of events has for them. */
  roundOffered(): void {
    this.pump();
  }

  /** Adds a response of etcd. */
  forward(response: ForwardedResponse): void {
    response.watch.waiting++;
    this.#forwardedBytes += sizeOf(response.parts);
    this.#forwarded.push(response);
    this.pump();
  }

  protected override get waitsFor(): "nothing" | "room" {
    if (this.#mustFollow || this.#hasAnswer) return "nothing";
    // Events of the idle watch may have arrived while a response of etcd waited.
    const hasPending = this.#idle?.watcher?.hasPending === true;
    const isEmpty = this.#ready.length === 0 && this.#forwarded.length === 0 && !hasPending;
    return isEmpty ? "nothing" : "room";
  }

  /** Whether the first answer may be sent. */
  get #hasAnswer(): boolean {
    const first = this.#answers.at(0);
    return first !== undefined && ("progressOf" in first || first.frame !== undefined);
  }

  /** Whether what was sent last has a rest, which nothing may come before. */
  get #mustFollow(): boolean {
    return this.#frames.length > 0 || this.#fragmented?.isOver === false;
  }

  /** The next message, in parts. */
  protected override next(): FrameParts | undefined {
    const hadAnswer = this.#hasAnswer && !this.#mustFollow;
    const message = this.#nextMessage();
    this.isFollowed = this.#ready.length > 0 || this.#answers.length > 0;
    if (message === undefined && hadAnswer) {
      // What is behind the answers may have to wait for room.
      this.pump();
    } else if (message === undefined) {
      this.onRoom();
      // Behind the answer to a create request it would be taken for progress of that watch, too.
      if (this.waitingAnswers === 0) this.#progress.answer();
    }
    return message;
  }

  #nextMessage(): FrameParts | undefined {
    if (this.#frames.length > 0) return this.#nextOfBatch();
    if (this.#mustFollow) return this.#nextForwarded();
    if (this.#hasAnswer) return this.#nextAnswer();
    if (this.#wasForwarded) return this.#nextCached() ?? this.#nextForwarded();
    return this.#nextForwarded() ?? this.#nextCached();
  }

  /** The rest of a batch. */
  protected override get rest(): FrameParts {
    return this.#frames.length === 0 ? noFrames : this.#frames.slice(this.#next);
  }

  protected override onAccepted(): void {
    this.#watch?.watcher?.accepted();
    if (this.#frames.length === 0) this.#batchAccepted();
    const announced = this.#announced;
    this.#announced = undefined;
    // What it calls may end the stream, so it comes behind the answer.
    if (announced === undefined) return;
    this.ready(announced);
    this.onRoom();
  }

  /** The watch of the batch is read again, behind the others. One that has nothing more need not wait for that. */
  #batchAccepted(): void {
    const watch = this.#watch;
    this.#watch = undefined;
    if (watch?.watcher?.hasPending === false) this.#idle = watch;
    else if (watch !== undefined) this.#ready.push(watch);
  }

  protected override onClosed(): void {
    super.onClosed();
    this.#frames = noFrames;
    this.#forwarded = new Fifo();
  }

  /** The first answer; undefined: all of them are progress of watches that are not synced now. */
  #nextAnswer(): FrameParts | undefined {
    while (this.#hasAnswer) {
      const slot = this.#answers.shift() as AnswerSlot | ProgressSlot;
      const answer =
        "progressOf" in slot ? this.#progressOf(slot.progressOf) : this.#announce(slot);
      if (answer !== undefined) return answer;
    }
    return undefined;
  }

  #announce({ frame, watch }: AnswerSlot): FrameParts {
    if (watch !== undefined && !watch.isOver) {
      watch.isAnnounced = true;
      this.#announced = watch;
    }
    return [frame as Uint8Array];
  }

  /** The first response of the next batch of the next watch that has one. */
  #nextCached(): FrameParts | undefined {
    if (this.#idle !== undefined) this.#ready.push(this.#idle);
    this.#idle = undefined;
    for (let watch = this.#ready.shift(); watch !== undefined; watch = this.#ready.shift()) {
      watch.isQueued = false;
      if (watch.isOver) continue;
      const frames = watch.takeFrames();
      if (frames === undefined) continue;
      watch.isQueued = true;
      if (frames.length === 0) {
        this.#ready.push(watch);
        continue;
      }
      watch.isActive = true;
      this.#wasForwarded = false;
      this.#frames = frames;
      this.#next = 0;
      this.#watch = watch;
      return this.#nextOfBatch();
    }
    return undefined;
  }

  /** The next response of the current batch, whose responses have the watch id 0. */
  #nextOfBatch(): FrameParts {
    const frames = this.#frames;
    const frame = frames[this.#next] as Uint8Array;
    this.#next++;
    if (this.#next === frames.length) this.#frames = noFrames;
    const fields = this.#watch?.idField;
    if (fields !== undefined && fields.length > 0) return withFieldsInEach(frame, fields);
    return frames.length === 1 ? frames : [frame];
  }

  #nextForwarded(): FrameParts | undefined {
    for (let next = this.#forwarded.shift(); next !== undefined; next = this.#forwarded.shift()) {
      const { watch, parts, fragment, sent, isLast } = next;
      this.#forwardedBytes -= sizeOf(parts);
      watch.waiting--;
      this.upstream.mayContinue();
      if (watch.isOver && !isLast) continue;
      this.#fragmented = fragment ? watch : undefined;
      this.#wasForwarded = true;
      if (sent !== undefined && sent > watch.sent) watch.sent = sent;
      return parts;
    }
    return undefined;
  }

  /**
   * Sends the progress of each watch that asked for it and is synced, unless it has sent events since the last call. Nothing
   * to a client that has not accepted what it was sent before: it would wait here.
   */
  notifyProgress(floor: number): void {
    if (this.waitingAnswers > 0) return;
    for (const watch of this.watches.values()) {
      if (!watch.request.progressNotify || watch.watcher === undefined) continue;
      const revision = watch.syncedRevision;
      if (!watch.isActive && revision !== undefined && revision >= floor) {
        this.report(watch);
      }
      watch.isActive = false;
    }
  }

  /** The client asks for the progress of all watches. */
  protected requestProgress(): void {
    this.#progress.request();
  }

  /** Reports a revision up to which all watches have been sent everything, behind the answers before. */
  reportAll(revision: number): void {
    this.answer({ watchId: BigInt(noWatchId) }, revision);
  }

  /** Reports the progress of one watch, behind the answers before. */
  report(watch: ClientWatch): void {
    this.#answers.push({ progressOf: watch });
    this.pump();
  }

  #progressOf(watch: ClientWatch): FrameParts | undefined {
    const revision = watch.isOver ? undefined : watch.syncedRevision;
    if (revision === undefined) return undefined;
    watch.sent = Math.max(watch.sent, revision);
    this.service.reported(revision);
    return [this.encode({ watchId: watch.id }, revision)];
  }
}
