import { constants, type IncomingHttpHeaders, type OutgoingHttpHeaders } from "node:http2";
import { status } from "@grpc/grpc-js";
import { beginForwardedSpan, type ClientSpan } from "../../base/client-span.ts";
import { ownBytes } from "../../base/growing-buffer.ts";
import { responseHeaders, responseTrailers } from "../../etcd/client/call-headers.ts";
import type { Upstream } from "../../etcd/client/upstream.ts";
import type { UpstreamConnection, UpstreamStream } from "../../etcd/client/upstream-connection.ts";
import { noConnection, noLeader, stopped, timedOut } from "../../etcd/wire/error-texts.ts";
import { UnreadableMessage } from "../../etcd/wire/messages.ts";
import type { EtcdMethod } from "../../etcd/wire/methods.ts";
import type { MessageTranslation } from "../../etcd/wire/namespace.ts";
import type { Access } from "../../policy/access.ts";
import { WireFault } from "../../protobuf/message-cursor.ts";
import { HeldResponse } from "../../server/calls/call-admission.ts";
import { inSpanOf } from "../../server/calls/call-span.ts";
import type { RawCall } from "../../server/calls/methods.ts";
import { refused } from "../../server/calls/refusals.ts";
import type { ServiceContext } from "../../server/calls/service-context.ts";
import type { Rounds } from "../../server/kernel/rounds.ts";
import type { FrameParts } from "../../wire/encode.ts";
import { decodedDetails } from "../../wire/errors.ts";
import { EtcdCall } from "./etcd-call.ts";
import { ForwardedRequest } from "./forwarded-request.ts";
import type { MemberRouting, Route } from "./member-routing.ts";
import { MessageStarts, MessageTranslator } from "./passing-messages.ts";

/** Maximum size of a request that is translated, in bytes: far above etcd's default --max-request-bytes. */
const maxRequestBytes = 16 * 1024 ** 2;

/** Maximum size of a response that is translated, in bytes. What is held of it counts in the send budget. */
const maxResponseBytes = 1024 ** 3;

/** What a forwarded call is made of. */
export interface ForwardedCallDeps {
  /** `package.Service/Method`, one of a fixed number of names. */
  readonly method: string;
  readonly upstream: Upstream;
  readonly calls: Rounds<EtcdCall>;
  readonly context: ServiceContext;
  readonly etcdMethod: EtcdMethod;
  readonly routing: MemberRouting;
  /** Gets the beginning of each message of the response (`MessageStarts`), and the connection that it comes from. */
  readonly observe: (start: Buffer, source: UpstreamConnection) => void;
  /** Absent: the messages are passed on as they come. */
  readonly translation: MessageTranslation | undefined;
  /** The beginning of the request, if that has been read: a whole message, or all that has arrived. */
  readonly received?: Buffer | undefined;
  /** The rights that it needs while it is open. Default: all. */
  readonly access?: readonly Access[] | undefined;
}

/**
 * One call, passed to etcd on a stream of its own: what the client sends goes to etcd, what etcd sends goes to the
 * client, and when one of them ends or cancels the call, so does the other. Without a translation the response is not parsed.
 *
 * With several members a unary call that any of them may answer is sent to the next one if a member has refused it without
 * having looked at it, or if it only reads and its member has failed before it answered. Nothing else is repeated.
 *
 * A response is passed on as it comes: headers, bytes, trailers. The next bytes are read when the client's flow control has
 * accepted those before, so a slow client slows only its own stream at etcd.
 */
export class ForwardedCall extends EtcdCall {
  /** With what waits. Most responses are accepted long before that; those that are translated may be of any size. */
  protected override readonly isCountedIfStuck: boolean;
  readonly #headers: OutgoingHttpHeaders;
  readonly #deps: ForwardedCallDeps;
  #request: ForwardedRequest | undefined;
  #route: Route | undefined;
  /** How often it may still be sent. */
  #attemptsLeft = 0;
  /** Whether its member was asked to refuse it without a leader. */
  #needsLeader = false;
  #connection: UpstreamConnection | undefined;
  /** The stream to etcd. */
  #upstream: UpstreamStream | undefined;
  /** Of the call at etcd; undefined: it is not recorded, or has ended. */
  #span: ClientSpan | undefined;
  readonly #starts: MessageStarts;
  /** Size of what was sent last. */
  #lastBytes = 0;
  /** Whether etcd has responded anything. */
  #hasBegun = false;
  /** Whether all of the response has arrived. */
  #hasEnded = false;
  /** The HTTP/2 error code with which etcd has ended its stream; undefined: it has not, or behind trailers. */
  #rstCode: number | undefined;
  #trailers: OutgoingHttpHeaders | undefined;
  /** Of the response, if it is translated. */
  readonly #translator: MessageTranslator | undefined;
  /** What the translator holds. */
  readonly #held: HeldResponse;

