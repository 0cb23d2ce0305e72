import type { DeepReadBounds } from "../cacher/catch-up/deep-reads.ts";
import type { EventWindowBounds } from "../cacher/state/event-window.ts";
import type { Codec } from "../codec/codec.ts";
import type { TrustedForwarders } from "../identity/forwarded-certificate.ts";
import type { CertificateNameKind } from "../identity/peer.ts";
import type { PolicyDefinition } from "../policy/definition.ts";
import type { LimitsConfig } from "./limit-options.ts";
import type { TcpAddress, UnixAddress } from "./value-types.ts";
import type { XdsMapping } from "./xds-options.ts";

export type { LimitsConfig } from "./limit-options.ts";
export type { ListenAddress, TcpAddress } from "./value-types.ts";

/** The checked configuration of `serve`. */
export interface Config {
  /** Undefined: the embedded store, or `upstream`. */
  readonly etcd: EtcdConfig | undefined;
  /** The embedded store. Undefined: `etcd` or `upstream`. */
  readonly data: DataConfig | undefined;
  /** Undefined: only this service's own API is served. */
  readonly etcdApi: EtcdApiConfig | undefined;
  /** Whether ListWatchService and WriteService are served. */
  readonly ownApi: boolean;
  /** The watch-fanout that this one follows as a relay. Undefined: it is not a relay. */
  readonly upstream: UpstreamConfig | undefined;
  /**
   * At least one, unless there is `etcdApi`; names and prefixes are distinct, and no prefix begins with another. Of a relay: names are distinct; none
   * means all that the upstream serves to it.
   */
  readonly resources: readonly ResourceConfig[];
  /** Undefined: xDS is not served. */
  readonly xds: XdsConfig | undefined;
  readonly listen: TcpAddress | SocketConfig;
  /** Origins of the web pages that may call; "*": any page may. */
  readonly webOrigins: readonly string[];
  readonly admin: AdminConfig;
  /** Undefined: plaintext. */
  readonly tls: ServerTls | undefined;
  /** Undefined: every caller may do everything. */
  readonly policy: PolicyConfig | undefined;
  /** Undefined: calls are not audited. */
  readonly audit: AuditConfig | undefined;
  /** How callers are recognised. */
  readonly identity: IdentityConfig;
  /** The bounds of resources without an event window of their own. */
  readonly eventWindow: EventWindowBounds;
  /** The watches that read events from before the event window; `concurrentPerGroup` is that of an identity. */
  readonly deepReads: Omit<DeepReadBounds, "maxWaitMs" | "queued">;
  /** The folder in which the caches are kept. Undefined: they are not. */
  readonly cacheDir: string | undefined;
  /** Number of processes that serve clients. 1: this process alone. */
  readonly workers: number;
  readonly stallTimeoutMs: number;
  /** Minimum time between two dispatch rounds of a resource; 0: none. */
  readonly dispatchIntervalMs: number;
  /** 0: unlimited. */
  readonly maxStreamAgeMs: number;
  /** What clients may have. */
  readonly limits: LimitsConfig;
  /** Which responses are compressed. Undefined: none. */
  readonly compression: CompressionConfig | undefined;
  /** Memory in use above which load is shed, in bytes. Undefined: by the limit of the control group. */
  readonly memoryCeilingBytes: number | undefined;
  /** Interval of the comparison of each cache with its storage; 0: never. */
  readonly consistencyIntervalMs: number;
  readonly shutdownTimeoutMs: number;
  /** Undefined: neither spans nor metrics are exported. */
  readonly otlp: OtlpConfig | undefined;
  readonly logLevel: LogLevel;
  /** Undefined: text on a terminal, otherwise JSON. */
  readonly logFormat: LogFormat | undefined;
}

