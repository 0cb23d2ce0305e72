import { STATUS_CODES } from "node:http";
import type { IncomingHttpHeaders, OutgoingHttpHeaders } from "node:http2";
import { Readable } from "node:stream";
import { status } from "@grpc/grpc-js";
import { EventLoopTurns, type TurnWorker } from "../../base/event-loop-turns.ts";
import { WireFault } from "../../protobuf/message-cursor.ts";
import { WireWriter } from "../../protobuf/wire-writer.ts";
import type { HttpCall } from "../../server/calls/methods.ts";
import { outOfRequestRoom, refused } from "../../server/calls/refusals.ts";
import type { ServiceContext } from "../../server/calls/service-context.ts";
import { TranslatedCall } from "../../server/calls/translated-call.ts";
import type { Reservation } from "../../server/kernel/ledger.ts";
import type { FrameParts } from "../../wire/encode.ts";
import { prefixSize } from "../../wire/encode.ts";
import type { WireStatus } from "../../wire/errors.ts";
import { MessageReader } from "../../wire/message-reader.ts";
import { messageFromJson } from "./json-to-message.ts";
import { InvalidJson, JsonValues } from "./json-values.ts";
import { JsonStream, jsonOf } from "./message-to-json.ts";
import type { Route } from "./routes.ts";

/** The largest message that etcd takes by default, and the largest JSON of one. */
const maxMessageBytes = 2 * 1024 ** 2;
const maxJsonBytes = 3 * 1024 ** 2;

/** How much of a response is collected before its headers are sent, in characters. */
const collectedChars = 64 * 1024;

/** The JSON of messages that streams share. */
const jsonOfFrames = new WeakMap<Uint8Array, Buffer>();

const jsonHeaders = {
  "content-type": "application/json",
  "grpc-metadata-content-type": "application/grpc",
};

/**
 * A call of etcd's JSON gateway, as one of gRPC: its request is the message that the JSON of the client's is, and what is
 * sent as gRPC's messages and status goes to the client as JSON. `outer` is the call by HTTP, which carries the bytes.
 */
export class JsonCall extends TranslatedCall implements TurnWorker {
  readonly request: Readable;
  isMidMessage = false;
  readonly #route: Route;
  readonly #context: ServiceContext;
  readonly #values = new JsonValues();
  #charge: Reservation | undefined;
  #hasRequest = false;
  /** Whether requests of a stream have arrived that are not passed on, and whether the method has to read before more are. */
  #isPassing = false;
  #isFull = false;
  /** Whether the whole body has arrived. */
  #isRead = false;
  #hasHeaders = false;
  #hasEnded = false;
  #isOutstanding = false;
  /** The messages of a stream of responses. */
  readonly #messages = new MessageReader();
  /** The one response of other methods, and what of it was not sent. */
  readonly #response: JsonStream;
  #text = "";

