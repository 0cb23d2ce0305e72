import { Fifo } from "../../base/fifo.ts";
import type { CallContext } from "../../server/calls/call-context.ts";
import type { RelayedCall } from "../../server/calls/relayed-methods.ts";
import type { SendReservation } from "../../server/limits/send-budget.ts";
import { type FrameParts, sizeOf } from "../../wire/frame-parts.ts";
import { SendGate } from "../relay/send-gate.ts";
import type { ClientWatch } from "./client-watch.ts";
import { withFields, withFieldsInEach } from "./watch-response.ts";

/** Messages that are smaller than this, in bytes, are not counted: the stream itself takes more memory. */
const leastCounted = 4 * 1024;

const noFrames: readonly Uint8Array[] = [];

/** The place of a response to a request. Responses are sent in the order of their requests. */
export interface AnswerSlot {
  /** Undefined: it is not known yet, and all later ones wait. */
  frame: Uint8Array | undefined;
  /** The watch that it announces. */
  readonly watch: ClientWatch | undefined;
}

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

/** What the sender needs of its stream. */
export interface SenderListener {
  /** The responses for the next batch of the watch; undefined: it has no batch now. */
  readonly framesOf: (watch: ClientWatch) => readonly Uint8Array[] | undefined;
  /** The first response of a watch may follow. */
  readonly onAnnounced: (watch: ClientWatch) => void;
  /** A response of etcd was sent. */
  readonly onRelayed: () => void;
  /** The client has accepted everything, and nothing waits. */
  readonly onIdle: () => void;
  /** The client has accepted a message. */
  readonly onAccepted: () => void;
  /** The client can't be sent anything any more. */
  readonly onCut: () => void;
}

/**
 * Sends the responses of all watches of a stream, one message at a time: answers in the order of the requests, then one
 * batch of each watch in turn. So the buffers of the watches hold what a slow client has not read, and these are bounded.
 */
export class StreamSender {
  readonly #call: RelayedCall;
  readonly #context: CallContext;
  readonly #listener: SenderListener;
  readonly #answers = new Fifo<AnswerSlot>();
  readonly #ready = new Fifo<ClientWatch>();
  #relayed = new Fifo<RelayedResponse>();
  #relayedBytes = 0;
  /** The watch of etcd of which a fragment was sent last. The rest of the response follows at once. */
  #fragmented: ClientWatch | undefined;
  /** Whether it was a response of etcd that was sent last, so that a cached watch is next. */
  #wasRelayed = false;
  /** The responses of a batch that are not sent, of a watch. */
  #frames = noFrames;
  #next = 0;
  #watch: ClientWatch | undefined;
  #reservation: SendReservation | undefined;
  readonly #gate: SendGate;
  #isOver = false;
  #isPumping = false;
  /** Whether there may be more to send than when `pump` was entered. */
  #mustPumpAgain = false;
  sent = 0;
  outstanding = false;

  constructor(call: RelayedCall, context: CallContext, listener: SenderListener) {
    this.#call = call;
    this.#context = context;
    this.#listener = listener;
    this.#gate = new SendGate(call, context, () => this.pump());
  }

  /** Number of answers that wait. */
  get answers(): number {
    return this.#answers.length;
  }

  /** Size of etcd's responses that wait, in bytes. */
  get relayedBytes(): number {
    return this.#relayedBytes;
  }

  /** What is held because the client does not accept it, in bytes. */
  get heldBytes(): number {
    return this.#reservation?.bytes ?? 0;
  }

  /** Adds the place of an answer behind those before. With a frame it may be sent; otherwise set it and call `pump`. */
  answer(frame: Uint8Array | undefined, watch?: ClientWatch): AnswerSlot {
    const slot: AnswerSlot = { frame, watch };
    this.#answers.push(slot);
    if (frame !== undefined) this.pump();
    return slot;
  }