/** The embedded store, and what it keeps on disk. */
export interface DataConfig {
  /** Undefined: in memory, and lost when the process ends; the other members have no meaning then. */
  readonly path: string | undefined;
  /** What an acknowledged write survives: a loss of power, or only the end of the process. */
  readonly sync: "full" | "off";
  /** Age, in milliseconds, and size up to which old revisions are kept. */
  readonly historyMs: number;
  readonly historyBytes: number;
  /** Size of the file above which writes end with STORAGE_FULL. */
  readonly maxBytes: number;
}

/** What is exported to an OpenTelemetry collector. */
export interface OtlpConfig {
  /** The base URL of the collector, or `env` for that of OTEL_EXPORTER_OTLP_ENDPOINT. */
  readonly endpoint: string;
  /** The part of the traces that begin here which is recorded, from 0 to 1. */
  readonly traceRatio: number;
  /** 0: metrics are not exported. */
  readonly metricsIntervalMs: number;
}

/** A Unix socket to listen on. */
export interface SocketConfig extends UnixAddress {
  /** The permissions of its file. */
  readonly mode: number;
}

/** The port for operators. */
export interface AdminConfig {
  readonly listen: TcpAddress;
  /** Undefined: plain text. */
  readonly tls: CertificateConfig | undefined;
  /** Undefined: no token is needed. */
  readonly tokenFile: FileContent | undefined;
}

/** A certificate and its key in PEM. */
export interface CertificateConfig {
  readonly cert: Buffer;
  readonly key: Buffer;
  /** The paths of the same files, to read them again. */
  readonly files: { readonly cert: string; readonly key: string };
}

/** The policy when the service starts. Its file may have another one later. */
export interface PolicyConfig {
  readonly path: string;
  readonly content: Buffer;
  readonly definition: PolicyDefinition;
}

export interface AuditConfig {
  /** Undefined: standard output. */
  readonly path: string | undefined;
  readonly level: AuditLevel;
}

/** Which allowed calls are audited; see `--audit-level`. */
export type AuditLevel = "writes" | "reads" | "all";

/** A named collection of objects: the keys below one prefix. */
export interface ResourceConfig {
  readonly name: string;
  /** Prefix of every key in etcd. Empty: all keys. */
  readonly prefix: string;
  /** Of a relay: its name in the service that the relay follows. */
  readonly upstreamName?: string;
  readonly codec: Codec;
  /** The indexed fields. The codec declares all of them. */
  readonly indexes: readonly string[];
  /** Complete: bounds that the resource does not set have the general values. */
  readonly eventWindow: EventWindowBounds;
  /** Whether there is a cache. Without one reads and writes go to the storage, and Watch is refused. */
  readonly cache: boolean;
}

/** How xDS is served. */
export interface XdsConfig {
  /** The resource that each type is served from. At least one; no type twice. */
  readonly mappings: readonly XdsMapping[];
  /** How long changes of instances are collected, in milliseconds. 0: they are not, beyond one delivery. */
  readonly debounceMs: number;
}

/** How responses are compressed. */
export interface CompressionConfig {
  /** The one that is preferred first. At least one. */
  readonly encodings: readonly ("gzip" | "zstd")[];
  /** What is smaller is not compressed, in bytes. */
  readonly minBytes: number;
}

export type LogLevel = "trace" | "debug" | "info" | "warn" | "error" | "fatal" | "silent";
export type LogFormat = "text" | "json";

/** The watch-fanout that a relay follows. */
export interface UpstreamConfig {
  /** `HOST:PORT`, at least one. */
  readonly addresses: readonly string[];
  /** Undefined: plaintext. */
  readonly tls: EtcdTls | undefined;
  /** The file with the relay's token. Undefined: it sends no token. */
  readonly tokenFile: FileContent | undefined;
}