  constructor(outer: HttpCall, route: Route, context: ServiceContext) {
    super(outer);
    outer.onDeadline = () =>
      this.end(refused(status.DEADLINE_EXCEEDED, "context deadline exceeded"));
    this.#route = route;
    this.#context = context;
    this.#response = new JsonStream(route.response);
    this.request = new Readable({ read: () => this.#readOn(), highWaterMark: maxMessageBytes });
  }

  override get isOver(): boolean {
    return this.#hasEnded || this.outer.isOver;
  }

  sendAtOnce(): boolean {
    return false;
  }

  send(frame: Uint8Array, onAccepted: (error?: Error | null) => void): void {
    if (this.isOver) return;
    const json = this.#route.hasResponses ? this.#jsonOfFrame(frame) : this.#jsonOfPart(frame);
    if (json === undefined || this.isOver) return;
    if (json.length === 0) {
      queueMicrotask(onAccepted);
      return;
    }
    this.#sendHeaders(200, jsonHeaders);
    this.#isOutstanding = true;
    this.outer.send(json, (error) => {
      this.#isOutstanding = false;
      onAccepted(error);
    });
  }

  sendParts(parts: FrameParts, onAccepted: (error?: Error | null) => void): void {
    this.send(Buffer.concat(parts), onAccepted);
  }

  withdraw(): boolean {
    return false;
  }

  respond(parts: FrameParts): FrameParts {
    if (this.isOver) return [];
    for (const part of parts) this.#addToResponse(part);
    return this.#finish();
  }

  end(why: WireStatus): void {
    if (this.isOver) return;
    this.#release();
    const { code, details } = why;
    const httpCode = httpStatuses[code] ?? 500;
    if (code === status.OK) {
      this.#finish();
    } else if (!this.#hasHeaders) {
      this.#hasEnded = true;
      this.#refuse(code, httpCode, details);
    } else if (!this.#route.hasResponses) {
      this.reset();
    } else {
      this.#hasEnded = true;
      // It would overtake a message that the client has not accepted.
      if (!this.#isOutstanding) this.outer.send(streamError(code, httpCode, details), ignore);
      this.outer.sendTrailers({ "grpc-status": code });
    }
  }

  reset(): void {
    this.#release();
    this.outer.reset();
  }

  /** etcd's headers are not for the client. Its own are sent with the first message, or with an error. */
  sendHeaders(): void {}

  sendTrailers(trailers: OutgoingHttpHeaders): void {
    const code = Number(trailers["grpc-status"] ?? status.UNKNOWN);
    this.end(refused(code, decoded(String(trailers["grpc-message"] ?? ""))));
  }

  resetWith(code: number): void {
    this.#release();
    if (this.#hasHeaders || this.isOver) this.outer.resetWith(code);
    else this.end(refused(status.UNAVAILABLE, "etcd has reset the call"));
  }

  /** The response is complete. */
  #finish(): FrameParts {
    this.#release();
    if (this.#route.hasResponses) {
      this.#sendHeaders(200, {});
      this.#hasEnded = true;
      this.outer.sendTrailers({ "grpc-status": status.OK });
      return [];
    }
    const end = this.#convert(() => this.#response.end());
    if (end === undefined) return [];
    const body = Buffer.from(this.#text + end);
    this.#text = "";
    this.#sendHeaders(200, { ...jsonHeaders, "content-length": body.length });
    this.#hasEnded = true;
    return this.outer.respond([body]);
  }

  #refuse(code: status, httpCode: number, message: string): void {
    const body = this.#route.hasResponses
      ? streamError(code, httpCode, message)
      : Buffer.from(JSON.stringify({ error: message, code, message }));
    const headers = { "content-type": "application/json", "content-length": body.length };
    this.#sendHeaders(httpCode, headers);
    this.outer.send(body, ignore);
    this.outer.sendTrailers({ "grpc-status": code });
  }

  #sendHeaders(httpCode: number, headers: OutgoingHttpHeaders): void {
    if (this.#hasHeaders) return;
    this.#hasHeaders = true;
    this.outer.sendHeaders({ ":status": httpCode, ...headers });
  }

  /** The JSON of the messages that are whole with these bytes, in a line each. Undefined: that has ended the call. */
  #jsonOfFrame(frame: Uint8Array): Buffer | undefined {
    const isWhole = this.#messages.bytes.length === 0;
    const known = isWhole ? jsonOfFrames.get(frame) : undefined;
    if (known !== undefined) return known;
    const json = this.#convert(() => {
      this.#messages.add(bufferOf(frame));
      let lines = "";
      for (let next = this.#messages.next(); next !== undefined; next = this.#messages.next()) {
        lines += `{"result":${jsonOf(this.#route.response, next)}}\n`;
      }
      this.#messages.own();
      return Buffer.from(lines);
    });
    if (json !== undefined && isWhole && this.#messages.bytes.length === 0)
      jsonOfFrames.set(frame, json);
    return json;
  }

  /** What is sent now of the one response of the call. */
  #jsonOfPart(part: Uint8Array): Buffer | undefined {
    this.#addToResponse(part);
    if (this.isOver) return undefined;
    const text = this.#text.length < collectedChars ? "" : this.#text;
    if (text !== "") this.#text = "";
    return Buffer.from(text);
  }

