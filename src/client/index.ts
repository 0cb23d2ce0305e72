/**
 * The client of a watch-fanout.
 *
 *     const client = connect({ address: "127.0.0.1:50051" });
 *     const pods = client.resource("pods", jsonValues<Pod>());
 *     for await (const { events } of pods.watch({ sendInitialEvents: true })) { … }
 */
export { type Clock, systemClock, type Timer } from "../clock.ts";
export { hasReason, type Reason, WatchFanoutError } from "../errors.ts";
export { type EventType, WatchBatch, WatchEvent } from "../storage/event.ts";
export { StoredObject } from "../storage/object.ts";
export type {
  Predicate,
  RevisionRequirement,
  Scope,
  Storage,
  WatchStream,
} from "../storage/storage.ts";
export { type Client, connect, type ObjectResult, type Page } from "./client.ts";
export type { ClientTls, Endpoint } from "./endpoints.ts";
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
  TypedBatch,
  TypedEvent,
  TypedPage,
  TypedResource,
  TypedResourceOptions,
} from "./typed-resource.ts";
export type { WatchUnit } from "./unit-assembler.ts";
export type { Change, UpdateOptions } from "./update.ts";
export { bytes, jsonValues, protobufValues, type ValueCodec } from "./value-codec.ts";
