import { status } from "@grpc/grpc-js";
import { waitFor } from "../../base/wait.ts";
import type { FrameParts } from "../../wire/encode.ts";
import type { WireStatus } from "../../wire/errors.ts";
import type { SendBudget, SendReservation } from "../limits/send-budget.ts";
import { refused, responseNotAccepted } from "./refusals.ts";
import { chargeOfRequest, type RequestingCall } from "./requests-in-flight.ts";
import { RefusedRequest, type ServerCall } from "./server-call.ts";
import type { ServiceContext } from "./service-context.ts";

/**
 * Expected size of a response with one object until its size is known, in bytes; a larger object that is cached is expected
 * to have its size. With a bound of 16 MiB per connection, 128 objects are read at once for a connection. Most objects are
 * far smaller; etcd's default maximum is 12 times as large.
 */
export const expectedObjectBytes = 128 * 1024;

/** Why a call's signal is aborted. One instance for all, since its identity is all that is read of it. */
export const clientGone = new Error("The client no longer waits for the response.");

const callOver = new Error("The call ended while it waited.");

export interface CallAdmissionOptions {
  /** Which requests are bounded together with it. */
  readonly kind: "reads" | "writes";
  /** The size of its request, in bytes. */
  readonly requestBytes: number;
  /** Is aborted when the client no longer waits for the response. */
  readonly signal: AbortSignal;
  /** Throws if the call must not be handled any more, since the caller's right was lost while it waited. */
  readonly recheck?: () => void;
}

/** What a call with one response does. */
export interface Handling<Answer> {
  /** Reads or writes, once it has awaited `admit`. Undefined: the call is answered by another server. */
  readonly perform: () => Promise<Answer | undefined>;
  /** Encodes the response and sends it. There is room for it. */
  readonly respond: (answer: Answer) => void;
  /** Ends the call for what one of the others has thrown. */
  readonly failed: (error: unknown) => void;
}

/**
 * When a call with one response is handled, and when its response is built. Before anything is read or written it waits
 *
 * 1. until its connection has room for the response: while the responses that a connection has not accepted exceed
 *    their bound, further calls of it wait, and their responses are not built;
 * 2. for the turn of its caller among the requests that are handled at once (`RequestsInFlight`). That comes second, so a
 *    client that does not read holds none of these.
 *
 * Then its right is checked again. Before the response is encoded it may wait again, for room across all connections.
 * While it waits, its request is charged to its connection like one that is incomplete.
 */
export class CallAdmission {
  readonly #context: ServiceContext;
  readonly #call: ServerCall;
  readonly #options: CallAdmissionOptions;
  readonly #requesting: RequestingCall;
  #reservation: SendReservation | undefined;
  #isHandled = false;

  constructor(context: ServiceContext, call: ServerCall, options: CallAdmissionOptions) {
    const { connection, owner } = call;
    const { requestBytes, signal } = options;
    this.#context = context;
    this.#call = call;
    this.#options = options;
    this.#requesting = { connection, owner, requestBytes, signal };
  }

  /** Handles the call from its begin to its response. Call it once. Rejects only with what `failed` throws. */
  async handle<Answer>({ perform, respond, failed }: Handling<Answer>): Promise<void> {
    const isOver = (): boolean => this.#options.signal.aborted || this.#call.isOver;
    try {
      const answer = await perform();
      this.handled();
      if (answer === undefined) return;
      const wait = this.mayEncode();
      if (wait !== undefined) await wait;
      if (!isOver()) respond(answer);
    } catch (error) {
      // The outcome of a call that has ended is neither sent nor logged.
      if (!isOver()) failed(error);
    } finally {
      this.release();
    }
  }

  /**
   * Waits until a call whose response has at most `maxBytes` may be handled; undefined: it may be now. Call it once,
   * before anything is read or written, and as late as possible. Rejects with the signal's reason, as
   * `RequestsInFlight.begin`, with what `recheck` throws, and with a `RefusedRequest` if the connection accepts too little
   * for `responseFlushMs`.
   */
  admit(maxBytes: number): Promise<void> | undefined {
    const { sendBudget } = this.#context;
    const { connection } = this.#call;
    this.#reservation = sendBudget.take(connection, maxBytes);
    if (this.#reservation !== undefined) return this.#begin();
    const room = this.#wait((onRoom) =>
      sendBudget.wait(connection, maxBytes, (reservation) => {
        this.#reservation = reservation;
        onRoom();
      }),
    );
    return room.then(() => this.#begin());
  }

  /** Everything has been read or written: another request may be handled. Idempotent. */
  handled(): void {
    if (!this.#isHandled) return;
    this.#isHandled = false;
    this.#context.inFlight[this.#options.kind].end(this.#requesting);
  }

  /** Waits for room across all connections; undefined: there is room. Call it just before the response is encoded. */
  mayEncode(): Promise<void> | undefined {
    const { sendBudget } = this.#context;
    if (!sendBudget.isFull) return undefined;
    return this.#wait((onRoom) =>
      sendBudget.whenNotFull(this.#call.connection, () => {
        // The response is encoded in a later step.
        this.#reservation?.claim();
        onRoom();
      }),
    );
  }

