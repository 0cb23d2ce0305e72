import type { Identity } from "../../identity/identity.ts";
import { type FrameParts, sizeOf } from "../../wire/encode.ts";
import type { WireStatus } from "../../wire/errors.ts";
import type { CallerLimits } from "../limits/caller-limits.ts";
import type { CallOwner } from "../limits/callers.ts";
import type { SendBudget, SendReservation } from "../limits/send-budget.ts";
import type { ServerCall } from "./server-call.ts";
import type { ServiceContext } from "./service-context.ts";
import type { SlowClients, SlowStream } from "./slow-clients.ts";
import type { Sender, StallDetector } from "./stall-detector.ts";

/** Messages that are smaller than this, in bytes, are not counted: the stream itself takes more memory. */
const leastCounted = 4 * 1024;

const noFrames: FrameParts = [];

/** The call that messages are sent on. */
export type OutgoingCall = Pick<
  ServerCall,
  | ("connection" | "owner" | "identity" | "address" | "isOver" | "onClosed")
  | ("sendAtOnce" | "send" | "sendParts" | "heldFor" | "withdraw" | "end" | "reset")
>;

/** What the senders of a server share. */
export interface SendContext {
  readonly sendBudget: Pick<SendBudget, "mayBuild" | "whenMayBuild" | "force">;
  readonly callerLimits: Pick<CallerLimits, "sendPacing">;
  readonly stallDetector: StallDetector;
  readonly slowClients: Pick<SlowClients, "ended">;
}

/**
 * How a client is ended that accepts too little: the same message has been outstanding for too long, or its memory is needed
 * for others. "unreachable": evicted, and the message is sent in part, so that it is reset without a status.
 */
export type SlowEnd = "stalled" | "evicted" | "unreachable";

/**
 * Sends the messages of a call: the one loop that all streams and responses in pieces share, each of which extends it. It has
 * one message outstanding: the next is sent when the client has accepted the one before. So a slow client delays only itself,
 * and at most what one `next` returns is held for it here. That is counted in the send budget until it is accepted.
 *
 * Nothing is taken from `next` while more was sent to the caller than it may get per second, or while there is no room in
 * the send budget. A client that accepts nothing for the stall timeout is ended, and so is one whose message is evicted from
 * the send budget.
 *
 * The owner of the call calls `close` when the call is over.
 */
export abstract class MessageSender<
  Call extends OutgoingCall = ServerCall,
  Context extends SendContext = ServiceContext,
