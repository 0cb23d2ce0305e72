import type { OptionName } from "../../config/options.ts";

/** How `etcd-proxy` takes a flag of `etcd grpc-proxy start`. Without `option`, `ignored` and `refused` by itself. */
export interface ProxyFlag {
  /** Placeholder of the value in help; absent for a switch. */
  readonly value?: string;
  /** Absent: that it is refused, or has no effect. */
  readonly help?: string;
  readonly default?: string;
  /** The option of `serve` that it sets. */
  readonly option?: OptionName;
  /** The value is a duration as Go writes it. Shorter ones become `leastMs`, zero is as good as none. */
  readonly duration?: { readonly leastMs: number };
  /** Accepted, and reported as without effect. Completes the sentence "has no effect: ...". */
  readonly ignored?: string;
  /** Refused where etcd would heed it. A sentence that says what to do. */
  readonly refused?: string;
  // When etcd heeds the flag: always, unless these say otherwise. Where it does not, the flag has no effect here either.
  /** Not with this value. */
  readonly unset?: string;
  /** Not with a value of this flag. */
  readonly overriddenBy?: string;
  /** Only with a value of this flag. */
  readonly needs?: string;
  /** Only with endpoints that use TLS. */
  readonly needsTls?: true;
}

const noLimit = "etcd's own limits of messages apply.";

/** The flags of `etcd grpc-proxy start`, by name, and one of this command alone: cache. */
export const proxyFlags: Readonly<Record<string, ProxyFlag>> = {
  cache: {
    help: "Cache every key (--resource all=), unless resources are named: all values are in memory then.",
    default: "true",
  },
  "listen-addr": {
    option: "listen",
    value: "HOST:PORT",
    help: "Address of the gRPC server. unix:PATH and, with --cert-file, unixs:PATH are Unix sockets.",
    default: "127.0.0.1:23790",
  },
  endpoints: {
    value: "ENDPOINT[,ENDPOINT...]",
    help: "Client addresses or URLs of the etcd members, also unix:PATH and unixs:PATH. Calls are spread over them.",
    default: "127.0.0.1:2379",
  },
  "advertise-client-url": {
    option: "advertise-client-url",
    value: "URL",
    help: "URL that MemberList names for every member.",
  },
  "metrics-addr": {
    value: "URL",
    help: "URL, http://HOST:PORT, of /metrics, /health, /version, /livez and /readyz.",
    default: "http://127.0.0.1:0",
  },
  cacert: {
    option: "etcd-ca",
    needsTls: true,
    value: "FILE",
    help: "Authorities of etcd's certificates.",
  },
  cert: {
    option: "etcd-cert",
    needsTls: true,
    value: "FILE",
    help: "Client certificate for etcd. It must not have a common name.",
  },
  key: {
    option: "etcd-key",
    needsTls: true,
    value: "FILE",
    help: "Private key of --cert.",
  },
  "insecure-skip-tls-verify": {
    option: "etcd-insecure-skip-verify",
    needsTls: true,
    help: "Accept any certificate of etcd, for tests.",
  },
  "cert-file": {
    option: "tls-cert",
    value: "FILE",
    help: "Server certificate, which enables TLS together with --key-file.",
  },
  "key-file": {
    option: "tls-key",
    value: "FILE",
    help: "Private key of --cert-file.",
  },
  "trusted-ca-file": {
    option: "tls-client-ca",
    value: "FILE",
    help: "Authorities of client certificates. Clients need one then.",
  },
  "listen-cipher-suites": {
    option: "tls-cipher-suites",
    needs: "cert-file",
    value: "NAME[,NAME...]",
    help: "Cipher suites of TLS 1.2 for clients, by Go's names.",
  },
  "tls-min-version": {
    option: "tls-min-version",
    needs: "cert-file",
    value: "VERSION",
    help: "Lowest version of TLS for clients, TLS1.2 or TLS1.3.",
  },
  "tls-max-version": {
    option: "tls-max-version",
    needs: "cert-file",
    value: "VERSION",
    help: "Highest version of TLS for clients, TLS1.2 or TLS1.3.",
  },
  "dial-keepalive-time": {
    option: "etcd-keepalive-time",
    // As in grpc-go.
    duration: { leastMs: 10_000 },
    value: "DURATION",
    help: "Time without a response after which etcd gets a keepalive ping, at least 10s. 0: the default.",
  },
  "dial-keepalive-timeout": {
    option: "etcd-keepalive-timeout",
    // The least that the option takes.
    duration: { leastMs: 100 },
    value: "DURATION",
    help: "How long etcd may take to answer a keepalive ping, at least 100ms. 0: the default.",
  },
  "permit-without-stream": {
    option: "etcd-keepalive-without-calls",
    help: "Send keepalive pings to etcd also without open calls, which etcd itself takes for an attack.",
  },
  debug: { help: "Log at level debug." },
  "auto-tls": {
    refused: "certificates are not generated; make one and use --cert-file and --key-file.",
    overriddenBy: "cert-file",
  },
  "self-signed-cert-validity": { value: "YEARS", ignored: "certificates are not generated." },
  "client-crl-file": {
    value: "FILE",
    refused: "revocation lists are not read; use client certificates of short validity.",
    needs: "cert-file",
  },
  namespace: {
    option: "etcd-api-namespace",
    value: "PREFIX",
    help: "Serve only the keys with this prefix, without it.",
  },
  "resolver-prefix": {
    option: "resolver-prefix",
    value: "PREFIX",
    help: "Key of etcd below which --advertise-client-url is registered, with those of others. MemberList names all of them.",
  },
  "resolver-ttl": {
    option: "resolver-ttl",
    value: "SECONDS",
    help: "For how long it stays registered after the process has ended, 60 by default.",
    unset: "0",
  },
  "discovery-srv": {
    value: "DOMAIN",
    help: "Domain whose SRV records name the members, in place of --endpoints. They are looked up once, at the start.",
  },
  "discovery-srv-name": {
    value: "NAME",
    needs: "discovery-srv",
    help: "End of the service's name in the SRV records: etcd-client-NAME.",
  },
  "insecure-discovery": {
    needs: "discovery-srv",
    help: "Accept SRV records of members without TLS.",
  },
  "experimental-leasing-prefix": {
    value: "PREFIX",
    refused: "there is no leasing; other users of that prefix would miss writes.",
  },
  "experimental-serializable-ordering": {
    ignored: "responses are always in order.",
  },
  "endpoints-auto-sync-interval": {
    option: "etcd-endpoints-sync-interval",
    duration: { leastMs: 100 },
    value: "DURATION",
    help: "Interval at which etcd is asked for its members, whose client URLs then replace --endpoints. 0: never.",
  },
  "experimental-enable-grpc-logging": {
    ignored: "calls are not logged; --audit-log records them.",
  },
  "max-send-bytes": { value: "BYTES", ignored: noLimit },
  "max-recv-bytes": { value: "BYTES", ignored: noLimit },
  "max-concurrent-streams": { value: "COUNT", ignored: "a connection may have 10,000 calls open." },
  "data-dir": { value: "DIR", ignored: "nothing is stored." },
  "enable-pprof": { ignored: "there are no profiling pages." },
  "grpc-keepalive-min-time": {
    value: "DURATION",
    ignored: "clients may send as many as 10,000 pings per second.",
  },
  "grpc-keepalive-interval": { value: "DURATION", ignored: "clients get a ping every 30 s." },
  "grpc-keepalive-timeout": { value: "DURATION", ignored: "a client has 20 s to answer a ping." },
};
