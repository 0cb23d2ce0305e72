import type { EventWindowBounds } from "../cacher/state/event-window.ts";
import type { Codec } from "../codec/codec.ts";
import type { ListenAddress } from "./value-types.ts";

export type { ListenAddress } from "./value-types.ts";

/** The whole configuration of `serve`, checked. */
export interface Config {
  /** Undefined: the embedded store. */
  readonly etcd: EtcdConfig | undefined;
  /** At least one; names and prefixes are distinct, and no prefix begins with another. */
  readonly resources: readonly ResourceConfig[];
  readonly listen: ListenAddress;
  readonly admin: ListenAddress;
  /** Undefined: plaintext. */
  readonly tls: ServerTls | undefined;
  /** What a resource has that says nothing else. */
  readonly eventWindow: EventWindowBounds;
  readonly stallTimeoutMs: number;
  /** 0: streams become as old as they like. */
  readonly maxStreamAgeMs: number;
  /** How many streams may be open; at least 1. */
  readonly maxStreams: number;
  /** 0: caches are not compared with the storage. */
  readonly consistencyIntervalMs: number;
  readonly shutdownTimeoutMs: number;
  readonly logLevel: LogLevel;
  /** Undefined: text on a terminal, otherwise JSON. */
  readonly logFormat: LogFormat | undefined;
}

/** A named collection of objects: the keys below one prefix. */
export interface ResourceConfig {
  readonly name: string;
  /** In front of every key, in etcd. Empty: all keys. */
  readonly prefix: string;
  readonly codec: Codec;
  /** The fields that objects and watchers are found by; all are declared by the codec. */
  readonly indexes: readonly string[];
  /** Whole: where the resource says nothing of its own, what all resources have. */
  readonly eventWindow: EventWindowBounds;
  /** Whether there is a cache. Without one reads and writes go to the storage, and nothing is watched. */
  readonly cache: boolean;
}

export type LogLevel = "trace" | "debug" | "info" | "warn" | "error" | "fatal" | "silent";
export type LogFormat = "text" | "json";

export interface EtcdConfig {
  /** `http://HOST:PORT` or `https://HOST:PORT`, at least one, all with the same scheme. */
  readonly endpoints: readonly string[];
  readonly auth: { readonly username: string; readonly password: string } | undefined;
  /** Only with https. */
  readonly tls: EtcdTls | undefined;
  /** Where the id of etcd's history is. */
  readonly historyKey: string;
}

/** PEM. */
export interface EtcdTls {
  /** Undefined: the authorities that Node.js trusts. */
  readonly ca: Buffer | undefined;
  readonly client: { readonly cert: Buffer; readonly key: Buffer } | undefined;
}

/** PEM. */
export interface ServerTls {
  readonly cert: Buffer;
  readonly key: Buffer;
  /** Given: only clients with a certificate from these authorities. */
  readonly clientCa: Buffer | undefined;
}
