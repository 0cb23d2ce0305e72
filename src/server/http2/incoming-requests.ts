import { status } from "@grpc/grpc-js";
import type { Timer } from "../../base/clock.ts";
import { pinsOthers } from "../../base/growing-buffer.ts";
import { prefixSize } from "../../wire/encode.ts";
import type { WireStatus } from "../../wire/errors.ts";
import { BareMessageReader, MessageReader } from "../../wire/message-reader.ts";

import {
  drainingUnread,
  incomplete,
  outOfRequestRoom,
  refused,
  tookTooLong,
  tooLarge,
  tooManyIncomplete,
} from "../calls/refusals.ts";
import type { RequestBody, ServerCall } from "../calls/server-call.ts";
import type { ServiceContext } from "../calls/service-context.ts";
import type { Reservation } from "../kernel/ledger.ts";
import type { Caller } from "../limits/callers.ts";
import { Inflater, type Inflation } from "./inflater.ts";

/**
 * Charged for a call whose request has not arrived completely, in bytes, in addition to what has arrived. In memory a
 * call takes several times that, but a connection may have all of its calls waiting without losing one.
 */
const callBytes = 1024;

/** A call whose request is read. */
interface ReadCall extends ServerCall {
  requestBytes: number;
}

/** A call whose request has not arrived completely, or waits to be inflated. */
interface Incoming {
  readonly request: MessageReader | BareMessageReader;
  readonly since: number;
  /** Further bytes are dropped. */
  readonly stopReading: () => void;
  reservation: Reservation | undefined;
  counted: Reservation | undefined;
  /** Removes its message from those that wait to be inflated. */
  stopInflating: (() => void) | undefined;
}

/**
 * Reads the requests of calls with one request: collects the bytes, inflates them, and bounds the bytes by connection, the
 * number of incomplete ones by caller, and the time by call. Refuses a call that exceeds a bound, or whose request is not one
 * message. Errors have the codes and texts of grpc-js, except that an incomplete message is INVALID_ARGUMENT.
 */
export class IncomingRequests {
  /** Shared with the streams of requests. */
  readonly inflater = new Inflater();
  readonly #context: ServiceContext;
  /** The oldest first. */
  readonly #incoming = new Map<ReadCall, Incoming>();
  /** Calls that arrived in this turn of the event loop. */
  #uncounted: ReadCall[] = [];
  #timer: Timer | undefined;

  constructor(context: ServiceContext) {
    this.#context = context;
  }

