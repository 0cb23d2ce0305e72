import { Readable } from "node:stream";
import { status } from "@grpc/grpc-js";
import type { Clock } from "../../base/clock.ts";
import { EventLoopTurns, type TurnWorker } from "../../base/event-loop-turns.ts";
import { WireWriter } from "../../protobuf/wire-writer.ts";
import { refused } from "../../server/calls/refusals.ts";
import type { Reservation } from "../../server/kernel/ledger.ts";
import { prefixSize } from "../../wire/encode.ts";
import type { WireStatus } from "../../wire/errors.ts";
import { InvalidJson } from "../../wire/json/invalid-json.ts";
import { messageFromJson } from "../../wire/json/json-to-message.ts";
import { JsonValues } from "../../wire/json/json-values.ts";
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
