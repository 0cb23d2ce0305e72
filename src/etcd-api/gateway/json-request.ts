import { isUtf8 } from "node:buffer";
import { Readable } from "node:stream";
import { status } from "@grpc/grpc-js";
import type { Clock } from "../../base/clock.ts";
import { EventLoopTurns, type TurnWorker } from "../../base/event-loop-turns.ts";
import { GrowingBuffer } from "../../base/growing-buffer.ts";
import { WireWriter } from "../../protobuf/wire-writer.ts";
import { refused } from "../../server/calls/refusals.ts";
import type { Reservation } from "../../server/kernel/ledger.ts";
import { prefixSize } from "../../wire/encode.ts";
import type { WireStatus } from "../../wire/errors.ts";
import { InvalidJson, messageFromJson } from "./json-to-message.ts";
import type { Route } from "./schema.ts";

/** The largest message that etcd takes by default, and the largest JSON of one. */
const maxMessageBytes = 2 * 1024 ** 2;
const maxJsonBytes = 3 * 1024 ** 2;

/** What a request is made of. */
export interface JsonRequestDeps {
  /** The body by HTTP. */
  readonly body: Readable;
  readonly route: Route;
  readonly clock: Clock;
  /** Counts what is held, from when it is read. */
  readonly reserve: () => Reservation;
  /** Ends the call, and so calls `release`. */
  readonly fail: (why: WireStatus) => void;
}

/** The request of a call of gRPC, with its framing, made of a body with the JSON of its messages, while that arrives. */
export class JsonRequest extends Readable implements TurnWorker {
  readonly #deps: JsonRequestDeps;
  readonly #values = new JsonValues();
  #charge: Reservation | undefined;
  #hasBegun = false;
  /** Whether requests of a stream have arrived that are not passed on, and whether the method has to read before more are. */
  #isPassing = false;
  #isFull = false;
  /** Whether the whole body has arrived. */
  #isRead = false;
  #isOver = false;

  constructor(deps: JsonRequestDeps) {
    super({ highWaterMark: maxMessageBytes });
    this.#deps = deps;
  }

  /** Nothing more is read: what the client still sends is dropped. Idempotent. */
  release(): void {
    this.#isOver = true;
    this.#values.clear();
    this.#charge?.release();
    this.#charge = undefined;
    this.#deps.body.off("data", this.#take).off("end", this.#ended).resume();
  }

