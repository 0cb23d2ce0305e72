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
 * - Session, Mutex, LeaderElector and ShardAssignment coordinate processes, by leases, as etcd's concurrency package.
 * - RemoteStorage is a resource as a Storage, for a Cacher on another watch-fanout.
 */

export { connect } from "./connect.ts";
export {
  type Controller,
  type ControllerHealth,
  controller,
  type InformerHealth,
} from "./controller/controller.ts";
export type {
  ControllerListers,
  ControllerOptions,
  KeyShard,
  ObjectChange,
  ObjectSource,
  OwnedObjects,
  ReconcileContext,
  Requeue,
  WatchedObjects,
} from "./controller/controller-options.ts";
export {
  type Leader,
  LeaderElector,
  type LeaderElectorOptions,
  type Leadership,
} from "./coordination/leader-elector.ts";
export { type Lock, type LockOptions, Mutex } from "./coordination/mutex.ts";
export { Session, type SessionOptions } from "./coordination/session.ts";
export {
  type OwnedSlot,
  ShardAssignment,
  type ShardAssignmentOptions,
  type ShardChange,
  type ShardListener,
} from "./coordination/shard-assignment.ts";
export { RemoteStorage, type RemoteStorageOptions } from "./remote/remote-storage.ts";
export * from "./shared-exports.ts";
