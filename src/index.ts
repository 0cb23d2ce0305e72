/**
 * watch-fanout as a library: storages, a cache around them, and a gRPC server of that.
 *
 *     const cacher = new Cacher({ storage: new MemoryStorage({ clock: systemClock }), … });
 *     cacher.start();
 *     const server = await startServer({ resources: new Map([["default", cacher]]), … });
 *
 * It has what an embedding program constructs, implements or declares variables of. Other types, such as those of
 * statistics and of single options, follow from these: `ReturnType<Cacher["stats"]>`, `ServerOptions["listen"]`.
 */

export type { KeyPair } from "./base/certificate-store.ts";
export { type Clock, systemClock, type Timer } from "./base/clock.ts";
export { hasReason, type Reason, WatchFanoutError } from "./base/errors.ts";
export { Cacher } from "./cacher/cacher.ts";
export type { WatcherBounds } from "./cacher/dispatch/watcher-bounds.ts";
export type { CacherOptions } from "./cacher/options.ts";
export type {
  CacheGetRequest,
  CacheListRequest,
  CacheWatchRequest,
  Delivery,
  Reached,
} from "./cacher/request/request.ts";
export type { Predicate } from "./cacher/request/selection.ts";
export type { EventWindowBounds } from "./cacher/state/event-window.ts";
export { AttributeReader } from "./codec/attribute-reader.ts";
export { type Codec, CodecError, opaqueCodec } from "./codec/codec.ts";
export { JsonCodec, type JsonCodecOptions } from "./codec/json-codec.ts";
export { ProtobufCodec, type ProtobufCodecOptions } from "./codec/protobuf-codec.ts";
export { UnsupportedEtcdError } from "./etcd/client/errors.ts";
export { EtcdClient, type EtcdClientOptions } from "./etcd/client/etcd-client.ts";
export type { EtcdTls, Keepalive } from "./etcd/client/member.ts";
export type { Identity } from "./identity/identity.ts";
export { StaticTokens } from "./identity/token-file.ts";
export { type EventType, WatchBatch, WatchEvent } from "./model/event.ts";
export { StoredObject } from "./model/object.ts";
export type { Verb } from "./policy/access.ts";
export { Authorizer } from "./policy/authorizer.ts";
export type {
  BindingDefinition,
  PolicyDefinition,
  RoleDefinition,
  RuleDefinition,
  Subject,
} from "./policy/definition.ts";
export { Policy } from "./policy/policy.ts";
export { Attributes } from "./selector/attributes.ts";
export { type AddedService, addTo } from "./server/grpc-js/add-to.ts";
export type { ServerLimits } from "./server/limits/server-limits.ts";
export {
  type AuditEntry,
  type AuditLog,
  type RpcObserver,
  type RunningServer,
  type ServedResource,
  type ServerOptions,
  type ServiceOptions,
  startServer,
  type TcpListen,
  type TlsOptions,
} from "./server/server.ts";
export { EtcdStorage, type EtcdStorageOptions } from "./storage/etcd/etcd-storage.ts";
export { MemoryStorage, type MemoryStorageOptions } from "./storage/memory/memory-storage.ts";
export type {
  DeleteRequest,
  GetRequest,
  GetResult,
  HistoryRequest,
  HistoryResult,
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
} from "./storage/storage.ts";
export { registerCacheMetrics } from "./telemetry/cache-metrics.ts";
export { RpcMetrics } from "./telemetry/rpc-metrics.ts";