  /** Reads the request of a call, and passes it to `onRequest`, unless the call has ended by then. */
  read(
    { stream, encoding, isBare = false, maxBytes, corruptCode }: RequestBody,
    call: ReadCall,
    onRequest: (message: Buffer) => void,
  ): void {
    const { clock, limits } = this.#context;
    const maxRequestBytes = maxBytes ?? limits.maxRequestBytes;
    const finish = (message: Buffer): void => {
      this.#forget(call);
      call.requestBytes = message.length;
      // A call that its client has cancelled, or that was refused, must have no effect.
      if (!call.isOver) onRequest(message);
    };
    const request = isBare ? new BareMessageReader() : new MessageReader();
    const take = (chunk: Buffer): void => {
      request.add(chunk);
      // Bytes after a complete message are bounded as well.
      const size = Math.max(request.size, request.received);
      if (size > maxRequestBytes) this.#refuse(call, tooLarge(size, maxRequestBytes));
      else this.#count(call);
    };
    const end = (): void => {
      const fault = isBare ? undefined : faultOf(request);
      const { bytes } = request;
      const isCompressed = isBare ? encoding !== "identity" : request.isCompressed;
      const message = messageOf(bytes, isBare ? 0 : prefixSize);
      stopReading();
      if (fault !== undefined) this.#refuse(call, fault);
      else if (isCompressed)
        this.#inflate(call, message, { encoding, maxBytes: maxRequestBytes, corruptCode }, finish);
      else finish(message);
    };
    const stopReading = (): void => {
      request.clear();
      stream.off("data", take).off("end", end).resume();
    };
    stream.on("data", take).on("end", end);
    this.#incoming.set(call, {
      ...{ request, since: clock.now(), stopReading },
      ...{ reservation: undefined, counted: undefined, stopInflating: undefined },
    });
    call.onOver(() => this.#forget(call));
    this.#countLater(call);
    this.#setTimer();
  }

  /** Ends every call whose request has not arrived, with DRAINING. */
  refuseAll(): void {
    for (const call of [...this.#incoming.keys()]) this.#refuse(call, drainingUnread());
  }

  #inflate(
    call: ReadCall,
    message: Buffer,
    bounds: Pick<Inflation, "encoding" | "maxBytes" | "corruptCode">,
    finish: (message: Buffer) => void,
  ): void {
    this.#hold(call, message.length);
    const incoming = this.#incoming.get(call);
    if (incoming === undefined) return;
    incoming.stopInflating = this.inflater.add({
      ...bounds,
      owner: call.connection,
      message,
      onTurn: () => {
        this.#hold(call, message.length + bounds.maxBytes);
        return this.#incoming.has(call);
      },
      onInflated: finish,
      onRefused: (why) => this.#refuse(call, why),
    });
  }

  /** Counts what a call has sent. A complete request is not counted before the end of the turn. */
  #count(call: ReadCall): void {
    const incoming = this.#incoming.get(call);
    if (incoming === undefined) return;
    const { request, reservation } = incoming;
    if (reservation !== undefined || !request.isWhole) this.#hold(call, request.heldBytes);
  }

  /**
   * Counts the call if its request, with its end, has not arrived by the end of the turn. Almost all requests have, and
   * must not be refused for other requests of their connection.
   */
  #countLater(call: ReadCall): void {
    this.#uncounted.push(call);
    if (this.#uncounted.length > 1) return;
    this.#context.clock.setImmediate(() => {
      const calls = this.#uncounted;
      this.#uncounted = [];
      for (const each of calls) {
        const incoming = this.#incoming.get(each);
        // One that waits to be inflated is charged with its message.
        if (incoming === undefined || incoming.stopInflating !== undefined) continue;
        const { request } = incoming;
        request.own();
        this.#hold(each, request.heldBytes);
      }
    });
  }

  /** Charges a call whose request is being read with this many bytes. May refuse it. */
  #hold(call: ReadCall, bytes: number): void {
    const incoming = this.#incoming.get(call);
    if (incoming === undefined) return;
    const { requestPool, incompleteCalls } = this.#context;
    if (incoming.reservation === undefined) {
      incoming.reservation = requestPool.reserve(call.connection, 0, () =>
        this.#refuse(call, outOfRequestRoom(requestPool)),
      );
      const caller = this.#callerOf(call);
      incoming.counted = incompleteCalls.reserve(caller, 1, (bound) =>
        this.#refuse(call, tooManyIncomplete(incompleteCalls.bounds, bound, caller)),
      );
    }
    incoming.reservation.resize(callBytes + bytes);
  }

  /** The caller of a call; if it is not authenticated yet, the probable one. */
  #callerOf(call: ReadCall): Caller {
    const { callers } = this.#context.callerLimits;
    const isAnonymous = call.identity.source === "none";
    return (isAnonymous ? callers.expectedOn(call.connection) : call.owner).caller;
  }

  #refuse(call: ReadCall, why: WireStatus): void {
    this.#forget(call);
    call.end(why);
  }

  /** Idempotent. */
  #forget(call: ReadCall): void {
    const incoming = this.#incoming.get(call);
    if (incoming === undefined) return;
    this.#incoming.delete(call);
    incoming.reservation?.release();
    incoming.counted?.release();
    incoming.stopReading();
    incoming.stopInflating?.();
    if (this.#incoming.size > 0) return;
    this.#timer?.cancel();
    this.#timer = undefined;
  }

  /** One timer for all calls, which ends those that take too long. */
  #setTimer(): void {
    const { clock } = this.#context;
    const { requestMs } = this.#context.limits;
    this.#timer ??= clock.setTimeout(() => {
      this.#timer = undefined;
      for (const [call, { since }] of this.#incoming) {
        if (clock.now() - since < requestMs) break;
        this.#context.defences?.count("slow_request", call.connection);
        this.#refuse(call, tookTooLong(requestMs));
      }
      if (this.#incoming.size > 0) this.#setTimer();
    }, requestMs / 8);
  }
}

/** The message of a complete request, copied if it would keep a far larger buffer alive. */
function messageOf(bytes: Buffer, start: number): Buffer {
  const message = bytes.subarray(start);
  return pinsOthers(bytes) ? Buffer.from(message) : message;
}

/** Why a request whose end has arrived is refused; undefined: it is exactly one message. */
function faultOf({
  bytes: { length },
  size,
  received,
  isWhole,
}: MessageReader | BareMessageReader): WireStatus | undefined {
  if (length === 0) return notOne("Received no request message");
  if (!isWhole) return incomplete(length, prefixSize + size);
  return received === size ? undefined : notOne("Received a second request message");
}

/** With the code that gRPC has for it. */
function notOne(details: string): WireStatus {
  return refused(status.UNIMPLEMENTED, details, "INVALID_REQUEST");
}