export interface EtcdConfig {
  /**
   * `http://HOST:PORT` or `https://HOST:PORT`, at least one, all with the same scheme; a socket of a watch-fanout as in
   * `addressOf`. Of `etcdApi.next` none: the embedded store, behind a socket that the process makes.
   */
  readonly endpoints: readonly string[];
  readonly auth: { readonly username: string; readonly password: string } | undefined;
  /** Present with https only. */
  readonly tls: EtcdTls | undefined;
  /** The pings on connections to etcd: when nothing was received for `timeMs`, each for `timeoutMs`. */
  readonly keepalive: {
    readonly timeMs: number;
    readonly timeoutMs: number;
    /** Whether connections without open calls get pings, too. */
    readonly withoutCalls: boolean;
  };
  /** Interval at which the endpoints are replaced by those of the members, in milliseconds. Undefined: they stay. */
  readonly syncIntervalMs?: number | undefined;
  /** Key of the history marker. */
  readonly historyKey: string;
  /** Whether the history marker is created where it does not exist. */
  readonly createsHistoryKey: boolean;
  /** The token of a relay, for the watch-fanout that these are the endpoints of. Undefined: it sends none. */
  readonly tokenFile?: FileContent | undefined;
}

/** etcd's own API, which is served from caches or relayed. */
export interface EtcdApiConfig {
  /** Where calls go: to etcd, to the embedded store, or to the etcd API of the watch-fanout that a relay or a worker follows. */
  readonly next: EtcdConfig;
  /** Whether this is a worker: others serve the same address, and `next` is the main process of all. Undefined: it is not. */
  readonly hasSiblings?: boolean | undefined;
  /** Serves only the keys with this prefix, without it. Undefined: all. */
  readonly namespace: string | undefined;
  /** The URL that MemberList names for each member. Undefined: those of the members. */
  readonly advertiseClientUrl: string | undefined;
  /** How `advertiseClientUrl` is registered in etcd. Undefined: it is not. */
  readonly registration: { readonly prefix: string; readonly ttlSeconds: number } | undefined;
  /** Interval of the progress notifications of watches, in milliseconds. */
  readonly progressIntervalMs: number;
}

/** Certificates for calls to etcd or to an upstream, in PEM. */
export interface EtcdTls {
  /** Undefined: the authorities that Node.js trusts. */
  readonly ca: Buffer | undefined;
  /** The path of the same file, to read it again. */
  readonly caFile: string | undefined;
  readonly client: CertificateConfig | undefined;
  /** Whether etcd's certificate is checked. */
  readonly isVerified: boolean;
}

/** Certificates in PEM. */
export interface ServerTls extends CertificateConfig {
  /** The authorities of client certificates. Present unless `clientAuth` is off. */
  readonly clientCa: Buffer | undefined;
  readonly clientAuth: "require" | "request" | "off";
  readonly bounds: TlsBounds;
  /** The paths of the same files, to read them again. */
  readonly files: {
    readonly cert: string;
    readonly key: string;
    readonly clientCa: string | undefined;
  };
}

/** The versions of TLS, and the cipher suites, as Node.js takes them. */
export interface TlsBounds {
  readonly minVersion: "TLSv1.2" | "TLSv1.3";
  readonly maxVersion: "TLSv1.2" | "TLSv1.3";
  /** Undefined: those of Node.js. */
  readonly ciphers: string | undefined;
}

/** A file as it was when the configuration was read. */
export interface FileContent {
  readonly path: string;
  readonly content: Buffer;
}

/** The sources of identities, besides client certificates. */
export interface IdentityConfig {
  /** The part of a client certificate that is the name: the first of these that it has. At least one. */
  readonly certificateNames: readonly CertificateNameKind[];
  /** Undefined: no static tokens. */
  readonly tokenFile: FileContent | undefined;
  /** Undefined: no JSON Web Tokens. */
  readonly jwt: JwtConfig | undefined;
  /** Undefined: `x-forwarded-client-cert` is ignored. */
  readonly trustedForwarders: TrustedForwarders | undefined;
}

export interface JwtConfig {
  readonly issuer: string;
  readonly audience: string;
  readonly groupsClaim: string;
  readonly keys: { readonly url: URL } | { readonly file: FileContent };
}
