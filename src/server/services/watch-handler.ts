import { textBytes } from "../../base/text-memory.ts";
import { type CacheWatchRequest, viewBytes } from "../../cacher/request/request.ts";
import type { WatchBatch } from "../../model/event.ts";
import type { WatchStatus, WatchStream } from "../../storage/storage.ts";
import { statusOf, type WireStatus } from "../../wire/errors.ts";
import type { WatchRequest__Output } from "../../wire/generated/watchfanout/v1/WatchRequest.ts";
import type { MethodHandler } from "../calls/methods.ts";
import { toClientError } from "../calls/refusals.ts";
import type { ServerCall } from "../calls/server-call.ts";
import { expiryOf, type ServiceContext } from "../calls/service-context.ts";
import type { ServedResource } from "../calls/service-options.ts";
import { accessOfWatch, parseWatch, resourceNamed, type WatchEnds } from "./parse-requests.ts";
import { viewOf } from "./parse-view.ts";
import { WatchSender, watchMethod } from "./watch-sender.ts";

/** Handles the calls of Watch. They wait for a time slice: to parse a selector and register a watcher takes long. */
export function watchHandler(context: ServiceContext): MethodHandler<WatchRequest__Output> {
  return {
    access: accessOfWatch,
    queuedBytes: bytesOf,
    handle: (call, request) => open(context, call, request),
  };
}

/** Never throws. Returns the status if the stream was refused. */
function open(
  context: ServiceContext,
  call: ServerCall,
  request: WatchRequest__Output,
): WireStatus | undefined {
  try {
    const { resource, watch, requested, retainedBytes } = openWatch(context, call, request, {
      ...{ deadline: call.deadline, expiresAt: expiryOf(context) },
    });
    const stream = tracedOpening(call, watch, requested);
    const sender = new WatchSender(call, stream, resource, context);
    // Without a policy the right can't be lost, and the stream does not retain what it needs.
    if (context.authorizer.hasPolicy) sender.access = accessOfWatch(request);
    sender.start(retainedBytes + call.headerBytes);
    return undefined;
  } catch (cause) {
    const error = toClientError(cause, watchMethod, context.logger, call);
    context.observer?.watchEnded?.(error.reason);
    const refusal = statusOf(error);
    call.end(refusal);
    return refusal;
  }
}

/** Estimated memory of an element of a repeated field, in bytes: of a range of a shard, the largest one. */
const elementBytes = 128;

/** A watch that has been opened. */
interface OpenedWatch {
  readonly resource: ServedResource;
  readonly watch: WatchStream;
  readonly requested: CacheWatchRequest;
  /** Memory that its request takes for as long as it is open, in bytes. */
  readonly retainedBytes: number;
}

/** Opens a watch of a caller that has the right to it, for which there is room then. Throws a WatchFanoutError. */
export function openWatch(
  context: ServiceContext,
  call: ServerCall,
  request: WatchRequest__Output,
  ends: WatchEnds,
): OpenedWatch {
  const resource = resourceNamed(context, call, request.resource);
  const selection = resource.select(request.label_selector, request.field_selector);
  const requested = parseWatch(request, selection, viewOf(resource, request), ends);
  const { owner } = call;
  const refusal =
    context.callerLimits.watchRefusal(owner.caller) ?? context.streams.makeRoom(owner);
  if (refusal !== undefined) throw refusal;
  const watch = resource.watch({ ...requested, owner });
  return { resource, watch, requested, retainedBytes: retainedBytesOf(requested) };
}

/** Memory that a request takes before it has been parsed, in bytes. */
export function bytesOf(request: WatchRequest__Output): number {
  const { resource, key = "", prefix = "", label_selector, field_selector, history_id } = request;
  const { start_key = "", end_key = "" } = request.range ?? {};
  const paths = request.read_mask?.paths ?? [];
  const texts = [resource, key, prefix, start_key, end_key, ...paths];
  texts.push(label_selector, field_selector, history_id);
  const elements = request.event_types.length + (request.shard?.ranges.length ?? 0) + paths.length;
  return texts.reduce((bytes, text) => bytes + textBytes(text), elements * elementBytes);
}

/** Memory that a request takes for as long as its stream is open, in bytes, even where watches share it. */
function retainedBytesOf({ scope, selection, shard, view }: CacheWatchRequest): number {
  const texts: readonly (string | undefined)[] = Object.values(scope);
  const parsed = (selection?.bytes ?? 0) + (shard?.bytes ?? 0) + viewBytes(view);
  return texts.reduce((bytes, text = "") => bytes + textBytes(text), parsed);
}

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

  get hasPending(): boolean | undefined {
    return this.#watch.hasPending;
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
