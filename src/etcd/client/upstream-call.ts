import { constants, type IncomingHttpHeaders, type OutgoingHttpHeaders } from "node:http2";
import { Metadata, status } from "@grpc/grpc-js";
import type { Clock } from "../../base/clock.ts";
import { waitFor } from "../../base/wait.ts";
import { WireFault } from "../../protobuf/message-cursor.ts";
import { frameOf } from "../../wire/encode.ts";
import { decodedDetails, type WireStatus } from "../../wire/errors.ts";
import { MessageReader } from "../../wire/message-reader.ts";
import { noConnection } from "../wire/error-texts.ts";
import { nextMessage, UnreadableMessage } from "../wire/messages.ts";
import { requestHeaders } from "./call-headers.ts";
import type { Upstream } from "./upstream.ts";
import type { UpstreamConnection, UpstreamStream } from "./upstream-connection.ts";

/**
 * Default maximum size of a response of etcd, in bytes: one with as many revisions as etcd sends at once to a watch that
 * catches up (1,000), of large values. etcd itself has no bound.
 */
const defaultMaxBytes = 1024 ** 3;

/** What a call needs of the members that calls go to. */
export type Askable = Pick<Upstream, "whenAvailable"> & Partial<Pick<Upstream, "namespace">>;

/** What a call needs of its user. */
interface UpstreamCallListener {
  /** A response, without gRPC's prefix, and the connection that it came on. It is a view of what was received. */
  readonly onMessage: (message: Buffer, source: UpstreamConnection) => void;
  /**
   * Called once, unless it was closed before: the status that etcd ended the call with, or why it has sent none. `sent`: the
   * code that it has sent; undefined: none. Of OK, with which no stream should end, the status is UNAVAILABLE.
   */
  readonly onEnd: (why: WireStatus, sent: status | undefined) => void;
  /** Whether the keys of its responses are those of etcd, not of the namespace. Default: false. */
  readonly hasKeysOfEtcd?: boolean;
  /** Maximum size of a response, in bytes. */
  readonly maxBytes?: number;
}

/** A request that waits for a connection. */
interface EarlyRequest {
  readonly frame: Buffer;
  readonly onSent: (() => void) | undefined;
}

/** A call of etcd whose messages are read, to the member that calls go to. */
export class UpstreamCall {
  readonly #headers: OutgoingHttpHeaders;
  readonly #listener: UpstreamCallListener;
  readonly #translation: ReturnType<NonNullable<Askable["namespace"]>["translationOf"]>;
  readonly #responses = new MessageReader();
  readonly #maxBytes: number;
  /** Requests that wait for a connection. */
  #early: EarlyRequest[] = [];
  #stream: UpstreamStream | undefined;
  #connection: UpstreamConnection | undefined;
  #trailers: IncomingHttpHeaders | undefined;
  #isHalfClosed = false;
  #isPaused = false;
  #isOver = false;

  constructor(upstream: Askable, headers: OutgoingHttpHeaders, listener: UpstreamCallListener) {
    this.#headers = headers;
    this.#listener = listener;
    this.#maxBytes = listener.maxBytes ?? defaultMaxBytes;
    this.#translation = upstream.namespace?.translationOf(String(headers[":path"]));
    upstream.whenAvailable({
      isOver: () => this.#isOver,
      open: (connection) => this.#open(connection),
      fail: () => this.#end(endedWith(status.UNAVAILABLE, noConnection)),
    });
  }

  /** Memory of what has arrived and was not delivered: a response that is not complete, and what is not read while paused. */
  get receivedBytes(): number {
    return this.#responses.heldBytes + (this.#stream?.readableLength ?? 0);
  }

  /** Whether a response is larger than allowed, which has ended the call. */
  get isTooLarge(): boolean {
    return this.#responses.size > this.#maxBytes;
  }

