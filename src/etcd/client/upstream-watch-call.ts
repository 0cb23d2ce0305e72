import {
  type ClientHttp2Stream,
  constants,
  type IncomingHttpHeaders,
  type OutgoingHttpHeaders,
} from "node:http2";
import { Metadata, status } from "@grpc/grpc-js";
import { WireFault } from "../../protobuf/message-cursor.ts";
import { frameOf } from "../../wire/encode.ts";
import { decodedDetails, type WireStatus } from "../../wire/errors.ts";
import { MessageReader } from "../../wire/message-reader.ts";
import { noConnection } from "../wire/error-texts.ts";
import { nextMessage, UnreadableMessage } from "../wire/messages.ts";
import type { MessageTranslation } from "../wire/namespace.ts";
import type { Upstream } from "./upstream.ts";
import type { UpstreamConnection } from "./upstream-connection.ts";

/**
 * Maximum size of a response of etcd, in bytes: one with as many revisions as etcd sends at once to a watch that catches up
 * (1,000), of large values. etcd itself has no bound.
 */
const maxResponseBytes = 1024 ** 3;

/** What a call needs of its user. */
export interface UpstreamWatchListener {
  /** A response, without gRPC's prefix, and the connection that it came on. It is a view of what was received. */
  readonly onMessage: (message: Buffer, source: UpstreamConnection) => void;
  /** Called once, unless it was closed before: the status that etcd ended the call with, or why it has sent no status. */
  readonly onEnd: (status: WireStatus) => void;
}

/** A request that waits for a connection. */
interface EarlyRequest {
  readonly frame: Buffer;
  readonly onSent: (() => void) | undefined;
}

/** A call of etcd's Watch to the member that calls go to. */
export class UpstreamWatchCall {
  readonly #headers: OutgoingHttpHeaders;
  readonly #listener: UpstreamWatchListener;
  readonly #translation: MessageTranslation | undefined;
  readonly #responses = new MessageReader();
  /** Requests that wait for a connection. */
  #early: EarlyRequest[] = [];
  #stream: ClientHttp2Stream | undefined;
  #connection: UpstreamConnection | undefined;
  #trailers: IncomingHttpHeaders | undefined;
  #isPaused = false;
  #isOver = false;

  constructor(upstream: Upstream, headers: OutgoingHttpHeaders, listener: UpstreamWatchListener) {
    this.#headers = headers;
    this.#listener = listener;
    this.#translation = upstream.namespace?.translationOf(String(headers[":path"]));
    upstream.whenAvailable({
      isOver: () => this.#isOver,
      open: (connection) => this.#open(connection),
      fail: () => this.#end(endedWith(status.UNAVAILABLE, noConnection)),
    });
  }

  /** Memory of a response that has not arrived completely, in bytes. */
  get receivedBytes(): number {
    return this.#responses.heldBytes;
  }

  /** Sends a request, at once or when there is a connection. Calls `onSent` when etcd's flow control has accepted it. */
  send(request: Uint8Array, onSent?: () => void): void {
    if (this.#isOver) return;
    const sent = this.#translation?.request?.(Buffer.from(request)) ?? request;
    const frame = Buffer.concat(frameOf(sent));
    if (this.#stream === undefined) this.#early.push({ frame, onSent });
    else this.#stream.write(frame, onSent);
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
    if (this.#isPaused) stream.pause();
  }

  #deliver(): void {
    const source = this.#connection;
    if (source === undefined) return;
    try {
      while (!this.#isOver && !this.#isPaused) {
        const message = nextMessage(this.#responses, maxResponseBytes);
        if (message === undefined) break;
        this.#listener.onMessage(this.#translation?.response(message) ?? message, source);
      }
      this.#responses.own();
    } catch (error) {
      if (!(error instanceof UnreadableMessage || error instanceof WireFault)) throw error;
      const details = `can't read a response of etcd: ${error.message}`;
      this.#end(endedWith(status.UNAVAILABLE, details));
    }
  }

  /** UNAVAILABLE where etcd has sent no status: the only code after which its clients resume. */
  #statusOfEnd(): WireStatus {
    const code = Number(this.#trailers?.["grpc-status"] ?? Number.NaN);
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
    this.#listener.onEnd(why);
  }
}

function endedWith(code: status, details: string): WireStatus {
  return { code, details, metadata: new Metadata() };
}
