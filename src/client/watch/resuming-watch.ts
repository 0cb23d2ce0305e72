import type { Clock, Timer } from "../../base/clock.ts";
import { hasReason, invalidRequest, type Reason, WatchFanoutError } from "../../base/errors.ts";
import { type Reachability, StreamBackoff } from "../../base/stream-backoff.ts";
import { memoryOverheadBytes, type WatchEvent } from "../../model/event.ts";
import { Slabs, smallestSlab } from "../../model/slabs.ts";
import type { WatchRequest as WireRequest } from "../../wire/generated/watchfanout/v1/WatchRequest.ts";
import type { WatchResponse__Output as WireResponse } from "../../wire/generated/watchfanout/v1/WatchResponse.ts";
import { batchStalled, CallFailure } from "../calls/call-failure.ts";
import { decodeEvent, decodeRevision } from "../calls/decode.ts";
import type { Endpoint } from "../calls/endpoints.ts";
import type { Interruption } from "../calls/options.ts";
import type { AtomicBatch } from "./client-calls.ts";
import { StreamContract } from "./response-checks.ts";

interface ResumingWatchOptions {
  readonly clock: Clock;
  /** Numbers from 0 to below 1, for jitter. */
  readonly random: () => number;
  readonly signal?: AbortSignal | undefined;
  /** Ends pauses early. Default: they never end early. */
  readonly reachability?: Reachability | undefined;
  /** Ends the stream and the pauses when it is aborted. The next `open` then throws the reason. */
  readonly closing?: AbortSignal | undefined;
  /** Whether to open another stream when one breaks. Default true. */
  readonly resume?: boolean | undefined;
  /** Maximum bytes of an incomplete batch that are held back. */
  readonly maxBatchBytes: number;
  readonly onOpened?: (() => void) | undefined;
  /** Called when the server of the current stream has violated the contract. */
  readonly onViolation?: (() => void) | undefined;
  readonly onInterruption?: ((interruption: Interruption) => void) | undefined;
}

/** Where the streams of watches come from. */
export interface WatchStreams {
  /** Opens one stream, as OpenStream. `onServer` is called before its first response. */
  readonly open: (
    request: WireRequest,
    signal: AbortSignal,
    onServer: (server: Endpoint) => void,
  ) => AsyncIterable<WireResponse>;
  /** Ends the watches when it is aborted. The next `open` then throws the reason. */
  readonly closing: AbortSignal;
}

/** Opens one stream. It ends only with a CallFailure, or when the signal is aborted. */
export type OpenStream = (request: WireRequest, signal: AbortSignal) => AsyncIterable<WireResponse>;

/** The pauses between the streams of a watch. */
export const watchBackoff = { initialMs: 200, maxMs: 10_000 };

/**
 * Maximum time between two responses while a batch is open, in milliseconds. The incomplete batch is held in memory.
 */
const batchSilenceMs = 60_000;

/**
 * Yields the atomic batches of a watch indefinitely, over as many streams as necessary. Each stream resumes after the
 * last complete batch, so no event is missed or repeated. What violates the contract is dropped: the next stream resumes
 * before it.
 *
 * Returns when the signal is aborted. Throws if a new stream can't help: REVISION_TOO_OLD, HISTORY_CHANGED and
 * HISTORY_LOST (relist), and requests that are invalid or not permitted.
 */
export async function* resumingWatch(
  open: OpenStream,
  request: WireRequest,
  options: ResumingWatchOptions,
): AsyncGenerator<AtomicBatch, void, void> {
  const { clock, random, reachability, signal, closing, resume = true, onInterruption } = options;
  const backoff = new StreamBackoff({ bounds: watchBackoff, clock, random, reachability });
  let next = request;
  let last: AtomicBatch | undefined;
  const aborted = (): boolean => signal?.aborted === true;
  while (!aborted()) {
    const stream = new AbortController();
    const stop = (): void => stream.abort();
    let silence: Timer | undefined;
    let isStalled = false;
    const stall = (): void => {
      isStalled = true;
      stop();
    };
    for (const end of [signal, closing]) end?.addEventListener("abort", stop);
    try {
      const assembler = new BatchAssembler(next, options.maxBatchBytes);
      let hasOpened = false;
      for await (const response of open(next, stream.signal)) {
        if (!hasOpened) options.onOpened?.();
        hasOpened = true;
        backoff.responded();
        silence?.cancel();
        const batch = assembler.add(response);
        // Silence is normal between batches, but not within one.
        if (assembler.isOpen) silence = clock.setTimeout(stall, batchSilenceMs);
        if (batch === undefined) continue;
        last = batch;
        next = resumeAfter(request, batch);
        yield batch;
        if (aborted()) return;
      }
      if (isStalled) throw batchStalled(batchSilenceMs);
      if (closing?.aborted !== true) return;
    } catch (error) {
      const failure = hasReason(error, "INTERNAL") ? new CallFailure(error) : error;
      if (!(failure instanceof CallFailure)) throw error;
      if (aborted()) return;
      // The server violates the contract.
      if (failure !== error) options.onViolation?.();
      if (!resume || !failure.resumable) throw failure.error;
      const { retryDelayMs } = failure;
      const delayMs = backoff.next(failure.error, retryDelayMs);
      onInterruption?.({ error: failure.error, delayMs, resumeRevision: last?.revision });
      await backoff.wait(delayMs, retryDelayMs, signal, closing);
    } finally {
      silence?.cancel();
      for (const end of [signal, closing]) end?.removeEventListener("abort", stop);
      stream.abort();
    }
  }
}

/** The request that resumes after `batch`. */
function resumeAfter(request: WireRequest, batch: AtomicBatch): WireRequest {
  return {
    ...request,
    send_initial_events: false,
    after_revision: batch.revision,
    history_id: batch.historyId,
  };
}

/** Events in between are lost, or earlier revisions belong to another history. */
const gone: readonly Reason[] = ["REVISION_TOO_OLD", "HISTORY_CHANGED", "HISTORY_LOST"];

/**
 * Whether a watch that failed with `error` can't be resumed, but can be started again from the current state: by
 * `sendInitialEvents` without a revision and a history, or by a new list. Any other error of a watch would also end a
 * new one.
 */
export function requiresRelist(error: unknown): error is WatchFanoutError {
  return error instanceof WatchFanoutError && gone.includes(error.reason);
}

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