  /** Sends a request, at once or when there is a connection. Calls `onSent` when etcd's flow control has accepted it. */
  send(request: Uint8Array, onSent?: () => void): void {
    if (this.#isOver) return;
    const sent = this.#translation?.request?.(Buffer.from(request)) ?? request;
    const frame = Buffer.concat(frameOf(sent));
    if (this.#stream === undefined) this.#early.push({ frame, onSent });
    else this.#stream.write(frame, onSent);
  }

  /** No request follows. */
  halfClose(): void {
    this.#isHalfClosed = true;
    this.#stream?.end();
  }

  /** Receives nothing more until `resume`: etcd's flow control makes it wait. */
  pause(): void {
    this.#isPaused = true;
    this.#stream?.pause();
  }

  resume(): void {
    if (!this.#isPaused) return;
    this.#isPaused = false;
    // The messages that were received before it was paused.
    this.#deliver();
    if (!this.#isPaused) this.#stream?.resume();
  }

  /** Cancels the call. Nothing is called after that. Idempotent. */
  close(): void {
    this.#isOver = true;
    this.#early = [];
    if (this.#stream?.closed === false) this.#stream.close(constants.NGHTTP2_CANCEL);
  }

  #open(connection: UpstreamConnection): void {
    const stream = connection.request(this.#headers);
    this.#connection = connection;
    this.#stream = stream;
    stream.on("response", (headers: IncomingHttpHeaders) => {
      if (headers["grpc-status"] !== undefined) this.#trailers = headers;
    });
    stream.on("trailers", (trailers: IncomingHttpHeaders) => {
      this.#trailers = trailers;
    });
    stream.on("data", (chunk: Buffer) => {
      this.#responses.add(chunk);
      this.#deliver();
    });
    stream.on("close", () => this.#end(this.#statusOfEnd()));
    for (const { frame, onSent } of this.#early) stream.write(frame, onSent);
    this.#early = [];
    if (this.#isHalfClosed) stream.end();
    if (this.#isPaused) stream.pause();
  }

  #deliver(): void {
    const source = this.#connection;
    if (source === undefined) return;
    const { onMessage, hasKeysOfEtcd = false } = this.#listener;
    const translation = hasKeysOfEtcd ? undefined : this.#translation;
    try {
      while (!this.#isOver && !this.#isPaused) {
        const message = nextMessage(this.#responses, this.#maxBytes);
        if (message === undefined) break;
        onMessage(translation?.response(message) ?? message, source);
      }
      this.#responses.own();
    } catch (error) {
      if (!(error instanceof UnreadableMessage || error instanceof WireFault)) throw error;
      const details = `can't read a response of etcd: ${error.message}`;
      this.#end(endedWith(status.UNAVAILABLE, details));
    }
  }

  /** The code of the status that etcd has sent; undefined: none. */
  get #sent(): status | undefined {
    const code = Number(this.#trailers?.["grpc-status"] ?? Number.NaN);
    return Number.isNaN(code) ? undefined : code;
  }

  /** UNAVAILABLE where etcd has sent no status: the only code after which its clients resume. */
  #statusOfEnd(): WireStatus {
    const code = this.#sent ?? status.OK;
    const message = this.#trailers?.["grpc-message"];
    if (code > 0)
      return endedWith(code, decodedDetails(typeof message === "string" ? message : ""));
    const lost = this.#connection?.lost;
    const why = lost === undefined ? "etcd has ended the watch" : "the connection to etcd was lost";
    return endedWith(status.UNAVAILABLE, lost === undefined ? why : `${why}: ${lost}`);
  }

  #end(why: WireStatus): void {
    if (this.#isOver) return;
    this.close();
    this.#listener.onEnd(why, this.#sent);
  }
}

function endedWith(code: status, details: string): WireStatus {
  return { code, details, metadata: new Metadata() };
}

/** How long etcd may take to answer a question, in milliseconds. */
const answerMs = 3_000;

/** Default maximum size of an answer, in bytes. */
const maxAnswerBytes = 4 * 1024 ** 2;

/** What etcd has answered. UNAVAILABLE if it has not. */
export interface UpstreamAnswer {
  readonly code: status;
  /** The text of the status. */
  readonly details: string;
  /** Undefined: the code is not OK. */
  readonly message: Buffer | undefined;
  /** Where the answer comes from. Absent: there is no message. */
  readonly source?: UpstreamConnection | undefined;
  /** Whether it was larger than allowed. Absent: it was not. */
  readonly isTooLarge?: boolean;
}

const notAnswered: UpstreamAnswer = {
  code: status.UNAVAILABLE,
  details: "etcd has not answered",
  message: undefined,
};

/**
 * Makes a call of etcd with one request and one response, with the metadata of a client, to find out something before the
 * client's own call is handled, or in its place. `request`: without gRPC's prefix, of keys in the namespace of the upstream.
 * The answer has keys of etcd. `maxBytes`: of the answer; etcd does not send more than its stream's window of a larger one.
 * Never rejects.
 */
export function askUpstream(
  upstream: Askable,
  path: string,
  metadata: IncomingHttpHeaders,
  request: Uint8Array,
  clock: Clock,
  maxBytes: number = maxAnswerBytes,
): Promise<UpstreamAnswer> {
  const headers = requestHeaders(path, metadata);
  delete headers["grpc-timeout"];
  delete headers["grpc-accept-encoding"];
  return waitFor<UpstreamAnswer>(
    (resolve) => {
      let answer = notAnswered;
      const call = new UpstreamCall(upstream, headers, {
        ...{ hasKeysOfEtcd: true, maxBytes },
        onMessage: (message, source) => {
          if (answer !== notAnswered) return;
          answer = { code: status.OK, details: "", message: Buffer.from(message), source };
        },
        onEnd: ({ code, details }, sent) => {
          if (sent === undefined) resolve({ ...notAnswered, isTooLarge: call.isTooLarge });
          else resolve(sent === status.OK ? answer : { code, details, message: undefined });
        },
      });
      call.send(request);
      call.halfClose();
      return () => call.close();
    },
    { deadline: { clock, ms: answerMs, expire: () => notAnswered } },
  );
}
