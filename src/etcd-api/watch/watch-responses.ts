import { Fifo } from "../../base/fifo.ts";
import { withFields, withFieldsInEach } from "../../etcd/wire/watch-response.ts";
import { type FrameParts, sizeOf } from "../../wire/frame-parts.ts";
import { EtcdCall } from "../relay/etcd-call.ts";
import type { AnswerSlot, ClientWatch } from "./client-watch.ts";

const noFrames: readonly Uint8Array[] = [];

/** A response of etcd that waits to be sent. */
interface RelayedResponse {
  readonly watch: ClientWatch;
  readonly parts: FrameParts;
  readonly bytes: number;
  /** Whether the next one has to follow at once. */
  readonly fragment: boolean;
  /** What has been sent of the watch with it; undefined: it is not known. */
  readonly sent: number | undefined;
  /** Whether it is the last one of its watch. */
  readonly isLast: boolean;
}

/**
 * The responses of a call of etcd's Watch, to all of its watches, one message at a time: answers in the order of the requests,
 * then one batch of each watch in turn. So the buffers of the watches hold what a slow client has not read, and these are
 * bounded.
 */
export abstract class WatchResponses extends EtcdCall {
  readonly #answers = new Fifo<AnswerSlot>();
  readonly #ready = new Fifo<ClientWatch>();
  #relayed = new Fifo<RelayedResponse>();
  #relayedBytes = 0;
  /** The watch of etcd of which a fragment was sent last. The rest of the response follows at once. */
  #fragmented: ClientWatch | undefined;
  /** Whether it was a response of etcd that was sent last, so that a cached watch is next. */
  #wasRelayed = false;
  /** The responses of a batch of a watch, and the index of the next one to send. */
  #frames = noFrames;
  #next = 0;
  #watch: ClientWatch | undefined;
  /** The watch whose creation the message that was sent last reports. */
  #announced: ClientWatch | undefined;

  /** The first response of a watch may follow. */
  protected abstract onAnnounced(watch: ClientWatch): void;

  /** A response of etcd was sent. */
  protected abstract onRelayed(): void;

  /** The client has accepted everything, and nothing waits. */
  protected abstract onIdle(): void;

  /** Number of answers that wait. */
  get waitingAnswers(): number {
    return this.#answers.length;
  }

  /** Size of etcd's responses that wait, in bytes. */
  get relayedBytes(): number {
    return this.#relayedBytes;
  }

  /** Adds an answer behind those before. */
  protected addAnswer(frame: Uint8Array): void {
    this.#answers.push({ frame, watch: undefined });
    this.pump();
  }

  /** Adds the place of the answer to the create request of a watch, which `settle` makes known. */
  expect(watch: ClientWatch): void {
    watch.answer = { frame: undefined, watch };
    this.#answers.push(watch.answer);
  }

  /** The answer to the create request of a watch is known. */
  settle(watch: ClientWatch, frame: Uint8Array): void {
    if (watch.answer !== undefined) watch.answer.frame = frame;
    watch.answer = undefined;
    this.pump();
  }

  /** The watch may have something to send. */
  ready(watch: ClientWatch): void {
    if (watch.isQueued || watch.isOver || !watch.isAnnounced) return;
    watch.isQueued = true;
    this.#ready.push(watch);
    this.pump();
  }

  /** Adds a response of etcd. */
  relay(
    watch: ClientWatch,
    message: Buffer,
    response: {
      readonly fragment: boolean;
      readonly sent: number | undefined;
      readonly isLast: boolean;
    },
    fields: Buffer,
  ): void {
    const parts = withFields(message, fields);
    const bytes = sizeOf(parts);
    watch.waiting++;
    this.#relayedBytes += bytes;
    this.#relayed.push({ watch, parts, bytes, ...response });
    this.pump();
  }

  protected override get waitsFor(): "nothing" | "room" {
    if (this.#mustFollow || this.#answers.at(0)?.frame !== undefined) return "nothing";
    return this.#ready.length === 0 && this.#relayed.length === 0 ? "nothing" : "room";
  }

  /** Whether what was sent last has a rest, which nothing may come before. */
  get #mustFollow(): boolean {
    return this.#frames.length > 0 || this.#fragmented?.isOver === false;
  }

  /** The next message, in parts. */
  protected override next(): FrameParts | undefined {
    const message = this.#nextMessage();
    if (message === undefined) this.onIdle();
    return message;
  }

  #nextMessage(): FrameParts | undefined {
    if (this.#frames.length > 0) return this.#nextOfBatch();
    if (this.#mustFollow) return this.#nextRelayed();
    if (this.#answers.at(0)?.frame !== undefined) return this.#nextAnswer();
    if (this.#wasRelayed) return this.#nextCached() ?? this.#nextRelayed();
    return this.#nextRelayed() ?? this.#nextCached();
  }

  /** The rest of a batch. */
  protected override get rest(): FrameParts {
    return this.#frames.length === 0 ? noFrames : this.#frames.slice(this.#next);
  }

  protected override onAccepted(): void {
    this.#watch?.watcher?.accepted();
    if (this.#frames.length === 0) this.#watch = undefined;
    const announced = this.#announced;
    this.#announced = undefined;
    // What it calls may end the stream, so it comes behind the answer.
    if (announced !== undefined) this.onAnnounced(announced);
  }

  protected override onClosed(): void {
    super.onClosed();
    this.#frames = noFrames;
    this.#relayed = new Fifo();
  }

  #nextAnswer(): FrameParts {
    const { frame, watch } = this.#answers.shift() as AnswerSlot;
    if (watch !== undefined && !watch.isOver) {
      watch.isAnnounced = true;
      this.#announced = watch;
    }
    return [frame as Uint8Array];
  }

  /** The first response of the next batch of the next watch that has one. */
  #nextCached(): FrameParts | undefined {
    for (let watch = this.#ready.shift(); watch !== undefined; watch = this.#ready.shift()) {
      watch.isQueued = false;
      if (watch.isOver) continue;
      const frames = watch.takeFrames();
      if (frames === undefined) continue;
      // Behind the other watches.
      watch.isQueued = true;
      this.#ready.push(watch);
      if (frames.length === 0) continue;
      watch.isActive = true;
      this.#wasRelayed = false;
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

  #nextRelayed(): FrameParts | undefined {
    for (let next = this.#relayed.shift(); next !== undefined; next = this.#relayed.shift()) {
      const { watch, parts, bytes, fragment, sent, isLast } = next;
      this.#relayedBytes -= bytes;
      watch.waiting--;
      this.onRelayed();
      if (watch.isOver && !isLast) continue;
      this.#fragmented = fragment ? watch : undefined;
      this.#wasRelayed = true;
      if (sent !== undefined && sent > watch.sent) watch.sent = sent;
      return parts;
    }
    return undefined;
  }
}
