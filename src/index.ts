/**
 * watch-fanout for embedding: storages, the cache around them, and the gRPC server over that.
 *
 *     const cacher = new Cacher({ storage: new MemoryStorage({ clock: systemClock }), … });
 *     cacher.start();
 *     const server = await startServer({ resources: new Map([["default", cacher]]), … });
 */
export { Cacher } from "./cacher/cacher.ts";
export type { CacherOptions } from "./cacher/cacher-options.ts";
export type { WindowFillStats } from "./cacher/event-window.ts";
export type { FoldStats } from "./cacher/folds.ts";
export { defaultHistoryBounds, type HistoryBounds } from "./cacher/history.ts";
export type {
  CacheGetRequest,
  CacheListRequest,
  CacheWatchRequest,
  Delivery,
} from "./cacher/request.ts";
export type { RetainedStats } from "./cacher/retained-states.ts";
export type { Selection } from "./cacher/selection.ts";
export type { CacherStats } from "./cacher/stats.ts";
export {
  defaultWatcherBounds,
  type WatcherBounds,
  type WatcherState,
} from "./cacher/watcher-terms.ts";
export { type Clock, systemClock, type Timer } from "./clock.ts";
export { AttributeReader } from "./codec/attribute-reader.ts";
export { type Codec, CodecError, type CodecProblem, opaqueCodec } from "./codec/codec.ts";
export { JsonCodec, type JsonCodecOptions } from "./codec/json-codec.ts";
export { ProtobufCodec, type ProtobufCodecOptions } from "./codec/protobuf-codec.ts";
export { hasReason, type Reason, WatchFanoutError } from "./errors.ts";
export { Attributes } from "./selector/attributes.ts";
export {
  type AdminOptions,
  type MetricsSource,
  type ReadinessCheck,
  type RunningAdmin,
  startAdmin,
} from "./server/admin.ts";
export { defaultServerLimits, type ServerLimits } from "./server/limits.ts";
export {
  type RpcObserver,
  type RunningServer,
  type ServedResource,
  type ServerOptions,
  startServer,
} from "./server/server.ts";
export { batches } from "./storage/batches.ts";
export { EtcdClient, type EtcdClientOptions } from "./storage/etcd/client.ts";
export { UnsupportedEtcdError } from "./storage/etcd/errors.ts";
export { EtcdStorage, type EtcdStorageOptions } from "./storage/etcd/etcd-storage.ts";
export type { EtcdTls } from "./storage/etcd/member.ts";
export { type EventType, WatchBatch, WatchEvent } from "./storage/event.ts";
export { compareKeys } from "./storage/key-order.ts";
export { MemoryStorage, type MemoryStorageOptions } from "./storage/memory/memory-storage.ts";
export type { Operation } from "./storage/memory/operation.ts";
export { StoredObject, weight } from "./storage/object.ts";
export type {
  DeleteRequest,
  GetRequest,
  GetResult,
  ListRequest,
  ListResult,
  Predicate,
  PutRequest,
  RevisionRequirement,
  Scope,
  Storage,
  WatchRequest,
  WatchStream,
  WriteResult,
  WrittenAfterRequest,
  WrittenObjects,
} from "./storage/storage.ts";
export {
  registerCacheMetrics,
  registerUndecodableValues,
  type StatsSource,
  type UndecodableSource,
} from "./telemetry/cache-metrics.ts";
export { RpcMetrics } from "./telemetry/rpc-metrics.ts";