> implements Sender
{
  protected readonly call: Call;
  protected readonly context: Context;
  /** What the last `next` has returned, and the index of the next frame to send. */
  #frames = noFrames;
  #next = 0;
  /** The part of the send budget of what was taken last, until it is accepted. */
  #reservation: SendReservation | undefined;
  /** That of what waits behind a message that is stuck, and the number of messages that were sent when that was last asked. */
  #waiting: SendReservation | undefined;
  #seenSent = 0;
  /** Stops waiting for the rate or for room; undefined while it does not wait. */
  #stopWaiting: (() => void) | undefined;
  /** Whether room was granted for the next frames. */
  #hasRoom = false;
  #isPumping = false;
  /** Whether there may be more to send than when `pump` was entered. */
  #mustPumpAgain = false;
  #isOver = false;
  sent = 0;
  outstanding = false;
  outstandingSince = 0;
  isObserved = false;

  constructor(call: Call, context: Context) {
    this.call = call;
    this.context = context;
  }

  /**
   * What the next frames have to wait for: the rate of their caller; room in the send budget, behind the rate; or nothing, as
   * small answers do, and a sender that has nothing to send.
   */
  protected abstract readonly waitsFor: "nothing" | "rate" | "room";

  /**
   * Takes the next frames to send. Called when the client has accepted all before, and they need not wait any more. Undefined:
   * there is nothing now; call `pump` when there may be something. It may end the call instead.
   */
  protected abstract next(): FrameParts | undefined;

  /** What is held to be sent behind the frames of the last `next`. It is counted in the send budget with them. */
  protected get rest(): FrameParts {
    return noFrames;
  }

  /** Whether the frames of one `next` are one message, in parts. Otherwise each is a message, and waits for the one before. */
  protected readonly isOneMessage: boolean = false;

  /** Whether what is sent counts in the send budget only once it is stuck, by `chargeIfStuck`. */
  protected readonly isCountedIfStuck: boolean = false;

  /** Whether another message follows what the last `next` has returned at once, so that they are written together. */
  protected isFollowed = false;

  /** Whether something else ends what stalls, and knows more about why. It gets an eighth of the timeout more for that. */
  readonly isEndedElsewhere: boolean = false;

  /** A frame is sent. `isLast`: all of the frames of its `next` are sent with it. */
  protected onSent(_frame: Uint8Array, _isLast: boolean): void {}

  /** The client has accepted what was sent last. */
  protected onAccepted(): void {}

  /** For the log, of a client that accepts too little. */
  protected get slowStream(): SlowStream | undefined {
    return undefined;
  }

  /** The status of a client that accepts too little; undefined: the call is reset. See `SlowEnd`. */
  protected slowStatus(_end: SlowEnd): WireStatus | undefined {
    return undefined;
  }

  /**
   * More is held than all connections together may hold, and its connection holds most. `isOutstanding`: the message that is
   * outstanding was evicted, otherwise what waits behind it. Either counts no more, so it must not be held any more.
   */
  protected onEvicted(_isOutstanding: boolean): void {
    this.#endSlow("evicted");
  }

  /** `next` has thrown this error: ends the call. */
  protected onFailed(error: unknown): void {
    throw error;
  }

  /** Nothing more is sent. Called once, however the sending ends. */
  protected onClosed(): void {}

  get connection(): object {
    return this.call.connection;
  }

  get owner(): CallOwner {
    return this.call.owner;
  }

  get identity(): Identity {
    return this.call.identity;
  }

  /** Whether it waits for the rate of the caller or for room in the send budget. */
  get isWaiting(): boolean {
    return this.#stopWaiting !== undefined;
  }

  /** Whether nothing can be sent now: it waits, or a message is outstanding. */
  get isBlocked(): boolean {
    return this.outstanding || this.isWaiting;
  }

  /** Whether nothing more is sent. */
  get isOver(): boolean {
    return this.#isOver;
  }

  /** What is held because the client does not accept it, in bytes. */
  get heldBytes(): number {
    return this.outstanding ? (this.#reservation?.bytes ?? 0) : 0;
  }

  /** For how long the last message has been outstanding, in milliseconds; 0 if none is. */
  get outstandingMs(): number {
    return this.context.stallDetector.outstandingMs(this);
  }

  /**
   * Sends what can be sent now. The source may call it again from within: it continues when the current message is sent,
   * so that none overtakes another and nothing recurses.
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
    } catch (error) {
      this.onFailed(error);
    } finally {
      this.#isPumping = false;
    }
  }

  /** Reserves room for frames that `next` returns in a later step. Call it within a `next` that returns none. */
  claim(bytes: number): void {
    this.#reservation = this.context.sendBudget.force(this.call.connection, bytes);
    this.#reservation.claim();
  }

  /**
   * Counts `bytes` that wait behind a message that has been outstanding since the call before this one. Call it about once a
   * second: otherwise what waits would take the room that it needs to be sent.
   */
  chargeIfStuck(bytes: number): void {
    const isStuck = this.sent === this.#seenSent;
    this.#seenSent = this.sent;
    const charged = isStuck ? bytes : 0;
    if (this.#isOver || (this.#waiting?.bytes ?? 0) === charged) return;
    this.#waiting?.release();
    this.#waiting = undefined;
    if (charged === 0) return;
    this.#waiting = this.context.sendBudget.force(this.call.connection);
    this.#waiting.send(noFrames, () => this.onEvicted(false), charged);
  }

  /**
   * Ends the call because its client accepts too little. The outstanding message is taken back if none of it was passed on, so
   * that the client gets the status. Idempotent.
   */
  stalled(): void {
    this.#endSlow("stalled");
  }

  /** Ends the call with the status, behind what was sent. Idempotent. */
  end(status: WireStatus): void {
    if (this.#isOver) return;
    this.close();
    this.call.end(status);
  }

  /** Sends nothing more. Idempotent. */
  close(): void {
    if (this.#isOver) return;
    this.#isOver = true;
    this.#frames = noFrames;
    this.#stopWaiting?.();
    this.#stopWaiting = undefined;
    this.context.stallDetector.delete(this);
    this.#waiting?.release();
    const isHeld = this.outstanding && this.#reservation !== undefined;
    if (isHeld) this.call.onClosed(() => this.#release());
    else this.#release();
    this.onClosed();
  }

  /** Takes back what the last `next` has returned and is not passed on yet. Returns whether nothing of it is outstanding now. */
  protected withdraw(): boolean {
    if (this.outstanding && !this.call.withdraw()) return false;
    this.outstanding = false;
    // Room may have been refused to it before it was sent.
    this.#frames = noFrames;
    this.#next = 0;
    this.#release();
    return true;
  }

  #sendAll(): void {
    while (!this.isBlocked && !this.#isOver) {
      const frame = this.#frames[this.#next];
      if (frame !== undefined) this.#send(frame);
      else if (this.#mustWait() || !this.#take()) return;
    }
  }

  /** Whether the next frames have to wait. Room that is granted is for one `next`. */
  #mustWait(): boolean {
    const { waitsFor } = this;
    if (waitsFor === "nothing") return false;
    const hasRoom = this.#hasRoom;
    this.#hasRoom = false;
    const { sendBudget, callerLimits } = this.context;
    const { owner, connection } = this.call;
    if (callerLimits.sendPacing.exceededBy(owner.caller) !== undefined) {
      this.#stopWaiting = callerLimits.sendPacing.wait(owner, () => this.#resume(false));
      return true;
    }
    if (waitsFor === "rate" || hasRoom || sendBudget.mayBuild(connection)) return false;
    // To ask again when room is granted would put it behind the others that wait, without an end.
    this.#stopWaiting = sendBudget.whenMayBuild(connection, () => this.#resume(true));
    return true;
  }

  #resume(hasRoom: boolean): void {
    this.#stopWaiting = undefined;
    this.#hasRoom = hasRoom;
    this.pump();
    this.#hasRoom = false;
  }

  /** Takes the next frames. Returns whether there may be something to send. */
  #take(): boolean {
    const frames = this.next();
    // It may have ended the call, after which nothing releases what is counted.
    if (frames === undefined || this.#isOver) return false;
    this.#next = 0;
    this.#frames = frames;
    this.#count(frames);
    return true;
  }

  /** Counts frames that are about to be sent, until the client has accepted the last of them. */
  #count(frames: FrameParts): void {
    const { callerLimits, sendBudget } = this.context;
    callerLimits.sendPacing.charge(this.call.owner, sizeOf(frames));
    const { rest } = this;
    const sent = this.call.heldFor?.(frames, this.isOneMessage) ?? frames;
    const held = rest.length === 0 ? sent : [...sent, ...rest];
    const isSmall = sizeOf(held) < leastCounted && this.#reservation === undefined;
    if (isSmall || this.isCountedIfStuck) return;
    this.#reservation ??= sendBudget.force(this.call.connection);
    this.#reservation.send(held, this.#onEvicted);
  }

  readonly #onEvicted = (): void => this.onEvicted(true);

  #send(frame: Uint8Array): void {
    const call = this.call;
    const frames = this.#frames;
    const isWhole = frames.length > 1 && this.isOneMessage;
    const isLast = isWhole || this.#next + 1 === frames.length;
    if (isLast) this.#frames = noFrames;
    this.#next = isLast ? 0 : this.#next + 1;
    const isAccepted = !isWhole && call.sendAtOnce(frame, this.isFollowed);
    if (!isAccepted && call.isOver) {
      this.close();
      return;
    }
    this.sent++;
    this.onSent(frame, isLast);
    if (isAccepted) {
      this.#accepted();
      return;
    }
    this.outstanding = true;
    this.outstandingSince = this.context.stallDetector.observe(this);
    if (isWhole) call.sendParts(frames, this.#onAccepted);
    else call.send(frame, this.#onAccepted);
  }

  readonly #onAccepted = (error?: Error | null): void => {
    this.outstanding = false;
    if (error !== undefined && error !== null) {
      this.close();
      return;
    }
    this.#accepted();
    this.pump();
  };

  #accepted(): void {
    if (this.#frames.length === 0) this.#release();
    if (this.#waiting !== undefined) this.chargeIfStuck(0);
    this.onAccepted();
  }

  #endSlow(end: SlowEnd): void {
    if (this.#isOver) return;
    const { slowClients } = this.context;
    const acceptedNothingMs = this.outstandingMs || undefined;
    slowClients.ended(this.call, { ...this.slowStream, acceptedNothingMs });
    // What was evicted has to be released now, with the call if it can't be withdrawn.
    const isReachable = this.withdraw() || end === "stalled";
    const status = this.slowStatus(isReachable ? end : "unreachable");
    this.close();
    if (isReachable && status !== undefined) this.call.end(status);
    else this.call.reset();
  }

  #release(): void {
    this.#reservation?.release();
    this.#reservation = undefined;
  }
}
