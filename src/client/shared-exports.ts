/** What the client library has in Node.js and in browsers. */

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
export { shardOf } from "./calls/encode.ts";
export type { Endpoint } from "./calls/endpoints.ts";
export type {
  ConditionalWriteOptions,
  ConnectOptions,
  CountOptions,
  DeleteOptions,
  DeletePrefixOptions,
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
  TransactionOptions,
  ValidateOptions,
  View,
  ViewOptions,
  WatchOptions,
  WriteOptions,
} from "./calls/options.ts";
export { RevisionConflict } from "./calls/revision-conflict.ts";
export type { Token } from "./calls/token-source.ts";
export type {
  BatchGetResult,
  Compare,
  CompareResult,
  DeletePrefixResult,
  ObjectName,
  Operation,
  OperationResult,
  TransactionRequest,
  TransactionResult,
} from "./calls/transaction.ts";
export type { Client } from "./client.ts";
export type { Lease } from "./coordination/lease.ts";
export type { Renewed } from "./coordination/lease-keep-alive.ts";
export type { LeaseClient } from "./coordination/leased-keys.ts";
export type { LeaseCallOptions, LeaseInfo, Leases } from "./coordination/leases.ts";
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
export type {
  InformerListeners,
  KeepOptions,
  RevisionWaitOptions,
  SharedInformerOptions,
  StopOptions,
} from "./informer/informer-options.ts";
export { waitForRevision } from "./informer/revision-wait.ts";
export { SharedInformer } from "./informer/shared-informer.ts";
export type { Informer } from "./informer/shared-use.ts";
export {
  ObjectCache,
  type ObjectCacheOptions,
  ObjectManager,
  type ObjectManagerOptions,
} from "./object-cache/object-cache.ts";
export type { ResourceInfo } from "./resource-info.ts";
export type { Subscription, SubscriptionOptions } from "./subscribe/subscription.ts";
export type { Transacted, TransactOptions } from "./transact/transact.ts";
export type {
  Transaction,
  TransactionPutOptions,
  TransactionResource,
} from "./transact/transaction.ts";
export type { ValidatedWrite } from "./transact/writes.ts";
export type { ClientTls, Pem } from "./transport/client-certificates.ts";
export {
  type Deleted,
  type FollowOptions,
  type ResourceInformerOptions,
  type TypedBatchGet,
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
