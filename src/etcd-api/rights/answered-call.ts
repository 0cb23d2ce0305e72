import { status } from "@grpc/grpc-js";
import { Fifo } from "../../base/fifo.ts";
import { stopped } from "../../etcd/wire/error-texts.ts";
import { nextMessage, UnreadableMessage } from "../../etcd/wire/messages.ts";
import type { RawCall } from "../../server/calls/methods.ts";
import { refused } from "../../server/calls/refusals.ts";
import type { ServiceContext } from "../../server/calls/service-context.ts";
import type { Rounds } from "../../server/kernel/rounds.ts";
import { type FrameParts, frameOf } from "../../wire/encode.ts";
import type { WireStatus } from "../../wire/errors.ts";
import type { EtcdCall } from "../calls/etcd-call.ts";
import { RequestCall } from "../calls/request-call.ts";

/** Maximum size of a request, in bytes: an id, or a name and a password. */
const maxRequestBytes = 4 * 1024;

/**
 * Maximum number of requests of a stream that are answered at once. A keepalive takes etcd some milliseconds, and a client may
 * have a thousand leases. With those of a caller that are asked about at once, as many are kept alive: more would only wait,
 * and so delay the streams of others.
 */
const maxAtOnce = 8;

/** A request that is being answered, or whose response the client can't accept yet. */
interface Answering {
  /** Undefined: it is not known yet. */
  outcome?: { readonly response: Buffer } | { readonly status: WireStatus } | { error: unknown };
}

/** What an answered call is made of. */
export interface AnsweredCallDeps {
  readonly path: string;
  /** Whether it has a stream of requests, each of which is answered. */
  readonly isStream: boolean;
  readonly calls: Rounds<EtcdCall>;
  /**
   * Resolves to the response to a request, both without gRPC's prefix, or to the status that ends the call. May reject with a
   * RefusedRequest, and with the reason of the signal, which is aborted when the call has ended.
   */
  readonly answer: (request: Buffer, signal: AbortSignal) => Promise<Buffer | WireStatus>;
}

/**
 * A call whose requests are answered here, each with a question to etcd. So exactly what was checked is asked. Those of a stream
 * are answered several at once, and their responses sent in the order of the requests, as etcd does.
 */
export class AnsweredCall extends RequestCall {
  readonly #deps: AnsweredCallDeps;
  /** In the order of the requests. */
  readonly #answering = new Fifo<Answering>();
  #hasAnswered = false;
  /** The client has sent everything. */
  #hasEnded = false;
  /** No more of what it sends is read. */
  #isTaken = false;

  constructor(call: RawCall, context: ServiceContext, deps: AnsweredCallDeps) {
    super(call, context, deps.calls, "etcd call", deps.path.slice(1), []);
    this.#deps = deps;
  }

  override drain(): void {
    if (this.#deps.isStream) this.end(refused(status.UNAVAILABLE, stopped));
  }

  override check(now: number): void {
    if (!this.#deps.isStream && this.#mayTake) this.endIfLate(now);
  }

  protected override get waitsFor(): "rate" {
    return "rate";
  }

  protected override next(): FrameParts | undefined {
    const answering = this.#answering;
    const frames: Uint8Array[] = [];
    for (let outcome = answering.at(0)?.outcome; outcome !== undefined; ) {
      // Behind the responses before it.
      if (!("response" in outcome) && frames.length > 0) break;
      answering.shift();
      if ("error" in outcome) throw outcome.error;
      if ("status" in outcome) {
        this.end(outcome.status);
        return undefined;
      }
      this.#hasAnswered = true;
      frames.push(...frameOf(outcome.response));
      outcome = answering.at(0)?.outcome;
    }
    if (frames.length > 0) return [Buffer.concat(frames)];
    if (this.#hasAnswered && !this.#deps.isStream) this.#succeed();
    return undefined;
  }

  protected override onAccepted(): void {
    this.#handleNext();
  }

  protected override onArrived(): void {
    this.#handleNext();
  }

  protected override onRequestEnd(): void {
    this.#hasEnded = true;
    this.#handleNext();
  }

  /** Whether a request that arrives is answered now. */
  get #mayTake(): boolean {
    const { length } = this.#answering;
    if (this.#isTaken) return false;
    return this.#deps.isStream ? length < maxAtOnce : length === 0 && !this.#hasAnswered;
  }

  #handleNext(): void {
    const { request } = this.call;
    try {
      while (!this.isOver && this.#mayTake) {
        const message = nextMessage(this.received, maxRequestBytes);
        if (message === undefined) {
          this.#awaitMore();
          return;
        }
        const answering: Answering = {};
        this.#answering.push(answering);
        void this.#answer(Buffer.from(message), answering);
      }
      if (!this.isOver) request.pause();
    } catch (error) {
      if (!(error instanceof UnreadableMessage)) throw error;
      const details = `grpc: failed to unmarshal the received message: ${error.message}`;
      this.#endBehind(refused(status.INTERNAL, details));
    }
  }

  /** No further message has arrived completely. */
  #awaitMore(): void {
    if (!this.#hasEnded) this.call.request.resume();
    else if (!this.#deps.isStream || this.received.bytes.length > 0)
      this.#endBehind(refused(status.INTERNAL, "the request ends before its message does"));
    else if (this.#answering.length === 0 && !this.outstanding) this.#succeed();
  }

  /** Takes no more requests, and ends the call behind the responses to those before. */
  #endBehind(why: WireStatus): void {
    this.#isTaken = true;
    this.stopReading();
    this.#answering.push({ outcome: { status: why } });
    this.pump();
  }

  async #answer(request: Buffer, answering: Answering): Promise<void> {
    try {
      const answer = await this.#deps.answer(request, this.gone);
      answering.outcome = "code" in answer ? { status: answer } : { response: answer };
    } catch (error) {
      answering.outcome = { error };
    }
    if (!this.isOver) this.pump();
  }

  #succeed(): void {
    this.call.sendTrailers({ "grpc-status": "0" });
    this.close();
  }
}
