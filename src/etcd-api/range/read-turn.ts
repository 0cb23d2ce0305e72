import type { CallContext } from "../../server/calls/call-context.ts";
import type { RequestingCall, RequestsInFlight } from "../../server/calls/requests-in-flight.ts";
import { ResponseAdmission } from "../../server/calls/response-admission.ts";
import type { ServerCall } from "../../server/calls/server-call.ts";
import { expectedObjectBytes } from "../../server/limits/expected-sizes.ts";

/** The room for the response of a call, and the turn of its caller among the reads that are handled at once. */
export class ReadTurn {
  readonly admission: ResponseAdmission;
  readonly #reads: RequestsInFlight;
  readonly #requesting: RequestingCall;
  #hasBegun = false;

  /** `requestBytes`: size of the request. `signal` is aborted when the client no longer waits. */
  constructor(context: CallContext, call: ServerCall, requestBytes: number, signal: AbortSignal) {
    const { connection, owner } = call;
    this.admission = new ResponseAdmission(context, call, signal);
    this.#reads = context.inFlight.reads;
    this.#requesting = { connection, owner, signal, requestBytes };
  }

  /** Waits for both; undefined: there is room now, and it is the caller's turn. Call it once, before anything is read. */
  readonly begin = (): Promise<void> | undefined =>
    this.admission.admit(expectedObjectBytes)?.then(() => this.#begin()) ?? this.#begin();

  /** Everything has been read. Idempotent. */
  end(): void {
    if (!this.#hasBegun) return;
    this.#hasBegun = false;
    this.#reads.end(this.#requesting);
  }

  /** Releases what the call still has. Idempotent. */
  release(): void {
    this.end();
    this.admission.release();
  }

  #begin(): Promise<void> | undefined {
    const begun = (): void => {
      this.#hasBegun = true;
    };
    const wait = this.#reads.begin(this.#requesting);
    if (wait !== undefined) return wait.then(begun);
    begun();
    return undefined;
  }
}
