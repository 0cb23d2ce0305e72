import type { OutgoingHttpHeaders } from "node:http2";
import type { Readable } from "node:stream";
import { status } from "@grpc/grpc-js";
import type { Task } from "../base/turns.ts";
import { HeldResponse } from "../server/calls/call-admission.ts";
import type { CarrierCall } from "../server/calls/methods.ts";
import { outOfRequestRoom, refused } from "../server/calls/refusals.ts";
import { RefusedRequest, type RequestBody } from "../server/calls/server-call.ts";
import type { ServiceContext } from "../server/calls/service-context.ts";
import { TranslatedCall } from "../server/calls/translated-call.ts";
import type { WebCall } from "../server/calls/web-door.ts";
import { type FrameParts, prefixSize, sizeOf } from "../wire/encode.ts";
import type { Encoding } from "../wire/encoding.ts";
import { statusOf, type WireStatus } from "../wire/errors.ts";
import { JsonStream } from "../wire/json/message-to-json.ts";
import type { Message } from "../wire/json/message-type.ts";
import type { MessageForm } from "./message-form.ts";
import { type Protocol, withoutPrefix } from "./protocol.ts";

/** What a call by a protocol is made of. */
export interface WebCallOptions {
  readonly protocol: Protocol;
  readonly form: MessageForm;
  /** The type of a response in JSON; undefined: messages are not in JSON. */
  readonly json: Message | undefined;
  /** The bytes of the request by HTTP. */
  readonly stream: Readable;
  /** The compression of the request, by its name in gRPC. */
  readonly requestEncoding: string;
  /** How the response may be compressed. */
  readonly encoding: Encoding | undefined;
  /** Maximum size of the request in its form, in bytes. */
  readonly maxBytes: number | undefined;
  /** Headers of every response, of CORS. */
  readonly headers: OutgoingHttpHeaders;
  readonly refusal: WireStatus | undefined;
}

/** A message up to this size is converted to or from JSON at once, in bytes. It takes a millisecond at most. */
const bytesAtOnce = 64 * 1024;

/** A call by Connect or gRPC-Web, as one of gRPC. */
export class TranslatedWebCall extends TranslatedCall implements WebCall {
  readonly body: RequestBody;
  readonly encoding: Encoding | undefined;
  readonly sendsSeveral: boolean;
  readonly refusal: WireStatus | undefined;
  readonly #options: WebCallOptions;
  readonly #context: ServiceContext;
  #last: { readonly parts: FrameParts; readonly message: Uint8Array } | undefined;
  /** Counts the JSON of a large response until the client has accepted it. */
  #held: HeldResponse | undefined;
  /** Gives up the request that waits to be converted. */
  #dropRequest: (() => void) | undefined;
  #hasHeaders = false;
  #hasEnded = false;

  constructor(outer: CarrierCall, options: WebCallOptions, context: ServiceContext) {
    super(outer);
    const { protocol, form, stream, requestEncoding, encoding, maxBytes, refusal } = options;
    this.#options = options;
    this.#context = context;
    this.encoding = encoding;
    this.refusal = refusal;
    this.sendsSeveral = form.isShared;
    this.body = {
      ...{ stream, encoding: requestEncoding, isBare: protocol.isBare },
      corruptCode: protocol.corruptCode,
      ...(maxBytes === undefined ? {} : { maxBytes }),
    };
    const details = "The deadline of the call has passed.";
    outer.onDeadline = () =>
      this.end(refused(status.DEADLINE_EXCEEDED, details, "DEADLINE_EXCEEDED"));
  }

  get isOver(): boolean {
    return this.#hasEnded || this.outer.isOver;
  }

  override onOver(listener: () => void): void {
    super.onOver(() => {
      this.#dropRequest?.();
      listener();
    });
  }

  override onClosed(listener: () => void): void {
    super.onClosed(() => {
      this.#held?.release();
      listener();
    });
  }

  convert(
    message: Buffer,
    onConverted: (binary: Buffer | undefined) => void,
    onRefused: (why: WireStatus) => void,
  ): void {
    const isLarge = this.#options.json !== undefined && message.length > bytesAtOnce;
    if (isLarge) this.#convertInTurn(message, onConverted, onRefused);
    else this.#convertNow(message, onConverted, onRefused);
  }

