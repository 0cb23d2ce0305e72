import type { EventWindowBounds } from "../cacher/state/event-window.ts";
import type { Codec } from "../codec/codec.ts";
import type { ListenAddress } from "./value-types.ts";

export type { ListenAddress } from "./value-types.ts";

/** The checked configuration of `serve`. */
export interface Config {
  /** Undefined: the embedded store. */
  readonly etcd: EtcdConfig | undefined;
  /** At least one; names and prefixes are distinct, and no prefix begins with another. */
  readonly resources: readonly ResourceConfig[];
  readonly listen: ListenAddress;
  readonly admin: ListenAddress;
  /** Undefined: plaintext. */
  readonly tls: ServerTls | undefined;
  /** The bounds of resources without an event window of their own. */
  readonly eventWindow: EventWindowBounds;
  readonly stallTimeoutMs: number;
  /** 0: unlimited. */
  readonly maxStreamAgeMs: number;
  /** Maximum number of open streams; at least 1. */
  readonly maxStreams: number;
  /** Interval of the comparison of each cache with its storage; 0: never. */
  readonly consistencyIntervalMs: number;
  readonly shutdownTimeoutMs: number;
  readonly logLevel: LogLevel;
  /** Undefined: text on a terminal, otherwise JSON. */
  readonly logFormat: LogFormat | undefined;
}

/** A named collection of objects: the keys below one prefix. */
export interface ResourceConfig {
  readonly name: string;
  /** Prefix of every key in etcd. Empty: all keys. */
  readonly prefix: string;
  readonly codec: Codec;
  /** The indexed fields. The codec declares all of them. */
  readonly indexes: readonly string[];
  /** Complete: bounds that the resource does not set have the general values. */
  readonly eventWindow: EventWindowBounds;
  /** Whether there is a cache. Without one reads and writes go to the storage, and Watch is refused. */
  readonly cache: boolean;
}

export type LogLevel = "trace" | "debug" | "info" | "warn" | "error" | "fatal" | "silent";
export type LogFormat = "text" | "json";

export interface EtcdConfig {
  /** `http://HOST:PORT` or `https://HOST:PORT`, at least one, all with the same scheme. */
  readonly endpoints: readonly string[];
  readonly auth: { readonly username: string; readonly password: string } | undefined;
  /** Present with https only. */
  readonly tls: EtcdTls | undefined;
  /** Key of the history marker. */
  readonly historyKey: string;
}

/** Certificates in PEM. */
export interface EtcdTls {
  /** Undefined: the authorities that Node.js trusts. */
  readonly ca: Buffer | undefined;
  readonly client: { readonly cert: Buffer; readonly key: Buffer } | undefined;
}

/** Certificates in PEM. */
export interface ServerTls {
  readonly cert: Buffer;
  readonly key: Buffer;
  /** If present, clients need a certificate from these authorities. */
  readonly clientCa: Buffer | undefined;
}