  #addToResponse(part: Uint8Array): void {
    this.#text += this.#convert(() => this.#response.add(bufferOf(part))) ?? "";
  }

  /** Undefined: the message is not one of etcd's, and the call was ended. */
  #convert<T>(make: () => T): T | undefined {
    try {
      return make();
    } catch (error) {
      if (!(error instanceof WireFault)) throw error;
      this.end(refused(status.INTERNAL, `the ${this.#route.response.name} ${error.message}`));
      return undefined;
    }
  }

  /** The method reads its request. */
  #readOn(): void {
    this.#isFull = false;
    if (this.#hasRequest) {
      if (this.#isPassing) EventLoopTurns.of(this.#context.clock).schedule(this);
      else this.outer.request.resume();
      return;
    }
    this.#hasRequest = true;
    const { requestPool } = this.#context;
    this.#charge = requestPool.reserve(this.connection, 0, () =>
      this.end(outOfRequestRoom(requestPool)),
    );
    this.outer.request.on("data", this.#take).on("end", this.#ended);
  }

  readonly #take = (chunk: Buffer): void => {
    if (this.isOver || this.request.readableEnded) return;
    this.#values.add(chunk);
    const { heldBytes, size } = this.#values;
    // With the message that is made of it.
    this.#charge?.resize(2 * heldBytes);
    if (this.isOver) return;
    if (size > maxJsonBytes) {
      const details = `grpc: received message larger than max (${size} vs. ${maxMessageBytes})`;
      this.end(refused(status.RESOURCE_EXHAUSTED, details));
    } else if (this.#route.hasRequests) {
      this.#isPassing = true;
      this.outer.request.pause();
      EventLoopTurns.of(this.#context.clock).start(this);
    }
  };

  /** The end of the body may come before all of it has been passed on. */
  readonly #ended = (): void => {
    this.#isRead = true;
    if (!this.#isPassing) this.#finishRequest();
  };

  #finishRequest(): void {
    if (this.isOver) return;
    this.#pass((messages) => {
      const message = this.#lastMessage();
      if (message !== undefined) messages.push(message);
    });
    if (this.isOver) return;
    this.#values.clear();
    this.#charge?.resize(0);
    this.request.push(null);
  }

  /** For `EventLoopTurns`: passes requests of a stream on. A client may send a million of them in a few megabytes. */
  work(until: number): boolean {
    if (this.isOver || this.#isFull || !this.#isPassing) return false;
    const { clock } = this.#context;
    this.#pass((messages) => {
      do {
        const message = this.#nextMessage();
        if (message === undefined) {
          this.#isPassing = false;
          return;
        }
        messages.push(message);
      } while (clock.now() < until);
    });
    if (this.isOver) return false;
    if (this.#isPassing) return true;
    this.#values.own();
    this.#charge?.resize(2 * this.#values.heldBytes);
    if (this.#isRead) this.#finishRequest();
    else if (!this.isOver && !this.#isFull) this.outer.request.resume();
    return false;
  }

  #nextMessage(): Buffer | undefined {
    const json = this.#values.next();
    return json === undefined ? undefined : messageFromJson(this.#route.request, json);
  }

  /**
   * The request of a method with one: as with etcd, it may be left out, and what comes behind it is ignored. Of a stream all
   * were passed on before.
   */
  #lastMessage(): Buffer | undefined {
    const message = this.#nextMessage();
    if (message === undefined && !this.#values.isEmpty) throw new InvalidJson("unexpected EOF");
    return message ?? (this.#route.hasRequests ? undefined : Buffer.alloc(0));
  }

  /**
   * Passes on the messages that `collect` adds, all together: each piece of a stream takes memory besides its bytes. An invalid
   * one ends the call behind those before.
   */
  #pass(collect: (messages: Buffer[]) => void): void {
    const messages: Buffer[] = [];
    let invalid: InvalidJson | undefined;
    try {
      collect(messages);
    } catch (error) {
      if (!(error instanceof InvalidJson)) throw error;
      invalid = error;
    }
    if (messages.length > 0 && !this.request.push(framed(messages))) {
      this.#isFull = true;
      this.outer.request.pause();
    }
    if (invalid !== undefined) this.end(refused(status.INVALID_ARGUMENT, invalid.message));
  }

  /** Nothing more is read. */
  #release(): void {
    this.#values.clear();
    this.#charge?.release();
    this.#charge = undefined;
    // What the client still sends is read and dropped.
    this.outer.request.off("data", this.#take).off("end", this.#ended).resume();
  }
}

/** Messages with gRPC's framing. */
function framed(messages: readonly Buffer[]): Buffer {
  let size = 0;
  for (const message of messages) size += prefixSize + message.length;
  const writer = new WireWriter(Buffer.allocUnsafe(size));
  for (const message of messages) {
    writer.prefix(message.length);
    writer.raw(message);
  }
  return writer.bytes;
}

/** A client that does not accept the end of a call is reset by `sendTrailers`. */
const ignore = (): void => {};

/** What comes at the end of a stream whose headers are sent. */
function streamError(code: status, httpCode: number, message: string): Buffer {
  const http = { http_code: httpCode, http_status: STATUS_CODES[httpCode] ?? "" };
  return Buffer.from(`${JSON.stringify({ error: { grpc_code: code, ...http, message, code } })}\n`);
}

function bufferOf(bytes: Uint8Array): Buffer {
  return Buffer.from(bytes.buffer, bytes.byteOffset, bytes.byteLength);
}

/** gRPC percent-encodes the text of a status. */
function decoded(text: string): string {
  try {
    return decodeURIComponent(text);
  } catch {
    return text;
  }
}

/** The status of HTTP for each of gRPC, as the gateway of etcd has them. */
const httpStatuses: Readonly<Partial<Record<status, number>>> = {
  [status.CANCELLED]: 499,
  [status.INVALID_ARGUMENT]: 400,
  [status.DEADLINE_EXCEEDED]: 504,
  [status.NOT_FOUND]: 404,
  [status.ALREADY_EXISTS]: 409,
  [status.PERMISSION_DENIED]: 403,
  [status.UNAUTHENTICATED]: 401,
  [status.RESOURCE_EXHAUSTED]: 429,
  [status.FAILED_PRECONDITION]: 400,
  [status.ABORTED]: 409,
  [status.OUT_OF_RANGE]: 400,
  [status.UNIMPLEMENTED]: 501,
  [status.UNAVAILABLE]: 503,
};

/** Headers that are metadata of the same name, and the beginning of others that are. */
const passed = ["authorization", "grpc-timeout"];
const forwardedPrefix = "grpc-metadata-";

/** The metadata of the call of gRPC, as etcd's gateway makes it of the headers of a request. */
export function metadataOf(headers: IncomingHttpHeaders): IncomingHttpHeaders {
  const metadata: IncomingHttpHeaders = {};
  for (const [name, value] of Object.entries(headers)) {
    const isPrefixed = name.startsWith(forwardedPrefix);
    const key = isPrefixed ? name.slice(forwardedPrefix.length) : name;
    const isPassed = isPrefixed ? !/^(?:$|grpc-|x-forwarded-)/.test(key) : passed.includes(name);
    if (isPassed) Object.assign(metadata, { [key]: value });
  }
  metadata["content-type"] = "application/grpc";
  return metadata;
}
