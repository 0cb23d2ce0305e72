import { clientGone } from "../../server/calls/call-admission.ts";
import { MessageReader } from "../../wire/message-reader.ts";
import { EtcdCall } from "./etcd-call.ts";

/** A call of etcd's API whose requests are read here. What of them is held is charged to its connection. */
export abstract class RequestCall extends EtcdCall {
  /** What has arrived and is not handled. */
  protected readonly received = new MessageReader();
  readonly #gone = new AbortController();
  #isReading = false;

  /** Counts the call, and reads its requests. */
  start(): void {
    if (!this.open()) return;
    this.#isReading = true;
    this.call.request.on("data", this.#take).on("end", this.#end);
  }

  /** It ends by itself, though not before its client has read the response. */
  drain(): void {}

  check(now: number): void {
    if (this.#isReading) this.endIfLate(now);
  }

  /** Is aborted when the call has ended. */
  protected get gone(): AbortSignal {
    return this.#gone.signal;
  }

  /** More has arrived. */
  protected abstract onArrived(): void;

  /** The client has sent everything. */
  protected abstract onRequestEnd(): void;

  /** What the client still sends is read and dropped, so that it takes no memory until the call ends. Idempotent. */
  protected stopReading(): void {
    this.#isReading = false;
    const { request } = this.call;
    request.off("data", this.#take).off("end", this.#end);
    if (!request.destroyed) request.resume();
  }

  protected override onClosed(): void {
    super.onClosed();
    this.stopReading();
    this.received.clear();
    this.#gone.abort(clientGone);
  }

  readonly #take = (chunk: Buffer): void => {
    const { received } = this;
    received.add(chunk);
    received.own();
    this.requestCharge?.resize(received.heldBytes);
    if (!this.isOver) this.onArrived();
  };

  readonly #end = (): void => {
    if (!this.isOver) this.onRequestEnd();
  };
}