  /** Sends the response, and releases its room when the client has accepted it. */
  respond(frame: FrameParts): void {
    const call = this.#call;
    const reservation = this.#reservation ?? this.#context.sendBudget.force(call.connection);
    this.#reservation = undefined;
    sendResponse(this.#context, call, frame, reservation);
  }

  /** Releases what a call without a response holds. Idempotent; after `respond` it releases no room. */
  release(): void {
    this.handled();
    this.#reservation?.release();
    this.#reservation = undefined;
  }

  #begin(): Promise<void> | undefined {
    const wait = this.#context.inFlight[this.#options.kind].begin(this.#requesting);
    if (wait !== undefined) return wait.then(() => this.#begun());
    this.#begun();
    return undefined;
  }

  #begun(): void {
    this.#isHandled = true;
    // A call that has ended while something was read for it has been audited as that, once.
    this.#options.signal.throwIfAborted();
    this.#options.recheck?.();
  }

  /** `begin` starts to wait, and returns a function that stops it. */
  #wait(begin: (onRoom: () => void) => () => void): Promise<void> {
    const { clock, requestPool } = this.#context;
    const { responseFlushMs } = this.#context.limits;
    const { connection, requestBytes } = this.#call;
    return waitFor<void>(
      (resolve, reject) =>
        begin(() => {
          // A connection that closes ends its calls one after the other, which makes room: the remaining ones must not run.
          if (this.#call.isOver) reject(callOver);
          else resolve();
        }),
      {
        signal: this.#options.signal,
        deadline: {
          clock,
          ms: responseFlushMs,
          expire: () => {
            throw new RefusedRequest(responseNotAccepted(responseFlushMs));
          },
        },
        charge: chargeOfRequest(requestPool, connection, requestBytes),
      },
    );
  }
}

/**
 * Memory of a unary call whose response is not accepted, beside the response, in bytes: its HTTP/2 stream and listeners.
 * Many calls with small responses take far more memory than these.
 */
const callBytes = 4 * 1024;

/** Sends the response of a unary call, and holds its room in the send budget until the client has accepted it. */
export function sendResponse(
  { slowClients }: ServiceContext,
  call: ServerCall,
  parts: FrameParts,
  reservation: SendReservation,
): void {
  call.onClosed(() => reservation.release());
  const drop = (): void => {
    slowClients.ended(call);
    call.reset();
  };
  reservation.send(call.respond(parts), drop, callBytes);
}

/** By how much what is held may differ from what is charged, in bytes. */
const chargedBytes = 64 * 1024;

const noRoom = "the responses that clients have not accepted take too much memory";

/** Counts in the send budget what is held of a response that has not arrived completely, and so can't be sent. */
export class HeldResponse {
  readonly #budget: SendBudget;
  readonly #connection: object;
  readonly #end: (why: WireStatus) => void;
  #reservation: SendReservation | undefined;

  /** `end` ends the call, when all that is held is too much and this call holds most of it. */
  constructor(budget: SendBudget, connection: object, end: (why: WireStatus) => void) {
    this.#budget = budget;
    this.#connection = connection;
    this.#end = end;
  }

  /** Charges the number of bytes that are held now. May end the call. */
  charge(heldBytes: number): void {
    const charged = this.#reservation?.bytes ?? 0;
    const bytes = heldBytes < chargedBytes ? 0 : heldBytes;
    if (bytes === charged || (bytes > 0 && Math.abs(bytes - charged) < chargedBytes)) return;
    this.release();
    if (bytes === 0) return;
    this.#reservation = this.#budget.force(this.#connection);
    this.#reservation.send([], () => this.#end(refused(status.UNAVAILABLE, noRoom)), bytes);
  }

  /** Nothing is held. */
  release(): void {
    this.#reservation?.release();
    this.#reservation = undefined;
  }
}
