/**
 * The client library of watch-fanout. docs/client-guide.md is an introduction.
 *
 *     const client = connect({ address: "127.0.0.1:50051" });
 *     const pods = client.resource("pods", jsonValues<Pod>());
 *     for await (const { events } of pods.watch({ sendInitialEvents: true })) { … }
 *
 * - `connect` returns a Client, with the calls of the service; `Client.resource` has them with decoded values.
 * - SharedInformer, Indexer, Lister and WorkQueue are what a controller needs, as in client-go.
 * - ObjectCache watches single objects, as the kubelet does.
 * - RemoteStorage is a resource as a Storage, for a Cacher on another watch-fanout.
 */

export type { BackoffBounds } from "../base/backoff.ts";
export { type Clock, keepAliveClock, systemClock, type Timer } from "../base/clock.ts";
export { hasReason, type Reason, WatchFanoutError } from "../base/errors.ts";
export type { Logger } from "../base/logger.ts";
export type { Reachability } from "../base/stream-backoff.ts";
export { type EventType, WatchBatch, WatchEvent } from "../model/event.ts";
export { type ShownAttributes, StoredObject } from "../model/object.ts";
export type { ReflectorFailure } from "../reflector/reflector.ts";
export type {
  ListOrder,
  RevisionRequirement,
  Scope,
  Storage,
  WatchStream,
} from "../storage/storage.ts";
export type { ClientTls, Pem } from "./calls/client-certificates.ts";
export { shardOf } from "./calls/encode.ts";
export type { Endpoint } from "./calls/endpoints.ts";
export type {
  ConnectOptions,
  CountOptions,
  DeleteOptions,
  GetOptions,
  HashRange,
  HistoryOptions,
  HistoryPageOptions,
  Interruption,
  KeyRange,
  ListOptions,
  PageOptions,
  PutOptions,
  ReadOptions,
  ResourcesOptions,
  SelectorOptions,
  View,
  ViewOptions,
  WatchOptions,
} from "./calls/options.ts";
export type { Token } from "./calls/token-source.ts";
export { type Client, connect } from "./client.ts";
export type {
  DeltaFIFOOptions,
  KnownObjects,
  ProcessDeltas,
} from "./informer/delta-fifo/delta-fifo.ts";
export {
  DeletedFinalStateUnknown,
  type Delta,
  DeltaFIFO,
  type Deltas,
  type Keyed,
  lastKnown,
} from "./informer/delta-fifo/delta-fifo.ts";
export type {
  EventHandler,
  EventHandlerOptions,
  EventHandlerRegistration,
} from "./informer/handlers/handler-registration.ts";
export {
  HandlerError,
  type InformerError,
  InformerFault,
  InformerStopped,
  type RejectedObjectError,
  TransformFailure,
} from "./informer/handlers/informer-errors.ts";
export { Indexer, type Indexers, type ReadonlyIndexer } from "./informer/indexer/indexer.ts";
export type { LabelsAndFields } from "./informer/indexer/lister.ts";
export {
  Lister,
  type ListerOptions,
  type ListerQuery,
  type NamespaceLister,
  namespaceIndex,
  namespaceOf,
} from "./informer/indexer/lister.ts";
export { IndexError, type IndexFunction } from "./informer/indexer/object-index.ts";
export type { InformerStats } from "./informer/informer-metrics.ts";
export type { SharedInformerOptions, StopOptions } from "./informer/informer-options.ts";
export { SharedInformer } from "./informer/shared-informer.ts";
export {
  ObjectCache,
  type ObjectCacheOptions,
  ObjectManager,
  type ObjectManagerOptions,
} from "./object-cache/object-cache.ts";
export { RemoteStorage, type RemoteStorageOptions } from "./remote/remote-storage.ts";
export type { ResourceInfo } from "./resource-info.ts";
export type { Subscription, SubscriptionOptions } from "./subscribe/subscription.ts";
export {
  type Deleted,
  type FollowOptions,
  type ResourceInformerOptions,
  type TypedListOptions,
  type TypedPage,
  TypedResource,
  type TypedResourceOptions,
  type TypedWatchOptions,
} from "./typed/typed-resource.ts";
export type { Change, UpdateOptions } from "./typed/update.ts";
export {
  DecodeFailure,
  decodeTyped,
  type TypedBatch,
  type TypedEvent,
  type TypedObject,
} from "./values/typed-object.ts";
export {
  type BinaryMessageType,
  bytes,
  jsonValues,
  protobufValues,
  type ValueCodec,
  type WriterMessageType,
} from "./values/value-codec.ts";
export type {
  AtomicBatch,
  ClientCalls,
  CountResult,
  HistoryPage,
  ObjectResult,
  Page,
} from "./watch/client-calls.ts";
export { requiresRelist } from "./watch/resuming-watch.ts";
export {
  type BucketOptions,
  BucketRateLimiter,
  defaultControllerRateLimiter,
  ItemExponentialFailureRateLimiter,
  MaxOfRateLimiter,
  type RateLimiter,
} from "./work-queue/rate-limiter.ts";
export { type RunWorkersOptions, runWorkers } from "./work-queue/run-workers.ts";
export { WorkQueue, WorkQueueFullError, type WorkQueueOptions } from "./work-queue/work-queue.ts";
