import { STATUS_CODES } from "node:http";
import type { OutgoingHttpHeaders } from "node:http2";
import { status } from "@grpc/grpc-js";
import { WireFault } from "../../protobuf/message-cursor.ts";
import { HeldResponse } from "../../server/calls/call-admission.ts";
import { httpStatuses } from "../../server/calls/http-statuses.ts";
import type { CarrierCall, HttpCall } from "../../server/calls/methods.ts";
import { outOfRequestRoom, refused } from "../../server/calls/refusals.ts";
import type { ServiceContext } from "../../server/calls/service-context.ts";
import { TranslatedCall } from "../../server/calls/translated-call.ts";
import type { FrameParts } from "../../wire/encode.ts";
import { decodedDetails, type WireStatus } from "../../wire/errors.ts";
import { JsonStream, jsonOf } from "../../wire/json/message-to-json.ts";
import { MessageReader } from "../../wire/message-reader.ts";
import { JsonRequest } from "./json-request.ts";
import type { Route } from "./schema.ts";

/**
 * Maximum size of one field of a response, in bytes, as of the result of one operation of a transaction: it becomes JSON in
 * one step, which can last a third of a second if its objects are small. The largest object fits.
 */
const maxFieldBytes = 2 * 1024 ** 2;

/** Maximum size of one message of a stream, in bytes. A watch that can't take one could not be resumed behind it. */
const maxStreamedBytes = 64 * 1024 ** 2;

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
export class JsonCall extends TranslatedCall implements HttpCall {
  readonly request: JsonRequest;
  isMidMessage = false;
  readonly #route: Route;
  readonly #held: HeldResponse;
  #hasHeaders = false;
  #hasEnded = false;
  #isOutstanding = false;
  /** The messages of a stream of responses. */
  readonly #messages = new MessageReader();
  /** The one response of other methods, and what of it was not sent. */
  readonly #response: JsonStream;
  #text = "";

  constructor(outer: CarrierCall, route: Route, context: ServiceContext) {
    super(outer);
    outer.onDeadline = () =>
      this.end(refused(status.DEADLINE_EXCEEDED, "context deadline exceeded"));
    this.#route = route;
    this.#held = new HeldResponse(context.sendBudget, outer.connection, (why) => this.end(why));
    this.#response = new JsonStream(route.response);
    const { clock, requestPool } = context;
    this.request = new JsonRequest({
      ...{ body: outer.request, route, clock },
      reserve: () =>
        requestPool.reserve(outer.connection, 0, () => this.end(outOfRequestRoom(requestPool))),
      fail: (why) => this.end(why),
    });
  }

  get isOver(): boolean {
    return this.#hasEnded || this.outer.isOver;
  }

  /** Its client may be gone within its request, or its response. */
  override onOver(listener: () => void): void {
    super.onOver(() => {
      this.#release();
      listener();
    });
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
    return this.isOver ? [] : this.#finish();
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
    this.end(refused(code, decodedDetails(String(trailers["grpc-message"] ?? ""))));
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
    this.#messages.add(bufferOf(frame));
    const { isWhole: isNext, heldBytes, size } = this.#messages;
    if (!this.#mayHold(isNext ? 0 : heldBytes, size)) return undefined;
    const json = this.#convert(() => {
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
    const { heldBytes } = this.#response;
    if (!this.isOver) this.#mayHold(heldBytes, heldBytes);
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

  /**
   * Counts what is held until it can be sent, of a part of the response that has `size` bytes or more. Ends the call, and
   * returns false, if that is too much.
   */
  #mayHold(heldBytes: number, size: number): boolean {
    const max = this.#route.hasResponses ? maxStreamedBytes : maxFieldBytes;
    if (size > max) {
      this.end(refused(status.RESOURCE_EXHAUSTED, tooLarge(max)));
      return false;
    }
    this.#held.charge(heldBytes);
    return !this.isOver;
  }

  /** Nothing more is read, and nothing is held. */
  #release(): void {
    this.request.release();
    this.#held.release();
  }
}

function tooLarge(max: number): string {
  return `a part of the response has more than ${max / 1024 ** 2} MiB, which the JSON gateway does not hold: use gRPC`;
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
