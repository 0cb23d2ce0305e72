import type { IncomingHttpHeaders, ServerHttp2Stream } from "node:http2";
import { status } from "@grpc/grpc-js";
import type { Timer } from "../clock.ts";
import { WatchFanoutError } from "../errors.ts";
import { statusOf, type WireStatus } from "../wire/errors.ts";
import type { CallContext } from "./calls.ts";
import { Http2Call } from "./http2-call.ts";
import { isPlainGrpc } from "./request-headers.ts";
import { RequestReader, refused } from "./request-reader.ts";
import type { ServedMethod } from "./server-call.ts";

/** How many bytes of requests may have come that are not whole, all together. */
const maxUnreadBytes = 64 * 1024 ** 2;

/** A call whose request has not come whole. */
interface Unread {
  readonly reader: RequestReader;
  readonly since: number;
}

/** Serves the calls that need nothing of grpc-js, which are almost all. */
export class PlainCalls {
  readonly #methods: ReadonlyMap<string, ServedMethod>;
  readonly #context: CallContext;
  readonly #maxRequestBytes: number;
  /** The oldest first. */
  readonly #unread = new Map<Http2Call, Unread>();
  #unreadBytes = 0;
  #timer: Timer | undefined;

  /** `methods` by their path. */
  constructor(
    methods: ReadonlyMap<string, ServedMethod>,
    context: CallContext,
    maxRequestBytes: number,
  ) {
    this.#methods = methods;
    this.#context = context;
    this.#maxRequestBytes = maxRequestBytes;
  }

  /** Takes the stream if it is such a call, and says whether it is. */
  take(stream: ServerHttp2Stream, headers: IncomingHttpHeaders): boolean {
    const method = this.#methods.get(headers[":path"] ?? "");
    if (method === undefined || !isPlainGrpc(headers)) return false;
    const call = new Http2Call(stream, headers, this.#context);
    const reader = new RequestReader(stream, this.#maxRequestBytes, {
      onBytes: (count) => this.#received(call, count),
      onMessage: (message) => {
        this.#forget(call);
        // Of a call that its client has given up, or that was refused, nothing must be done.
        if (!call.isOver) method.serve(call, method.decode(message));
      },
      onRefused: (why) => this.#refuse(call, why),
    });
    this.#unread.set(call, { reader, since: this.#context.clock.now() });
    call.onOver(() => this.#forget(call));
    this.#setTimer();
    return true;
  }

  /** Ends the calls that have not said what they want: the server shuts down and can't wait for it. */
  refuseUnread(): void {
    for (const call of [...this.#unread.keys()]) this.#refuse(call, statusOf(draining()));
  }

  #received(call: Http2Call, count: number): void {
    this.#unreadBytes += count;
    if (this.#unreadBytes <= maxUnreadBytes) return;
    const details = "Too much is being received at once. Try again, or at another replica";
    this.#refuse(call, refused(status.RESOURCE_EXHAUSTED, details));
  }

  #refuse(call: Http2Call, why: WireStatus): void {
    this.#forget(call);
    call.end(why);
  }

  /** Harmless where its request has been read already. */
  #forget(call: Http2Call): void {
    const unread = this.#unread.get(call);
    if (unread === undefined) return;
    this.#unread.delete(call);
    this.#unreadBytes -= unread.reader.received;
    unread.reader.stop();
    if (this.#unread.size > 0) return;
    this.#timer?.cancel();
    this.#timer = undefined;
  }

  /** One timer for all, to end those that take too long. */
  #setTimer(): void {
    const { clock, requestMs } = this.#context;
    this.#timer ??= clock.setTimeout(() => {
      this.#timer = undefined;
      const details = `The request did not come within ${requestMs / 1_000} s`;
      for (const [call, { since }] of this.#unread) {
        if (clock.now() - since < requestMs) break;
        this.#refuse(call, refused(status.DEADLINE_EXCEEDED, details));
      }
      if (this.#unread.size > 0) this.#setTimer();
    }, requestMs / 8);
  }
}

function draining(): WatchFanoutError {
  return new WatchFanoutError(
    "DRAINING",
    "This replica is shutting down, and the request has not come. Make the call again at another one.",
  );
}
