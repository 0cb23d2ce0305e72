/**
 * watch-fanout as a library: storages, a cache around them, and a gRPC server of that.
 *
 *     const cacher = new Cacher({ storage: new MemoryStorage({ clock: systemClock }), … });
 *     cacher.start();
 *     const server = await startServer({ resources: new Map([["default", cacher]]), … });
 */

export type { KeyPair } from "./base/certificate-store.ts";
export { type Clock, systemClock, type Timer } from "./base/clock.ts";
export { hasReason, type Reason, WatchFanoutError } from "./base/errors.ts";
export { Cacher } from "./cacher/cacher.ts";
export type { CoalescingStats } from "./cacher/catch-up/coalesced-backlogs.ts";
export { defaultWatcherBounds, type WatcherBounds } from "./cacher/dispatch/watcher-bounds.ts";
export type { WatcherState } from "./cacher/dispatch/watcher-state.ts";
export type { CacherOptions, StageObserver } from "./cacher/options.ts";
export type {
  CacheGetRequest,
  CacheListRequest,
  CacheWatchRequest,
  Delivery,
} from "./cacher/request/request.ts";
export type { Selection } from "./cacher/request/selection.ts";
export { defaultEventWindowBounds, type EventWindowBounds } from "./cacher/state/event-window.ts";
export type { BackfillStats } from "./cacher/state/event-window-backfill.ts";
export type { RetainedStats } from "./cacher/state/retained-snapshots.ts";
export type { CacherStats } from "./cacher/stats.ts";
export { AttributeReader } from "./codec/attribute-reader.ts";
export { type Codec, CodecError, type CodecProblem, opaqueCodec } from "./codec/codec.ts";
export { JsonCodec, type JsonCodecOptions } from "./codec/json-codec.ts";
export { ProtobufCodec, type ProtobufCodecOptions } from "./codec/protobuf-codec.ts";
export { anonymous, type Identity } from "./identity/identity.ts";
export { StaticTokens, type TokenLine } from "./identity/token-file.ts";
export { type EventType, WatchBatch, WatchEvent } from "./model/event.ts";
export { compareKeys } from "./model/key-order.ts";
export { estimatedBytes, StoredObject } from "./model/object.ts";
export type { Predicate } from "./model/predicate.ts";
export { type Access, type AccessScope, type Verb, verbs } from "./policy/access.ts";
export { Authorizer, type Decision } from "./policy/authorizer.ts";
export type {
  BindingDefinition,
  PolicyDefinition,
  RoleDefinition,
  RuleDefinition,
  Subject,
} from "./policy/definition.ts";
export { type Explanation, Policy } from "./policy/policy.ts";
export type { Rule } from "./policy/rule.ts";
export { Attributes } from "./selector/attributes.ts";
export {
  type AdminOptions,
  type LogLevelControl,
  type MetricsSource,
  type ReadinessCheck,
  type RunningAdmin,
  startAdmin,
} from "./server/admin/admin.ts";
export type { AdminResponse } from "./server/admin/admin-response.ts";
export type {
  ClientAuth,
  HandedListen,
  TcpListen,
} from "./server/grpc-js/grpc-js-server.ts";
export type { UnixListen } from "./server/grpc-js/unix-socket.ts";
export type { CallerStats } from "./server/limits/caller-limits.ts";
export { defaultServerLimits, type ServerLimits } from "./server/limits/server-limits.ts";
export {
  type AttackKind,
  type AuditEntry,
  type AuditLevel,
  type AuditLog,
  type CallSpan,
  type CallTracer,
  type Framing,
  type HeldStats,
  type MemoryGauge,
  type MemoryLimit,
  type MemoryReading,
  type PoolStats,
  type PressureLevel,
  type PressureStats,
  type RpcObserver,
  type RunningServer,
  type ServedResource,
  type ServerOptions,
  type ServerStats,
  type ShedKind,
  startServer,
  type TlsOptions,
  type TraceHeaders,
} from "./server/server.ts";
export { batches } from "./storage/batches.ts";
export { UnsupportedEtcdError } from "./storage/etcd/client/errors.ts";
export { EtcdClient, type EtcdClientOptions } from "./storage/etcd/client/etcd-client.ts";
export type { EtcdTls, Keepalive } from "./storage/etcd/client/member.ts";
export { EtcdStorage, type EtcdStorageOptions } from "./storage/etcd/etcd-storage.ts";
export { MemoryStorage, type MemoryStorageOptions } from "./storage/memory/memory-storage.ts";
export type { Operation } from "./storage/memory/operation.ts";
export type {
  DeleteRequest,
  GetRequest,
  GetResult,
  KeyInterval,
  ListRequest,
  ListResult,
  PutRequest,
  RevisionRequirement,
  Scope,
  Storage,
  WatchRequest,
  WatchScope,
  WatchStream,
  WriteResult,
  WrittenAfterRequest,
  WrittenObjects,
} from "./storage/storage.ts";
export { registerCacheMetrics, type StatsSource } from "./telemetry/cache-metrics.ts";
export { RpcMetrics } from "./telemetry/rpc-metrics.ts";
export { registerUndecodableValues, type UndecodableSource } from "./telemetry/storage-metrics.ts";
