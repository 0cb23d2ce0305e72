import type { CallContext } from "../../server/calls/call-context.ts";
import type { RelayedCall } from "../../server/calls/relayed-methods.ts";

/** Delays what is sent to a client: by the rate of its caller, and until there is room for its connection. */
export class SendGate {
  readonly #call: RelayedCall;
  readonly #context: CallContext;
  readonly #resume: () => void;
  /** Stops waiting; undefined: it does not wait. */
  #stopWaiting: (() => void) | undefined;
  /** Whether room was granted for the next message. */
  #hasRoom = false;

  /** `resume` is called after `mustWait` has returned true, to try again. It must ask `mustWait` again. */
  constructor(call: RelayedCall, context: CallContext, resume: () => void) {
    this.#call = call;
    this.#context = context;
    this.#resume = resume;
  }

  /** Whether it waits. */
  get isWaiting(): boolean {
    return this.#stopWaiting !== undefined;
  }

  /** Whether the next message has to wait. If not, send it now. */
  mustWait(): boolean {
    const { sendBudget, callerLimits } = this.#context;
    const { sendPacing } = callerLimits;
    const { owner, connection } = this.#call;
    const hasRoom = this.#hasRoom;
    this.#hasRoom = false;
    if (sendPacing.exceededBy(owner.caller) !== undefined) {
      this.#stopWaiting = sendPacing.wait(owner, () => this.#goOn(false));
    } else if (!hasRoom && !sendBudget.mayBuild(connection)) {
      // Room is granted to one that waits. To ask again would put it behind the others that wait, without an end.
      this.#stopWaiting = sendBudget.whenMayBuild(connection, () => this.#goOn(true));
    } else return false;
    return true;
  }

  /** Stops waiting. Idempotent. */
  stop(): void {
    this.#stopWaiting?.();
    this.#stopWaiting = undefined;
  }

  #goOn(hasRoom: boolean): void {
    this.#stopWaiting = undefined;
    this.#hasRoom = hasRoom;
    this.#resume();
    this.#hasRoom = false;
  }
}
