import type { WatchBatch } from "../../model/event.ts";
import type { WatchStatus, WatchStream } from "../../storage/storage.ts";
import type { ServerCall } from "../calls/server-call.ts";

/**
 * A watch whose opening is traced: the span of its call ends when the client has accepted the first resume point, and with it
 * the initial state if one was asked for. A watch that is not recorded is returned as it is, so its events cost nothing more,
 * and its stream retains no span.
 */
export function tracedOpening(
  call: ServerCall,
  watch: WatchStream,
  { sendInitialEvents = false }: { readonly sendInitialEvents?: boolean | undefined },
): WatchStream {
  if (call.span?.spanId !== undefined) return new TracedOpening(call, watch, sendInitialEvents);
  call.span = undefined;
  return watch;
}

class TracedOpening implements WatchStream {
  readonly #call: ServerCall;
  readonly #watch: WatchStream;
  readonly #hasInitialState: boolean;
  #isPositioned = false;
  /** The batch that completes the opening was read: once its reader asks for more, the client has accepted it. */
  #isComplete = false;

  constructor(call: ServerCall, watch: WatchStream, hasInitialState: boolean) {
    this.#call = call;
    this.#watch = watch;
    this.#hasInitialState = hasInitialState;
  }

  get ended(): Error | null | undefined {
    return this.#watch.ended;
  }

  get heldBytes(): number {
    return this.#watch.heldBytes ?? 0;
  }

  get status(): WatchStatus | undefined {
    return this.#watch.status;
  }

  read(): WatchBatch | undefined {
    if (this.#isComplete) this.#endSpan();
    const batch = this.#watch.read();
    const { span } = this.#call;
    if (span === undefined || batch === undefined) return batch;
    if (!this.#isPositioned) span.event("positioned");
    this.#isPositioned = true;
    this.#isComplete = this.#hasInitialState
      ? batch.initialEventsEnd
      : batch.revision !== undefined;
    return batch;
  }

  onReadable(listener: () => void): void {
    this.#watch.onReadable(listener);
  }

  accepted(): void {
    this.#watch.accepted?.();
  }

  close(): void {
    this.#watch.close();
  }

  #endSpan(): void {
    this.#isComplete = false;
    const { span } = this.#call;
    this.#call.span = undefined;
    if (this.#hasInitialState) span?.event("initial state sent");
    span?.event("live");
    span?.end(undefined);
  }
}
