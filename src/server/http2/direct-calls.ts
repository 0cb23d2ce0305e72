import type { IncomingHttpHeaders, ServerHttp2Stream } from "node:http2";
import { status } from "@grpc/grpc-js";
import type { Clock, Timer } from "../../base/clock.ts";
import type { WireStatus } from "../../wire/errors.ts";
import type { CallContext } from "../calls/call-context.ts";
import { drainingUnread, outOfRequestRoom, refused, tookTooLong } from "../calls/refusals.ts";
import type { BidiMethod, ServedMethod } from "../calls/server-call.ts";
import type { Reservation } from "../limits/byte-pool.ts";
import { Http2Call } from "./http2-call.ts";
import { closeAfterResponse } from "./http2-stream.ts";
import { Inflater, type Inflation } from "./inflater.ts";
import { encodingOf, isGrpc, timeoutOf } from "./request-headers.ts";
import { RequestReader } from "./request-reader.ts";
import { RequestStream } from "./request-stream.ts";

/**
 * What a call counts whose request has not come whole, in bytes, beside what has come of it. In memory a call takes
 * several times that, but a connection may have all of its calls waiting without losing one.
 */
const callBytes = 1024;

/** A call whose request has not come whole, or waits to be inflated. */
interface Unread {
  readonly reader: RequestReader;
  readonly since: number;
  reservation: Reservation | undefined;
  inflation: Inflation | undefined;
}

/** All that can be called, by its path, `/package.Service/Method`. */
export interface Methods {
  readonly single: ReadonlyMap<string, ServedMethod>;
  readonly streaming: ReadonlyMap<string, BidiMethod>;
}

/** Serves all calls, straight on their HTTP/2 streams. */
export class DirectCalls {
  readonly #methods: Methods;
  readonly #context: CallContext;
  readonly #inflater = new Inflater();
  /** The oldest first. */
  readonly #unread = new Map<Http2Call, Unread>();
  /** Those that have come in this turn of the event loop. */
  #uncounted: Http2Call[] = [];
  #timer: Timer | undefined;

  constructor(methods: Methods, context: CallContext) {
    this.#methods = methods;
    this.#context = context;
  }

  /** Serves or refuses the call of a new stream. */
  take(stream: ServerHttp2Stream, headers: IncomingHttpHeaders): void {
    if (!isGrpc(headers)) {
      refuseAsHttp(stream, this.#context.clock);
      return;
    }
    const timeoutMs = timeoutOf(headers);
    const isTimeout = !Number.isNaN(timeoutMs);
    const call = new Http2Call(stream, isTimeout ? timeoutMs : undefined, this.#context);
    const path = headers[":path"] ?? "";
    const encoding = encodingOf(headers);
    const method = this.#methods.single.get(path);
    const conversation = this.#methods.streaming.get(path);
    if (!isTimeout) {
      const details = `Invalid grpc-timeout value "${headers["grpc-timeout"]}"`;
      call.end(refused(status.INTERNAL, details));
    } else if (method !== undefined) {
      this.#read(stream, call, method, encoding);
    } else if (conversation !== undefined) {
      const requests = new RequestStream(stream, call, this.#context, {
        encoding,
        inflater: this.#inflater,
        maxBytes: conversation.maxRequestBytes,
      });
      conversation.converse(call, () => requests.next());
    } else {
      const details = `The server does not implement the method ${path}`;
      call.end(refused(status.UNIMPLEMENTED, details));
    }
  }

  /** Ends the calls that have not said what they want: the server shuts down and can't wait for it. */
  refuseUnread(): void {
    for (const call of [...this.#unread.keys()]) this.#refuse(call, drainingUnread());
  }

  #read(stream: ServerHttp2Stream, call: Http2Call, method: ServedMethod, encoding: string): void {
    const { clock, maxRequestBytes } = this.#context;
    const serve = (message: Buffer): void => {
      this.#forget(call);
      call.requestBytes = message.length;
      // Of a call that its client has given up, or that was refused, nothing must be done.
      if (!call.isOver) method.serve(call, method.decode(message));
    };
    const reader = new RequestReader(stream, maxRequestBytes, {
      onBytes: () => this.#count(call),
      onMessage: (message, isCompressed) => {
        if (isCompressed) this.#inflate(call, message, encoding, serve);
        else serve(message);
      },
      onRefused: (why) => this.#refuse(call, why),
    });
    this.#unread.set(call, {
      reader,
      since: clock.now(),
      reservation: undefined,
      inflation: undefined,
    });
    call.onOver(() => this.#forget(call));
    this.#countLater(call);
    this.#setTimer();
  }

  #inflate(
    call: Http2Call,
    message: Buffer,
    encoding: string,
    serve: (message: Buffer) => void,
  ): void {
    const { maxRequestBytes } = this.#context;
    this.#hold(call, message.length);
    const unread = this.#unread.get(call);
    if (unread === undefined) return;
    unread.inflation = {
      owner: call.connection,
      encoding,
      message,
      maxBytes: maxRequestBytes,
      onTurn: () => {
        this.#hold(call, message.length + maxRequestBytes);
        return this.#unread.has(call);
      },
      onInflated: serve,
      onRefused: (why) => this.#refuse(call, why),
    };
    this.#inflater.add(unread.inflation);
  }