  constructor(call: RawCall, headers: OutgoingHttpHeaders, deps: ForwardedCallDeps) {
    super(call, deps.context, deps.calls, "etcd call", deps.method, deps.access);
    this.#headers = headers;
    this.#deps = deps;
    const { translation } = deps;
    this.isCountedIfStuck = translation === undefined;
    this.#translator = translation && new MessageTranslator(translation.response, maxResponseBytes);
    const { sendBudget } = deps.context;
    this.#held = new HeldResponse(sendBudget, this.connection, (why) => this.end(why));
    this.#starts = new MessageStarts((start) => {
      if (this.#connection !== undefined) deps.observe(start, this.#connection);
    });
  }

  /** What is held because the client has not accepted it, or may not get it yet, in bytes. */
  override get heldBytes(): number {
    return (this.outstanding ? this.#lastBytes : 0) + this.#waitingBytes;
  }

  /** The same without what is outstanding. */
  get #waitingBytes(): number {
    return this.isBlocked ? (this.#upstream?.readableLength ?? 0) : 0;
  }

  /** Starts the call at etcd, or ends it. */
  start(): void {
    const { upstream, etcdMethod, received } = this.#deps;
    if (!this.open()) return;
    const translate = this.#deps.translation?.request;
    this.#request = new ForwardedRequest(
      this.call.request,
      (bytes) => this.requestCharge?.resize(bytes),
      translate && {
        translator: new MessageTranslator(translate, maxRequestBytes),
        failed: (error) => this.#refuse(error),
      },
    );
    const isSpread = upstream.isSpread && etcdMethod.member !== "home";
    if (isSpread) this.#attemptsLeft = upstream.endpoints.length + 1;
    // Other streams may never end their requests.
    const isByRequest = etcdMethod.member === "byRequest";
    const isRead = isSpread && (etcdMethod.kind !== "stream" || isByRequest);
    if (isRead) this.#request.keep(() => this.#choose());
    this.#request.begin(received);
    if (isRead) return;
    if (received !== undefined && isByRequest) this.#choose();
    else this.#connect(isSpread);
  }

  /** The request has arrived, or is large. */
  #choose(): void {
    const { etcdMethod, routing } = this.#deps;
    const path = String(this.#headers[":path"]);
    const start = this.#request?.start ?? Buffer.alloc(0);
    this.#route = routing.routeOf(path, etcdMethod.member, start);
    const { connection } = this.#route;
    if (connection === undefined) this.#connect(true);
    else this.#open(connection);
  }

  /**
   * Sends the call again, to another member if there is one, and returns true; false: it must not be repeated. `isUnseen`: etcd
   * has not looked at it.
   */
  #repeat(why: string, isUnseen: boolean): boolean {
    const mayRepeat = isUnseen || this.#deps.etcdMethod.isRepeatable;
    if (!mayRepeat || this.#hasBegun || this.#attemptsLeft === 0) return false;
    if (this.#request?.isKept !== true) return false;
    this.#attemptsLeft--;
    this.#connection?.member.refused(why);
    this.#endSpan(status.UNAVAILABLE);
    this.#upstream = undefined;
    this.#rstCode = undefined;
    this.#choose();
    return true;
  }

  #connect(isSpread: boolean): void {
    this.#deps.upstream.whenAvailable({
      isSpread,
      isOver: () => this.isOver || this.call.isOver,
      open: (connection) => {
        if (this.#route?.after === undefined) this.#open(connection);
        else void this.#openAfterRead(connection);
      },
      fail: () => this.end(refused(status.UNAVAILABLE, noConnection)),
    });
  }

  async #openAfterRead(connection: UpstreamConnection): Promise<void> {
    const isUpToDate = await this.#deps.routing.bringUpToDate(connection, this.#route?.after);
    if (this.isOver || this.call.isOver) return;
    if (isUpToDate && connection.hasRoom) {
      this.#open(connection);
      return;
    }
    this.#connection = connection;
    if (!this.#repeat("it does not answer a read", true))
      this.end(refused(status.UNAVAILABLE, timedOut));
  }

  drain(): void {
    if (this.#deps.etcdMethod.kind !== "unary") this.end(refused(status.UNAVAILABLE, stopped));
  }

  check(now: number): void {
    if (this.#deps.etcdMethod.kind === "unary" && this.#request?.hasEnded === false)
      this.endIfLate(now);
    else this.chargeIfStuck(this.isCountedIfStuck ? this.heldBytes : this.#waitingBytes);
  }

  protected override onClosed(): void {
    super.onClosed();
    this.#endSpan(status.CANCELLED);
    this.#held.release();
    this.#request?.stop();
    if (this.#upstream?.closed === false) this.#upstream.close(constants.NGHTTP2_CANCEL);
  }

  #open(connection: UpstreamConnection): void {
    if (this.call.span !== undefined) this.#beginSpan(connection);
    // A member without a leader would let the call wait, and another one may have one.
    const isAnywhere = this.#route !== undefined && this.#route.connection === undefined;
    const isKept = this.#request?.isKept === true;
    this.#needsLeader =
      isAnywhere && isKept && this.#attemptsLeft > 0 && !connection.member.isLeftOut;
    const headers = this.#needsLeader ? { ...this.#headers, hasleader: "true" } : this.#headers;
    const stream = connection.request(headers);
    this.#connection = connection;
    this.#upstream = stream;
    stream.on("response", (received: IncomingHttpHeaders, flags: number) => {
      if (this.#upstream === stream) this.#onHeaders(received, flags);
    });
    stream.on("trailers", (trailers: IncomingHttpHeaders) => {
      this.#trailers = responseTrailers(trailers);
    });
    stream.on("readable", () => this.pump());
    stream.on("end", () => {
      if (this.#upstream !== stream) return;
      this.#hasEnded = true;
      this.pump();
    });
    stream.on("close", () => {
      if (this.#upstream !== stream) return;
      // With trailers all of the response has arrived, and the rest may still have to be sent.
      if (this.#trailers !== undefined) this.#hasEnded = true;
      else this.#rstCode = stream.rstCode ?? constants.NGHTTP2_NO_ERROR;
      // What had arrived can still be read, though Node.js no longer announces it.
      this.pump();
    });
    this.#request?.attach(stream);
  }

  #onHeaders(headers: IncomingHttpHeaders, flags: number): void {
    if (this.isOver) return;
    const isEnd = (flags & constants.NGHTTP2_FLAG_END_STREAM) !== 0;
    if (isEnd && Number(headers["grpc-status"]) === status.UNAVAILABLE) {
      const why = decodedDetails(String(headers["grpc-message"] ?? ""));
      if (this.#repeat(why, this.#needsLeader && why === noLeader)) return;
    }
    this.#hasBegun = true;
    const passed = responseHeaders(headers);
    if (isEnd) this.#end(passed);
    else this.call.sendHeaders(passed);
  }

  protected override get waitsFor(): "nothing" | "rate" {
    return (this.#upstream?.readableLength ?? 0) > 0 ? "rate" : "nothing";
  }

  /** Everything that has arrived, at once. */
  protected override next(): FrameParts | undefined {
    for (;;) {
      const bytes = this.#upstream?.read();
      if (bytes === null || bytes === undefined) return this.#finish();
      this.#starts.pass(bytes);
      const translator = this.#translator;
      if (translator === undefined) {
        this.call.isMidMessage = this.#starts.isMidMessage;
        return [ownBytes(bytes)];
      }
      const frames = this.#translated(translator, bytes);
      if (frames === undefined || frames.length > 0) return frames;
    }
  }

  /** The messages that are complete with these bytes. Undefined: the call was ended. */
  #translated(translator: MessageTranslator, bytes: Buffer): FrameParts | undefined {
    try {
      const frames = translator.pass(bytes);
      this.#held.charge(translator.heldBytes);
      return this.isOver ? undefined : frames;
    } catch (error) {
      if (!(error instanceof UnreadableMessage || error instanceof WireFault)) throw error;
      return this.#fail();
    }
  }

  /** A request that can't be translated. The texts are those of gRPC for Go, and so of etcd. */
  #refuse(error: unknown): void {
    if (error instanceof UnreadableMessage) {
      const encoding = String(this.#headers["grpc-encoding"] ?? "identity");
      const isCompressed = encoding !== "identity";
      const details = isCompressed
        ? `grpc: Decompressor is not installed for grpc-encoding ${JSON.stringify(encoding)}`
        : `grpc: ${error.message}`;
      const code = isCompressed ? status.UNIMPLEMENTED : status.RESOURCE_EXHAUSTED;
      this.end(refused(code, details));
    } else if (error instanceof WireFault) {
      const details = `grpc: failed to unmarshal the received message: it ${error.message}`;
      this.end(refused(status.INTERNAL, details));
    } else {
      this.onFailed(error);
    }
  }

  protected override onSent({ byteLength }: Uint8Array): void {
    this.#lastBytes = byteLength;
  }

  /** Ends the call if etcd has. The client has accepted everything. Returns what is still to be sent. */
  #finish(): FrameParts | undefined {
    if (this.#rstCode !== undefined) {
      this.#cut(this.#rstCode);
      return undefined;
    }
    if (!this.#hasEnded) return undefined;
    if (this.#translator?.isMidMessage === true) return this.#fail();
    if (this.#trailers !== undefined) this.#end(this.#trailers);
    return undefined;
  }

  /** etcd's trailers end the call. */
  #end(trailers: OutgoingHttpHeaders): void {
    this.#reportIfFull(trailers);
    this.#endSpan(Number(trailers["grpc-status"] ?? status.UNKNOWN));
    this.call.sendTrailers(trailers);
    this.close();
  }

  /** A response that can't be translated. */
  #fail(): undefined {
    this.close();
    this.call.resetWith(constants.NGHTTP2_INTERNAL_ERROR);
  }

  #beginSpan({ member: { endpoint } }: UpstreamConnection): void {
    const { method } = this.#deps;
    this.#span = inSpanOf(this.call, () => beginForwardedSpan(method, endpoint, this.#headers));
  }

  #endSpan(code: number): void {
    this.#span?.ended(code === status.OK ? null : { code });
    this.#span = undefined;
  }

  /** etcd refuses what it has no room for with RESOURCE_EXHAUSTED, as it does other things. */
  #reportIfFull(trailers: OutgoingHttpHeaders): void {
    if (Number(trailers["grpc-status"]) !== status.RESOURCE_EXHAUSTED) return;
    const details = String(trailers["grpc-message"] ?? "");
    if (!details.includes("database space exceeded")) return;
    this.context.fullStore?.report(this.#deps.method, details);
  }

  /** etcd has ended its stream without a status, and the client has accepted what came before. */
  #cut(rstCode: number): void {
    const lost = this.#connection?.lost;
    const isUnseen = rstCode === constants.NGHTTP2_REFUSED_STREAM;
    if ((isUnseen || lost !== undefined) && this.#repeat(lost ?? "it refuses streams", isUnseen))
      return;
    this.#endSpan(status.UNAVAILABLE);
    if (rstCode === constants.NGHTTP2_REFUSED_STREAM) {
      // Without a response etcd has not looked at it. Otherwise a write may have been done.
      const details = this.#hasBegun ? "etcd refused the stream within its response" : noConnection;
      this.end(refused(status.UNAVAILABLE, details));
    } else if (lost !== undefined) {
      this.end(refused(status.UNAVAILABLE, `the connection to etcd was lost: ${lost}`));
    } else if (rstCode === constants.NGHTTP2_NO_ERROR) {
      const details = "etcd closed the stream without sending trailers";
      this.end(refused(status.INTERNAL, details));
    } else {
      this.close();
      this.call.resetWith(rstCode);
    }
  }
}