  /** The watch may have something to send. */
  ready(watch: ClientWatch): void {
    if (watch.isQueued || watch.isOver || !watch.isAnnounced) return;
    watch.isQueued = true;
    this.#ready.push(watch);
    if (!this.outstanding) this.pump();
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

  /**
   * Sends what can be sent now. What it calls may add messages and call it again: it continues with them when it has sent the
   * message that it has taken, so that none overtakes another.
   */
  pump(): void {
    this.#mustPumpAgain = true;
    if (this.#isPumping) return;
    this.#isPumping = true;
    try {
      while (this.#mustPumpAgain) {
        this.#mustPumpAgain = false;
        this.#sendAll();
      }
    } finally {
      this.#isPumping = false;
    }
  }

  #sendAll(): void {
    while (!this.outstanding && !this.#gate.isWaiting && !this.#isOver) {
      if (this.#call.isOver) return;
      if (!this.#sendNext()) {
        if (!this.outstanding && !this.#gate.isWaiting) this.#listener.onIdle();
        return;
      }
    }
  }

  /** Sends nothing more. Idempotent. */
  close(): void {
    if (this.#isOver) return;
    this.#isOver = true;
    this.#frames = noFrames;
    this.#relayed = new Fifo();
    this.#gate.stop();
    if (this.outstanding) this.#call.onClosed(() => this.#release());
    else this.#release();
  }

  /** Returns whether there may be more to send. */
  #sendNext(): boolean {
    const frame = this.#frames[this.#next];
    if (frame !== undefined) return this.#sendBatch(frame);
    if (this.#fragmented?.isOver === false) return this.#sendRelayed();
    if (this.#answers.at(0)?.frame !== undefined) return this.#sendAnswer();
    if (this.#mustWait()) return false;
    if (this.#wasRelayed) return this.#sendCached() || this.#sendRelayed();
    return this.#sendRelayed() || this.#sendCached();
  }

  #sendAnswer(): boolean {
    const { frame, watch } = this.#answers.shift() as AnswerSlot;
    if (watch !== undefined && !watch.isOver) {
      watch.isAnnounced = true;
      this.#send(frame as Uint8Array);
      this.#listener.onAnnounced(watch);
    } else {
      this.#send(frame as Uint8Array);
    }
    return true;
  }

  /** Sends the next batch of the next watch that has one. */
  #sendCached(): boolean {
    for (let watch = this.#ready.shift(); watch !== undefined; watch = this.#ready.shift()) {
      watch.isQueued = false;
      if (watch.isOver) continue;
      const frames = this.#listener.framesOf(watch);
      if (frames === undefined) continue;
      // Behind the other watches.
      watch.isQueued = true;
      this.#ready.push(watch);
      const [first] = frames;
      if (first === undefined) continue;
      watch.isActive = true;
      this.#wasRelayed = false;
      this.#frames = frames;
      this.#next = 0;
      this.#watch = watch;
      this.#count(frames);
      return this.#sendBatch(first);
    }
    return false;
  }

  /** Sends a frame of the current batch, whose responses have the watch id 0. */
  #sendBatch(frame: Uint8Array): boolean {
    this.#next++;
    if (this.#next === this.#frames.length) this.#frames = noFrames;
    const fields = this.#watch?.idField;
    if (fields === undefined || fields.length === 0) this.#send(frame);
    else this.#sendParts(withFieldsInEach(frame, fields));
    return true;
  }

  #sendRelayed(): boolean {
    for (let next = this.#relayed.shift(); next !== undefined; next = this.#relayed.shift()) {
      const { watch, parts, bytes, fragment, sent, isLast } = next;
      this.#relayedBytes -= bytes;
      watch.waiting--;
      this.#listener.onRelayed();
      if (watch.isOver && !isLast) continue;
      this.#fragmented = fragment ? watch : undefined;
      this.#wasRelayed = true;
      if (sent !== undefined && sent > watch.sent) watch.sent = sent;
      this.#count(parts);
      this.#sendParts(parts);
      return true;
    }
    return false;
  }

  /** Whether nothing may be sent now, for lack of room or because of the caller's rate. */
  #mustWait(): boolean {
    const isEmpty = this.#ready.length === 0 && this.#relayed.length === 0;
    return !isEmpty && this.#gate.mustWait();
  }

  /** Counts what is about to be sent, until the client has accepted all of it. */
  #count(frames: readonly Uint8Array[]): void {
    let bytes = 0;
    for (const frame of frames) bytes += frame.byteLength;
    this.#context.callerLimits.sendPacing.charge(this.#call.owner, bytes);
    if (bytes < leastCounted) return;
    this.#release();
    this.#reservation = this.#context.sendBudget.force(this.#call.connection);
    this.#reservation.send(frames, this.#listener.onCut);
  }

  #send(frame: Uint8Array): void {
    this.sent++;
    if (this.#call.sendAtOnce(frame)) {
      this.#accepted();
      return;
    }
    this.outstanding = true;
    this.#call.send(frame, this.#onAccepted);
  }

  #sendParts(parts: FrameParts): void {
    const [only] = parts;
    if (only !== undefined && parts.length === 1) {
      this.#send(only);
      return;
    }
    this.sent++;
    this.outstanding = true;
    this.#call.sendParts(parts, this.#onAccepted);
  }

  readonly #onAccepted = (error?: Error | null): void => {
    this.outstanding = false;
    if (error !== undefined && error !== null) return;
    this.#accepted();
    this.pump();
  };

  #accepted(): void {
    this.#listener.onAccepted();
    this.#watch?.watcher?.accepted();
    if (this.#frames.length === 0) {
      this.#watch = undefined;
      this.#release();
    }
  }

  #release(): void {
    this.#reservation?.release();
    this.#reservation = undefined;
  }
}
