import { status } from "@grpc/grpc-js";
import { stopped } from "../../etcd/wire/error-texts.ts";
import { nextMessage, UnreadableMessage } from "../../etcd/wire/messages.ts";
import { clientGone } from "../../server/calls/call-admission.ts";
import type { RawCall } from "../../server/calls/methods.ts";
import { refused } from "../../server/calls/refusals.ts";
import type { ServiceContext } from "../../server/calls/service-context.ts";
import type { Rounds } from "../../server/kernel/rounds.ts";
import { type FrameParts, frameOf } from "../../wire/encode.ts";
import type { WireStatus } from "../../wire/errors.ts";
import { MessageReader } from "../../wire/message-reader.ts";
import { EtcdCall } from "../calls/etcd-call.ts";

/** Maximum size of a request, in bytes: an id, or a name and a password. */
const maxRequestBytes = 4 * 1024;

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

/** A call whose requests are answered here one after another, each with a question to etcd. So exactly what was checked is asked. */
export class AnsweredCall extends EtcdCall {
  readonly #deps: AnsweredCallDeps;
  readonly #received = new MessageReader();
  readonly #gone = new AbortController();
  /** Whether a request is being answered, until the client has accepted the response. */
  #isAnswering = false;
  #hasAnswered = false;
  /** The client has sent everything. */
  #hasEnded = false;
  #response: Buffer | undefined;

  constructor(call: RawCall, context: ServiceContext, deps: AnsweredCallDeps) {
    super(call, context, deps.calls, "etcd call", deps.path.slice(1), []);
    this.#deps = deps;
  }

  /** Reads the requests. */
  start(): void {
    if (!this.open()) return;
    const { request } = this.call;
    request.on("data", this.#take);
    request.on("end", () => {
      this.#hasEnded = true;
      this.#handleNext();
    });
  }

  drain(): void {
    if (this.#deps.isStream) this.end(refused(status.UNAVAILABLE, stopped));
  }

  check(now: number): void {
    if (!this.#deps.isStream && !this.#isAnswering) this.endIfLate(now);
  }

  protected override get waitsFor(): "rate" {
    return "rate";
  }

  protected override next(): FrameParts | undefined {
    const response = this.#response;
    this.#response = undefined;
    if (response !== undefined) return [response];
    if (this.#hasAnswered && !this.#deps.isStream) this.#succeed();
    return undefined;
  }

  protected override onAccepted(): void {
    this.#isAnswering = false;
    this.#handleNext();
  }

  protected override onClosed(): void {
    super.onClosed();
    this.#received.clear();
    this.#gone.abort(clientGone);
    // What the client still sends is read and dropped.
    if (!this.call.request.destroyed) this.call.request.resume();
  }

  readonly #take = (chunk: Buffer): void => {
    if (this.isOver) return;
    this.#received.add(chunk);
    this.#received.own();
    this.requestCharge?.resize(this.#received.heldBytes);
    this.#handleNext();
  };

  #handleNext(): void {
    if (this.isOver || this.#isAnswering || (this.#hasAnswered && !this.#deps.isStream)) return;
    const { request } = this.call;
    try {
      const message = nextMessage(this.#received, maxRequestBytes);
      if (message !== undefined) {
        this.#isAnswering = true;
        request.pause();
        void this.#answer(Buffer.from(message));
      } else if (!this.#hasEnded) {
        request.resume();
      } else if (this.#deps.isStream && this.#received.bytes.length === 0) {
        this.#succeed();
      } else {
        this.end(refused(status.INTERNAL, "the request ends before its message does"));
      }
    } catch (error) {
      if (!(error instanceof UnreadableMessage)) throw error;
      const details = `grpc: failed to unmarshal the received message: ${error.message}`;
      this.end(refused(status.INTERNAL, details));
    }
  }

  async #answer(request: Buffer): Promise<void> {
    try {
      const answer = await this.#deps.answer(request, this.#gone.signal);
      if (this.isOver) return;
      if ("code" in answer) {
        this.end(answer);
        return;
      }
      this.#hasAnswered = true;
      this.#response = Buffer.concat(frameOf(answer));
      this.pump();
    } catch (error) {
      if (!this.isOver) this.onFailed(error);
    }
  }

  #succeed(): void {
    this.call.sendTrailers({ "grpc-status": "0" });
    this.close();
  }
}