  /** The method reads its request. */
  override _read(): void {
    this.#isFull = false;
    if (this.#hasBegun) {
      if (this.#isPassing) EventLoopTurns.of(this.#deps.clock).schedule(this);
      else this.#deps.body.resume();
      return;
    }
    this.#hasBegun = true;
    this.#charge = this.#deps.reserve();
    this.#deps.body.on("data", this.#take).on("end", this.#ended);
  }

  readonly #take = (chunk: Buffer): void => {
    if (this.#isOver || this.readableEnded) return;
    this.#values.add(chunk);
    const { heldBytes, size } = this.#values;
    // With the message that is made of it.
    this.#charge?.resize(2 * heldBytes);
    if (this.#isOver) return;
    if (size > maxJsonBytes) {
      const details = `grpc: received message larger than max (${size} vs. ${maxMessageBytes})`;
      this.#deps.fail(refused(status.RESOURCE_EXHAUSTED, details));
    } else if (this.#deps.route.hasRequests) {
      this.#isPassing = true;
      this.#deps.body.pause();
      EventLoopTurns.of(this.#deps.clock).start(this);
    }
  };

  /** The end of the body may come before all of it has been passed on. */
  readonly #ended = (): void => {
    this.#isRead = true;
    if (!this.#isPassing) this.#finishRequest();
  };

  #finishRequest(): void {
    if (this.#isOver) return;
    this.#pass((messages) => {
      const message = this.#lastMessage();
      if (message !== undefined) messages.push(message);
    });
    if (this.#isOver) return;
    this.#values.clear();
    this.#charge?.resize(0);
    this.push(null);
  }

  /** For `EventLoopTurns`: passes requests of a stream on. A client may send a million of them in a few megabytes. */
  work(until: number): boolean {
    if (this.#isOver || this.#isFull || !this.#isPassing) return false;
    const clock = this.#deps.clock;
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
    if (this.#isOver) return false;
    if (this.#isPassing) return true;
    this.#values.own();
    this.#charge?.resize(2 * this.#values.heldBytes);
    if (this.#isRead) this.#finishRequest();
    else if (!this.#isOver && !this.#isFull) this.#deps.body.resume();
    return false;
  }

  #nextMessage(): Buffer | undefined {
    const json = this.#values.next();
    return json === undefined ? undefined : messageFromJson(this.#deps.route.request, json);
  }

  /**
   * The request of a method with one: as with etcd, it may be left out, and what comes behind it is ignored. Of a stream all
   * were passed on before.
   */
  #lastMessage(): Buffer | undefined {
    const message = this.#nextMessage();
    if (message === undefined && !this.#values.isEmpty) throw new InvalidJson("unexpected EOF");
    return message ?? (this.#deps.route.hasRequests ? undefined : Buffer.alloc(0));
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
    if (messages.length > 0 && !this.push(framed(messages))) {
      this.#isFull = true;
      this.#deps.body.pause();
    }
    if (invalid !== undefined) this.#deps.fail(refused(status.INVALID_ARGUMENT, invalid.message));
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

const OPEN = [0x7b, 0x5b]; // { [
const CLOSE = [0x7d, 0x5d]; // } ]
const SPACES = [0x20, 0x09, 0x0a, 0x0d];
const QUOTE = 0x22;
const BACKSLASH = 0x5c;
const COMMA = 0x2c;

/**
 * Maximum number of objects, arrays and their members in one value: parsing them takes time and memory, not their bytes. It is
 * one step, of 20 ms with numbers that JavaScript does not hold exactly. 2,000 operations of a transaction fit.
 */
const maxParts = 10_000;

/** How much of a text that is no request is named in the error, in characters. */
const maxNamed = 256;

/** Splits the body of a request into the JSON objects that follow one another in it. */
export class JsonValues {
  readonly #bytes = new GrowingBuffer();
  /** How much of the first value has been looked at, and what is open there. */
  #position = 0;
  #depth = 0;
  #parts = 0;
  #isInString = false;

  /** Size of what is held, in bytes. */
  get size(): number {
    return this.#bytes.length;
  }

  /** Memory of what is held, in bytes. */
  get heldBytes(): number {
    return this.#bytes.memoryBytes;
  }

  add(chunk: Buffer): void {
    this.#bytes.append(chunk, Infinity);
  }

  /** Takes the text of the next value; undefined: it has not arrived. Throws InvalidJson for one that is not an object or array. */
  next(): string | undefined {
    const bytes = this.#bytes.bytes;
    const end = this.#endOfValue(bytes);
    if (end === undefined) return undefined;
    const value = bytes.subarray(0, end);
    if (!isUtf8(value)) throw new InvalidJson("proto: syntax error: invalid UTF-8");
    const text = value.toString("utf8");
    this.#bytes.drop(end);
    this.#position = 0;
    this.#parts = 0;
    return text;
  }

  /** Whether nothing but white space is left. */
  get isEmpty(): boolean {
    return this.#bytes.bytes.every((byte) => SPACES.includes(byte));
  }

  /** Makes what is held keep no larger buffer alive. */
  own(): void {
    this.#bytes.own();
  }

  clear(): void {
    this.#bytes.clear();
  }

  #endOfValue(bytes: Buffer): number | undefined {
    for (; this.#position < bytes.length; this.#position++) {
      const byte = bytes[this.#position] as number;
      if (this.#isInString) {
        if (byte === BACKSLASH) this.#position++;
        else if (byte === QUOTE) this.#isInString = false;
      } else if (OPEN.includes(byte)) {
        this.#depth++;
        this.#count();
      } else if (CLOSE.includes(byte) && this.#depth > 0) {
        this.#depth--;
        if (this.#depth === 0) return ++this.#position;
      } else if (byte === QUOTE && this.#depth > 0) {
        this.#isInString = true;
      } else if (byte === COMMA && this.#depth > 0) {
        this.#count();
      } else if (this.#depth === 0 && !SPACES.includes(byte)) {
        const named = bytes.subarray(this.#position, this.#position + maxNamed);
        throw new InvalidJson(unexpected(named.toString("utf8")));
      }
    }
    return undefined;
  }

  #count(): void {
    this.#parts++;
    if (this.#parts <= maxParts) return;
    throw new InvalidJson(`the request has more than ${maxParts} values`);
  }
}

/** Says what is wrong with a text that begins neither an object nor an array. */
function unexpected(text: string): string {
  const token = /^(?:"(?:[^"\\]|\\.)*"|null|true|false|-?\d[\d.eE+-]*)/.exec(text)?.[0];
  return token === undefined
    ? `invalid character '${text[0]}' looking for beginning of value`
    : `proto: syntax error: unexpected token ${token}`;
}
