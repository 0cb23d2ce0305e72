import type { HistoryBounds } from "../cacher/history.ts";
import type { ListenAddress, ResourceConfig } from "./value-types.ts";

export type { ListenAddress, ResourceConfig } from "./value-types.ts";

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
  readonly history: HistoryBounds;
  readonly stallTimeoutMs: number;
  readonly shutdownTimeoutMs: number;
  readonly logLevel: LogLevel;
  /** Undefined: text on a terminal, otherwise JSON. */
  readonly logFormat: LogFormat | undefined;
}

export type LogLevel = "trace" | "debug" | "info" | "warn" | "error" | "fatal" | "silent";
export type LogFormat = "text" | "json";

export interface EtcdConfig {
  /** `http://HOST:PORT` or `https://HOST:PORT`, at least one, all with the same scheme. */
  readonly endpoints: readonly string[];
  readonly auth: { readonly username: string; readonly password: string } | undefined;
  /** Only with https. */
  readonly tls: EtcdTls | undefined;
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
