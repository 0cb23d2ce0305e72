import { Fifo } from "../../base/fifo.ts";
import type { WatchRequest as WireRequest } from "../../wire/generated/watchfanout/v1/WatchRequest.ts";
import type { WatchResponse__Output as WireResponse } from "../../wire/generated/watchfanout/v1/WatchResponse.ts";
import { listWatchMethods } from "../../wire/methods.ts";
import { broken } from "../calls/decode.ts";

/** What may wait for the consumer of one watch. The response that exceeds the bytes is held as well. */
export interface Credit {
  readonly messages: number;
  readonly bytes: number;
}

/**
 * By how much the two sides may count a watch differently, in bytes: the first response has the id of the history, which
 * takes no credit.
 */
const creditSlackBytes = 1_024;

/** What a watch needs of its stream. */
interface StreamWatchOwner {
  readonly credit: Credit;
  /** Grants the server what was taken. */
  grant(watch: StreamWatch, taken: Credit): void;
  /** The watch has ended, or left the stream. Called once. */
  over(watch: StreamWatch): void;
}

/**
 * One watch on one shared stream: the responses that have arrived and were not taken. They wait encoded, so that their bytes
 * are those that the server counts. It grants more once half of its credit was taken.
 */
export class StreamWatch {
  readonly id: number;
  readonly request: WireRequest;
  readonly #stream: StreamWatchOwner;
  /** Responses, and marks of `whenTaken`. */
  readonly #arrived = new Fifo<Uint8Array | (() => void)>();
  /** What was taken and not granted yet. */
  #messages = 0;
  #bytes = 0;
  /** What waits to be taken. */
  #waitingMessages = 0;
  #waitingBytes = 0;
  /** Why it has ended; undefined: it has not, or its consumer has left. */
  #failure: unknown;
  #isOver = false;
  /** Continues the consumer; undefined unless it waits. */
  #wake: (() => void) | undefined;

  constructor(id: number, request: WireRequest, stream: StreamWatchOwner) {
    this.id = id;
    this.request = request;
    this.#stream = stream;
  }

  /** Whether nothing more arrives. */
  get isOver(): boolean {
    return this.#isOver;
  }

  /** Bytes of the responses that wait to be taken. */
  get unreadBytes(): number {
    return this.#waitingBytes;
  }

  /** A response has arrived. Throws INTERNAL if the watch has no credit for it: the server must not fill the memory. */
  push(response: Uint8Array): void {
    if (this.#isOver) return;
    const { messages, bytes } = this.#stream.credit;
    if (this.#waitingMessages >= messages || this.#waitingBytes >= bytes + creditSlackBytes) {
      throw broken("a response of a watch without credit");
    }
    this.#waitingMessages++;
    this.#waitingBytes += response.byteLength;
    this.#arrived.push(response);
    this.#continue();
  }

  /** Ends it. The consumer gets `failure` after what has arrived. Only the first call has an effect. */
  end(failure: unknown): void {
    if (this.#isOver) return;
    this.#failure = failure;
    this.#leave();
  }

  /** Its consumer has left: drops what was not taken. Idempotent. */
  close(): void {
    for (let item = this.#arrived.shift(); item !== undefined; item = this.#arrived.shift()) {
      if (typeof item === "function") item();
    }
    this.#failure = undefined;
    if (!this.#isOver) this.#leave();
  }

  /** Calls `mark` once the consumer is done with all that has arrived until now, or has left. */
  whenTaken(mark: () => void): void {
    if (this.#wake !== undefined || (this.#isOver && this.#arrived.length === 0)) mark();
    else this.#arrived.push(mark);
  }

  /**
   * Resolves to the next response, and means that the consumer is done with the one before; undefined: it has left. Rejects
   * with why the watch has ended, and with INTERNAL for a response that can't be read.
   */
  async next(): Promise<WireResponse | undefined> {
    for (;;) {
      const item = this.#arrived.shift();
      if (typeof item === "function") item();
      else if (item !== undefined) return this.#take(item);
      else if (this.#failure !== undefined) throw this.#failure;
      else if (this.#isOver) return undefined;
      else {
        await new Promise<void>((resolve) => {
          this.#wake = resolve;
        });
      }
    }
  }

  #take(response: Uint8Array): WireResponse {
    const { credit } = this.#stream;
    this.#waitingMessages--;
    this.#waitingBytes -= response.byteLength;
    this.#messages++;
    this.#bytes += response.byteLength;
    const isUnlimited = credit.bytes === Number.POSITIVE_INFINITY;
    if (isUnlimited || this.#messages * 2 >= credit.messages || this.#bytes * 2 >= credit.bytes) {
      const taken = { messages: this.#messages, bytes: this.#bytes };
      this.#messages = 0;
      this.#bytes = 0;
      if (!this.#isOver) this.#stream.grant(this, taken);
    }
    try {
      return listWatchMethods.Watch.decode(response);
    } catch {
      throw broken("a response of a watch that can't be decoded");
    }
  }

  #leave(): void {
    this.#isOver = true;
    this.#continue();
    this.#stream.over(this);
  }

  #continue(): void {
    const wake = this.#wake;
    this.#wake = undefined;
    wake?.();
  }
}
