import { invalidRequest } from "../../base/errors.ts";
import { memoryOverheadBytes, type WatchEvent } from "../../model/event.ts";
import { Slabs, smallestSlab } from "../../model/slabs.ts";
import type { WatchResponse__Output as WireResponse } from "../../wire/generated/watchfanout/v1/WatchResponse.ts";
import { decodeEvent, decodeRevision } from "../calls/decode.ts";

/** Changes that belong together, whole, and the resume point that they lead to. */
export interface AtomicBatch {
  /** Everything the watch asks for, up to and including this revision, has been delivered. */
  readonly revision: number;
  /** In the order of their revisions; the initial state in key order. Empty in a bookmark. */
  readonly events: readonly WatchEvent[];
  /** Whether these events are the initial state. */
  readonly initial: boolean;
  /** The history that the revisions belong to; empty where the server knows none. */
  readonly historyId: string;
}

/**
 * Puts the responses of one stream together to whole units. A response without a revision leaves its
 * unit open: its events are held back until one with a revision closes it. A stream that ends first
 * takes the open unit with it, so one assembler serves one stream.
 */
export class BatchAssembler {
  readonly #maxBatchBytes: number;
  readonly #slabs = new Slabs(smallestSlab);
  #open: WatchEvent[] = [];
  #openBytes = 0;
  #isOpen = false;
  #historyId: string;

  /** `historyId` is the one that is known so far, for streams that do not name theirs. */
  constructor(maxBatchBytes: number, historyId: string) {
    this.#maxBatchBytes = maxBatchBytes;
    this.#historyId = historyId;
  }

  /** Whether what came last belongs to a unit that is not whole. */
  get isOpen(): boolean {
    return this.#isOpen;
  }

  /** The unit that this response closes, if it closes one. Throws INVALID_REQUEST of one that is too large. */
  add(response: WireResponse): AtomicBatch | undefined {
    if (response.history_id !== "") this.#historyId = response.history_id;
    for (const wire of response.events) this.#hold(decodeEvent(wire, this.#slabs));
    this.#isOpen = response.revision === undefined;
    if (response.revision === undefined) return undefined;
    const events = this.#open;
    this.#open = [];
    this.#openBytes = 0;
    return {
      revision: decodeRevision(response.revision),
      events,
      initial: response.initial_events_end,
      historyId: this.#historyId,
    };
  }

  #hold(event: WatchEvent): void {
    this.#open.push(event);
    this.#openBytes += event.estimatedBytes + memoryOverheadBytes;
    if (this.#openBytes <= this.#maxBatchBytes) return;
    throw invalidRequest(
      "maxBatchBytes",
      `What belongs together here takes more than ${this.#maxBatchBytes} bytes, more than this client holds back for one unit. Watch a prefix of it, or raise maxBatchBytes.`,
    );
  }
}