  sendAtOnce(frame: Uint8Array, isFollowed: boolean): boolean {
    if (!this.#hasHeaders || this.#hasEnded) return false;
    return this.outer.sendAtOnce(this.#options.form.outgoing(frame), isFollowed);
  }

  send(frame: Uint8Array, onAccepted: (error?: Error | null) => void): void {
    if (this.isOver) return;
    this.#sendHeaders();
    this.outer.send(this.#options.form.outgoing(frame), onAccepted);
  }

  sendParts(parts: FrameParts, onAccepted: (error?: Error | null) => void): void {
    if (!this.#options.form.isShared) {
      this.send(this.#joined(parts), onAccepted);
    } else if (!this.isOver) {
      this.#sendHeaders();
      this.outer.sendParts(parts, onAccepted);
    }
  }

  heldFor(frames: FrameParts, isOneMessage: boolean): FrameParts {
    const { form } = this.#options;
    if (form.isShared) return frames;
    const messages = isOneMessage ? [this.#joined(frames)] : frames;
    return [...frames, ...messages.map((message) => form.outgoing(message))];
  }

  withdraw(): boolean {
    return !this.#hasEnded && this.outer.withdraw();
  }

  respond(parts: FrameParts): FrameParts {
    if (this.isOver) return [];
    const { protocol, form, json } = this.#options;
    this.#hasEnded = true;
    if (!protocol.isBare) {
      const { bytes } = protocol.ending(refused(status.OK, ""));
      const frames = form.isShared ? parts : [form.outgoing(Buffer.concat(parts))];
      this.#sendHeaders();
      return this.outer.respond([...frames, bytes]);
    }
    if (json !== undefined) {
      this.#respondWithJson(parts, json);
      return parts;
    }
    // The first byte says whether it is compressed.
    const isCompressed = parts[0]?.[0] === 1;
    const content = withoutPrefix(parts, prefixSize);
    this.#sendHeaders({
      "content-length": sizeOf(content),
      ...(isCompressed ? { "content-encoding": this.encoding?.name } : {}),
    });
    return this.outer.respond(content);
  }

  end(why: WireStatus): void {
    if (this.isOver) return;
    this.#hasEnded = true;
    const { bytes, headers } = this.#options.protocol.ending(why);
    if (!this.#hasHeaders) this.#sendHeadersOf(headers);
    this.outer.finish(bytes, why.code);
  }

  reset(): void {
    this.#hasEnded = true;
    this.outer.reset();
  }

  /** A message in parts as one, which is remembered until the next. */
  #joined(parts: FrameParts): Uint8Array {
    const [only] = parts;
    if (only !== undefined && parts.length === 1) return only;
    if (this.#last?.parts !== parts) this.#last = { parts, message: Buffer.concat(parts) };
    return this.#last.message;
  }

  #convertNow(...[message, onConverted, onRefused]: Parameters<WebCall["convert"]>): void {
    let binary: Buffer;
    try {
      binary = this.#options.form.incoming(message);
    } catch (error) {
      if (!(error instanceof RefusedRequest)) throw error;
      onRefused(error.status);
      return;
    }
    onConverted(binary);
  }

  /**
   * Converts a large request, which lasts 40 ms at most, in a time slice of its caller: otherwise requests that arrive together would
   * all be converted in one turn of the event loop. Until then the request counts.
   */
  #convertInTurn(...[message, onConverted, onRefused]: Parameters<WebCall["convert"]>): void {
    const { connection, owner } = this;
    const { timeSlices, requestPool } = this.#context;
    const leave = (): void => {
      this.#dropRequest = undefined;
      timeSlices.delete(owner, task);
      charge.release();
    };
    const refuse = (why: WireStatus): void => {
      leave();
      onRefused(why);
    };
    const step = (): boolean => {
      leave();
      // Its end may be announced only in a later turn.
      if (this.isOver) onConverted(undefined);
      else this.#convertNow(message, onConverted, onRefused);
      return false;
    };
    const task: Task = { step, refuse: (error) => refuse(statusOf(error)) };
    const charge = requestPool.reserve(connection, 0, () => refuse(outOfRequestRoom(requestPool)));
    this.#dropRequest = () => {
      leave();
      onConverted(undefined);
    };
    charge.resize(message.length);
    if (charge.amount > 0) timeSlices.start(owner, task);
  }

  /** A large one in time slices. Its JSON counts beside it: other calls share what it is made of, and none its JSON. */
  #respondWithJson(parts: FrameParts, type: Message): void {
    const json = new JsonStream(type);
    const texts: Buffer[] = [];
    let next = 0;
    let heldBytes = 0;
    const isLarge = sizeOf(parts) > bytesAtOnce;
    if (isLarge) this.#held = this.#holding();
    const add = (text: string): void => {
      const bytes = Buffer.from(text);
      texts.push(bytes);
      heldBytes += bytes.length;
      this.#held?.charge(heldBytes);
    };
    const step = (): boolean => {
      if (this.outer.isOver) return false;
      const part = parts[next++];
      if (part !== undefined) {
        add(json.add(Buffer.from(part.buffer, part.byteOffset, part.byteLength)));
        return true;
      }
      add(json.end());
      if (this.outer.isOver) return false;
      this.#sendHeaders({ "content-length": sizeOf(texts) });
      this.outer.respond(texts);
      return false;
    };
    if (isLarge) this.#context.timeSlices.start(this.owner, { step });
    else while (step());
  }

  /** What is counted in the send budget. Evicted, it ends the call. */
  #holding(): HeldResponse {
    return new HeldResponse(this.#context.sendBudget, this.connection, (why) => {
      if (this.#hasHeaders) this.outer.reset();
      else {
        this.#hasEnded = false;
        this.end(why);
      }
    });
  }

  #sendHeaders(more: OutgoingHttpHeaders = {}): void {
    if (this.#hasHeaders) return;
    this.#sendHeadersOf({ ...this.#options.protocol.headers(this.encoding?.name), ...more });
  }

  #sendHeadersOf(headers: OutgoingHttpHeaders): void {
    this.#hasHeaders = true;
    this.outer.sendHeaders({ ...headers, ...this.#options.headers });
  }
}
