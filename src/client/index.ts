/**
 * The client of a watch-fanout.
 *
 *     const client = connect({ address: "127.0.0.1:50051" });
 *     const pods = client.resource("pods", jsonValues<Pod>());
 *     for await (const { events } of pods.watch({ sendInitialEvents: true })) { … }
 */
export { type Clock, keepAliveClock, systemClock, type Timer } from "../clock.ts";
export { hasReason, type Reason, WatchFanoutError } from "../errors.ts";
export type { BackoffBounds } from "../reflector/backoff.ts";
export type { ReflectorFailure } from "../reflector/reflector.ts";
export { type EventType, WatchBatch, WatchEvent } from "../storage/event.ts";
export { StoredObject } from "../storage/object.ts";
export type {
  Predicate,
  RevisionRequirement,
  Scope,
  Storage,
  WatchStream,
} from "../storage/storage.ts";
export { mustBeginAnew } from "./begin-anew.ts";
export { type Client, connect, type ObjectResult, type Page } from "./client.ts";
export type { ClientTls, Endpoint } from "./endpoints.ts";
export type { FollowOptions } from "./follow.ts";
export {
  DeletedFinalStateUnknown,
  type Delta,
  type Deltas,
  type Keyed,
  lastKnown,
} from "./informer/delta.ts";
export {
  DeltaFIFO,
  type DeltaFIFOOptions,
  type KnownObjects,
  type ProcessDeltas,
} from "./informer/delta-fifo.ts";
export type {
  EventHandler,
  EventHandlerOptions,
  EventHandlerRegistration,
} from "./informer/event-handler.ts";
export { Indexer, type Indexers, type ReadonlyIndexer } from "./informer/indexer.ts";
export {
  HandlerError,
  type InformerError,
  InformerFault,
  InformerStopped,
  type IntakeError,
  TransformFailure,
} from "./informer/informer-errors.ts";
export type { InformerStats } from "./informer/informer-metrics.ts";
export type { SharedInformerOptions, StopOptions } from "./informer/informer-options.ts";
export {
  Lister,
  type ListerOptions,
  type ListerQuery,
  type NamespaceLister,
  namespaceIndex,
  namespaceOf,
} from "./informer/lister.ts";
export type { ObjectAttributes } from "./informer/local-selection.ts";
export { IndexError, type IndexFunction } from "./informer/object-index.ts";
export { SharedInformer } from "./informer/shared-informer.ts";
export { ObjectCache, type ObjectCacheOptions } from "./object-cache/object-cache.ts";
export { ObjectManager, type ObjectManagerOptions } from "./object-cache/object-manager.ts";
export type {
  ConnectOptions,
  DeleteOptions,
  ListOptions,
  PageOptions,
  PutOptions,
  ReadOptions,
  SelectorOptions,
  WatchOptions,
} from "./options.ts";
export { RemoteStorage, type RemoteStorageOptions } from "./remote-storage.ts";
export type { Interruption } from "./resuming-watch.ts";
export { DecodeFailure, decodeTyped, type TypedObject } from "./typed-object.ts";
export type {
  Deleted,
  ResourceInformerOptions,
  TypedBatch,
  TypedEvent,
  TypedPage,
  TypedResource,
  TypedResourceOptions,
} from "./typed-resource.ts";
export type { WatchUnit } from "./unit-assembler.ts";
export type { Change, UpdateOptions } from "./update.ts";
export {
  type BinaryMessageType,
  bytes,
  jsonValues,
  protobufValues,
  type ValueCodec,
  type WriterMessageType,
} from "./value-codec.ts";
export { WorkQueueFullError, type WorkQueueOptions } from "./work-queue/options.ts";
export {
  type BucketOptions,
  BucketRateLimiter,
  defaultControllerRateLimiter,
  ItemExponentialFailureRateLimiter,
  MaxOfRateLimiter,
  type RateLimiter,
} from "./work-queue/rate-limiter.ts";
export { type RunWorkersOptions, runWorkers } from "./work-queue/run-workers.ts";
export { WorkQueue } from "./work-queue/work-queue.ts";
