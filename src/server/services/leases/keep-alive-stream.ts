import { status } from "@grpc/grpc-js";
import type { Timer } from "../../../base/clock.ts";
import type { WatchFanoutError } from "../../../base/errors.ts";
import { Fifo } from "../../../base/fifo.ts";
import type { FrameParts } from "../../../wire/encode.ts";
import { statusOf, type WireStatus } from "../../../wire/errors.ts";
import { MessageSender } from "../../calls/message-sender.ts";
import { nextNotAccepted, refused } from "../../calls/refusals.ts";
import type { ServerCall } from "../../calls/server-call.ts";
import type { ServiceContext } from "../../calls/service-context.ts";
import { nextStreamId, type OpenStream } from "../../kernel/open-streams.ts";
import type { SendReservation } from "../../limits/send-budget.ts";

/** Maximum number of requests of a stream that are answered at once. The next one is read when the first has its response. */
const maxAtOnce = 16;

/** A request that is being answered, or whose response waits for those before it. */
interface Answering {
  /** Undefined: it is not known yet. */
  response: FrameParts | undefined;
  /** Counts the response in the send budget until it is sent. */
  held: SendReservation | undefined;
}

/** A KeepAlive stream: sends the responses in the order of their requests. */
export class KeepAliveStream extends MessageSender implements OpenStream {
  readonly id = nextStreamId();
  readonly streamKind = "keep-alive";
  readonly access = undefined;
  readonly openedAt: number;
  /** When it reaches the maximum age, in the clock's milliseconds; undefined: never. */
  readonly expiresAt: number | undefined;
  protected override readonly isOneMessage = true;
  readonly #gone = new AbortController();
  readonly #answering = new Fifo<Answering>();
  /** Continues the reader of requests. */
  #onRoom: (() => void) | undefined;
  /** Why it ends behind the responses to the requests that were read; undefined: it continues. */
  #ending: WireStatus | undefined;
  #endTimer: Timer | undefined;
  readonly #onEnd: (stream: KeepAliveStream) => void;

  /** `onEnd` is called once, when it has ended. */
  constructor(
    call: ServerCall,
    context: ServiceContext,
    expiresAt: number | undefined,
    onEnd: (stream: KeepAliveStream) => void,
  ) {
    super(call, context);
    this.expiresAt = expiresAt;
    this.openedAt = context.clock.now();
    this.#onEnd = onEnd;
    call.onOver(() => this.close());
  }

  /** Aborted when it has ended. */
  get signal(): AbortSignal {
    return this.#gone.signal;
  }

  /** Whether no further request is read. */
  get isEnding(): boolean {
    return this.isOver || this.#ending !== undefined;
  }

  /** Reserves the place of the response to the next request, which the returned function sends. */
  answer(): (response: FrameParts) => void {
    const answering: Answering = { response: undefined, held: undefined };
    this.#answering.push(answering);
    return (response) => {
      answering.response = response;
      const held = this.context.sendBudget.force(this.call.connection);
      answering.held = held;
      held.send(response, () => this.onEvicted(false));
      // It may have evicted this stream.
      if (this.isOver) held.release();
      else this.pump();
    };
  }

  /** Resolves when the next request may be read. */
  async room(): Promise<void> {
    if (this.#answering.length < maxAtOnce || this.isEnding) return;
    await new Promise<void>((resolve) => {
      this.#onRoom = resolve;
    });
  }

  /** The client sends no more requests. */
  halfClosed(): void {
    this.#ending ??= refused(status.OK, "");
    this.pump();
  }

  /** Ends it behind the responses to the requests that were read, and before long. */
  endSoon(error: WatchFanoutError): void {
    if (this.isEnding) return;
    const ending = statusOf(error);
    this.#ending = ending;
    const { clock, limits } = this.context;
    this.#endTimer = clock.setTimeout(() => this.end(ending), limits.endFlushMs);
    this.#wakeReader();
    this.pump();
  }

  evict(error: WatchFanoutError): void {
    this.end(statusOf(error));
  }

  /** Not for room: what is ready is held and counted already, and would wait for itself. */
  protected override get waitsFor(): "nothing" | "rate" {
    return this.#answering.at(0)?.response === undefined ? "nothing" : "rate";
  }

  protected override next(): FrameParts | undefined {
    const parts: Uint8Array[] = [];
    const several = this.call.sendsSeveral === true;
    for (let ready = this.#answering.at(0)?.response; ready !== undefined; ) {
      this.#answering.shift()?.held?.release();
      parts.push(...ready);
      ready = several ? this.#answering.at(0)?.response : undefined;
    }
    if (this.#answering.length < maxAtOnce) this.#wakeReader();
    if (parts.length > 0) return parts;
    if (this.#answering.length === 0 && this.#ending !== undefined) this.end(this.#ending);
    return undefined;
  }

  protected override slowStatus(): WireStatus | undefined {
    return this.outstanding ? undefined : nextNotAccepted();
  }

  protected override onClosed(): void {
    this.#endTimer?.cancel();
    this.#gone.abort(streamOver);
    for (let left = this.#answering.shift(); left !== undefined; left = this.#answering.shift()) {
      left.held?.release();
    }
    this.#wakeReader();
    this.#onEnd(this);
  }

  #wakeReader(): void {
    const onRoom = this.#onRoom;
    this.#onRoom = undefined;
    onRoom?.();
  }
}

/** One instance for all, since its identity is all that is read of it. */
const streamOver = new Error("The stream has ended.");