  /** Counts what a call has sent. A request that is whole is not counted before the turn is over. */
  #count(call: Http2Call): void {
    const unread = this.#unread.get(call);
    if (unread === undefined) return;
    if (unread.reservation !== undefined || !unread.reader.isWhole) {
      this.#hold(call, unread.reader.held);
    }
  }

  /**
   * Counts the call if its request has not come whole, with its end, by the end of the turn. Almost all have, and
   * must not be refused for what else their connection sends.
   */
  #countLater(call: Http2Call): void {
    this.#uncounted.push(call);
    if (this.#uncounted.length > 1) return;
    this.#context.clock.setImmediate(() => {
      const calls = this.#uncounted;
      this.#uncounted = [];
      for (const each of calls) {
        const reader = this.#unread.get(each)?.reader;
        if (reader === undefined) continue;
        reader.own();
        this.#hold(each, reader.held);
      }
    });
  }

  /** Counts so many bytes for a call, as long as it is not read. May refuse it. */
  #hold(call: Http2Call, bytes: number): void {
    const unread = this.#unread.get(call);
    if (unread === undefined) return;
    const { requestPool, maxUnreadBytesPerConnection } = this.#context;
    unread.reservation ??= requestPool.reserve(call.connection, 0, () =>
      this.#refuse(call, outOfRequestRoom(maxUnreadBytesPerConnection)),
    );
    unread.reservation.resize(callBytes + bytes);
  }

  #refuse(call: Http2Call, why: WireStatus): void {
    this.#forget(call);
    call.end(why);
  }

  /** Idempotent. */
  #forget(call: Http2Call): void {
    const unread = this.#unread.get(call);
    if (unread === undefined) return;
    this.#unread.delete(call);
    unread.reservation?.release();
    unread.reader.stop();
    if (unread.inflation !== undefined) this.#inflater.delete(unread.inflation);
    if (this.#unread.size > 0) return;
    this.#timer?.cancel();
    this.#timer = undefined;
  }

  /** One timer for all, to end those that take too long. */
  #setTimer(): void {
    const { clock, requestMs } = this.#context;
    this.#timer ??= clock.setTimeout(() => {
      this.#timer = undefined;
      for (const [call, { since }] of this.#unread) {
        if (clock.now() - since < requestMs) break;
        this.#refuse(call, tookTooLong(requestMs));
      }
      if (this.#unread.size > 0) this.#setTimer();
    }, requestMs / 8);
  }
}

/** What is not gRPC is refused as HTTP has it, and nothing of it is kept. */
function refuseAsHttp(stream: ServerHttp2Stream, clock: Clock): void {
  stream.on("error", () => {});
  if (stream.destroyed || stream.closed) return;
  stream.respond({ ":status": 415 }, { endStream: true });
  closeAfterResponse(stream, clock);
}
