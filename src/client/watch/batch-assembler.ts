import { invalidRequest } from "../../base/errors.ts";
import { memoryOverheadBytes, type WatchEvent } from "../../model/event.ts";
import { Slabs, smallestSlab } from "../../model/slabs.ts";
import type { WatchRequest as WireRequest } from "../../wire/generated/watchfanout/v1/WatchRequest.ts";
import type { WatchResponse__Output as WireResponse } from "../../wire/generated/watchfanout/v1/WatchResponse.ts";
import { decodeEvent, decodeRevision } from "../calls/decode.ts";
import type { AtomicBatch } from "./client-calls.ts";
import { StreamContract } from "./response-checks.ts";

/**
 * Assembles the responses of one stream to atomic batches. A response without a revision leaves the batch open: its
 * events are held back until a response with a revision closes it. When a stream ends, its open batch is dropped, so
 * one assembler serves one stream.
 */
export class BatchAssembler {
  readonly #maxBatchBytes: number;
  readonly #contract: StreamContract;
  readonly #slabs = new Slabs(smallestSlab);
  #open: WatchEvent[] = [];
  #openBytes = 0;
  #isOpen = false;
  #historyId: string;

  /** `request` is that of the stream; its history id is for streams that do not send theirs. */
  constructor(request: WireRequest, maxBatchBytes: number) {
    this.#maxBatchBytes = maxBatchBytes;
    this.#contract = new StreamContract(request);
    this.#historyId = request.history_id ?? "";
  }

  /** Whether the last response belongs to a batch that is not complete. */
  get isOpen(): boolean {
    return this.#isOpen;
  }

  /**
   * Returns the batch that this response completes; undefined if it completes none. Throws INVALID_REQUEST if the
   * batch exceeds `maxBatchBytes`, INTERNAL if the server violates the contract, and HISTORY_CHANGED if the stream is of
   * another history.
   */
  add(response: WireResponse): AtomicBatch | undefined {
    if (response.history_id !== "") this.#historyId = response.history_id;
    for (const wire of response.events) this.#hold(decodeEvent(wire, this.#slabs));
    this.#isOpen = response.revision === undefined;
    if (response.revision === undefined) return undefined;
    const events = this.#open;
    this.#open = [];
    this.#openBytes = 0;
    const batch = {
      revision: decodeRevision(response.revision),
      events,
      initial: response.initial_events_end,
      historyId: this.#historyId,
    };
    this.#contract.check(batch);
    return batch;
  }

  #hold(event: WatchEvent): void {
    this.#open.push(event);
    this.#openBytes += event.estimatedBytes + memoryOverheadBytes;
    if (this.#openBytes <= this.#maxBatchBytes) return;
    throw invalidRequest(
      "maxBatchBytes",
      `An atomic batch exceeds ${this.#maxBatchBytes} bytes, the most that this client holds back. Watch a smaller prefix, or raise maxBatchBytes.`,
    );
  }
}
