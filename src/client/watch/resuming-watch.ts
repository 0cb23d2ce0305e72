import { Backoff } from "../../base/backoff.ts";
import { type Clock, pause, type Timer } from "../../base/clock.ts";
import type { WatchRequest as WireRequest } from "../../wire/generated/watchfanout/v1/WatchRequest.ts";
import type { WatchResponse__Output as WireResponse } from "../../wire/generated/watchfanout/v1/WatchResponse.ts";
import { batchStalled, CallFailure } from "../calls/call-failure.ts";
import type { Interruption } from "../calls/options.ts";
import { type AtomicBatch, BatchAssembler } from "./batch-assembler.ts";

export interface ResumingWatchOptions {
  readonly clock: Clock;
  /** Numbers from 0 to below 1, for jitter. */
  readonly random: () => number;
  readonly signal?: AbortSignal | undefined;
  /** Ends the stream and pauses, once it is aborted: what opens streams then says what there is to say. */
  readonly closing?: AbortSignal | undefined;
  /** Whether another stream follows on one that breaks. Default true. */
  readonly resume?: boolean | undefined;
  /** How many bytes of one unit are held back at the most until it is whole. */
  readonly maxBatchBytes: number;
  readonly onOpened?: (() => void) | undefined;
  readonly onInterruption?: ((interruption: Interruption) => void) | undefined;
}

/** Opens one stream, which never finishes but with a CallFailure, or because the signal is aborted. */
export type OpenStream = (request: WireRequest, signal: AbortSignal) => AsyncIterable<WireResponse>;

const backoffBounds = { initialMs: 200, maxMs: 30_000 };

/** How long a server may say nothing while a unit is open, in milliseconds: what has come of it is held meanwhile. */
const batchSilenceMs = 60_000;

/**
 * A watch as one endless sequence of whole units, over as many streams as it takes: each new stream
 * goes on after the last unit that was whole, so nothing is missed and nothing comes twice.
 *
 * Finishes when the signal is aborted. Throws what a new stream can't mend: REVISION_TOO_OLD,
 * HISTORY_CHANGED and HISTORY_LOST (list anew), and requests that are wrong or not allowed.
 */
export async function* resumingWatch(
  open: OpenStream,
  request: WireRequest,
  options: ResumingWatchOptions,
): AsyncGenerator<AtomicBatch, void, void> {
  const { clock, signal, closing, resume = true, onInterruption } = options;
  const backoff = new Backoff(backoffBounds, options.random);
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
      const units = new BatchAssembler(
        options.maxBatchBytes,
        last?.historyId ?? request.history_id ?? "",
      );
      let opened = false;
      for await (const response of open(next, stream.signal)) {
        if (!opened) options.onOpened?.();
        opened = true;
        silence?.cancel();
        const batch = units.add(response);
        // A watch that has nothing to say may be silent; one that is amidst something may not.
        if (units.isOpen) silence = clock.setTimeout(stall, batchSilenceMs);
        if (batch === undefined) continue;
        if (last === undefined || batch.revision > last.revision) backoff.reset();
        last = batch;
        next = resumeAfter(request, batch);
        yield batch;
        if (aborted()) return;
      }
      if (isStalled) throw batchStalled(batchSilenceMs);
      if (closing?.aborted !== true) return;
    } catch (error) {
      if (!(error instanceof CallFailure)) throw error;
      if (aborted()) return;
      if (!resume || !error.resumable) throw error.error;
      const delayMs = Math.max(backoff.next(), error.retryDelayMs);
      onInterruption?.({ error: error.error, delayMs, resumeRevision: last?.revision });
      await pause(clock, delayMs, signal, closing);
    } finally {
      silence?.cancel();
      for (const end of [signal, closing]) end?.removeEventListener("abort", stop);
      stream.abort();
    }
  }
}

/** The request that continues where `batch` ended. */
function resumeAfter(request: WireRequest, batch: AtomicBatch): WireRequest {
  return {
    ...request,
    send_initial_events: false,
    after_revision: batch.revision,
    history_id: batch.historyId,
  };
}
