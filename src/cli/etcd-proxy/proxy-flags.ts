import type { OptionName } from "../../config/options.ts";

/** How `etcd-proxy` takes a flag of `etcd grpc-proxy start`. */
export type ProxyFlag = {
  /** Placeholder of the value in help; absent for a switch. */
  readonly value?: string;
  readonly help: string;
  readonly default?: string;
} & Heeded &
  (
    | {
        readonly kind: "option";
        readonly option: OptionName;
        /** The value is a duration as Go writes it. Shorter ones become `leastMs`, zero is as good as none. */
        readonly duration?: { readonly leastMs: number };
      }
    /** Handled by itself. */
    | { readonly kind: "own" }
    /** Accepted, and reported as without effect. `why` completes the sentence "has no effect: ...". */
    | { readonly kind: "ignored"; readonly why: string }
    /** Refused where etcd would heed it. `why` is a sentence that says what to do. */
    | { readonly kind: "refused"; readonly why: string }
  );

/** When etcd heeds a flag: always, unless this says otherwise. Where it does not, the flag has no effect here either. */
interface Heeded {
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
const noDiscovery = "SRV records are not looked up; name the members with --endpoints.";

/** The flags of `etcd grpc-proxy start`, by name, and one of this command alone: cache. */
export const proxyFlags: Readonly<Record<string, ProxyFlag>> = {
  cache: {
    kind: "own",
    help: "Cache every key (--resource all=), unless resources are named: all values are in memory then.",
    default: "true",
  },
  "listen-addr": {
    kind: "option",
    option: "listen",
    value: "HOST:PORT",
    help: "Address of the gRPC server.",
    default: "127.0.0.1:23790",
  },
  endpoints: {
    kind: "own",
    value: "ENDPOINT[,ENDPOINT...]",
    help: "Client addresses or URLs of the etcd members. The first is used until it fails.",
    default: "127.0.0.1:2379",
  },
  "advertise-client-url": {
    kind: "option",
    option: "advertise-client-url",
    value: "URL",
    help: "URL that MemberList names for every member.",
  },
  "metrics-addr": {
    kind: "own",
    value: "URL",
    help: "URL, http://HOST:PORT, of /metrics, /health, /version, /livez and /readyz.",
    default: "http://127.0.0.1:0",
  },
  cacert: {
    kind: "option",
    option: "etcd-ca",
    needsTls: true,
    value: "FILE",
    help: "Authorities of etcd's certificates.",
  },
  cert: {
    kind: "option",
    option: "etcd-cert",
    needsTls: true,
    value: "FILE",
    help: "Client certificate for etcd. It must not have a common name.",
  },
  key: {
    kind: "option",
    option: "etcd-key",
    needsTls: true,
    value: "FILE",
    help: "Private key of --cert.",
  },
  "insecure-skip-tls-verify": {
    kind: "option",
    option: "etcd-insecure-skip-verify",
    needsTls: true,
    help: "Accept any certificate of etcd, for tests.",
  },
  "cert-file": {
    kind: "option",
    option: "tls-cert",
    value: "FILE",
    help: "Server certificate, which enables TLS together with --key-file.",
  },
  "key-file": {
    kind: "option",
    option: "tls-key",
    value: "FILE",
    help: "Private key of --cert-file.",
  },
  "trusted-ca-file": {
    kind: "option",
    option: "tls-client-ca",
    value: "FILE",
    help: "Authorities of client certificates. Clients need one then.",
  },
  "listen-cipher-suites": {
    kind: "option",
    option: "tls-cipher-suites",
    needs: "cert-file",
    value: "NAME[,NAME...]",
    help: "Cipher suites of TLS 1.2 for clients, by Go's names.",
  },
  "tls-min-version": {
    kind: "option",
    option: "tls-min-version",
    needs: "cert-file",
    value: "VERSION",
    help: "Lowest version of TLS for clients, TLS1.2 or TLS1.3.",
  },
  "tls-max-version": {
    kind: "option",
    option: "tls-max-version",
    needs: "cert-file",
    value: "VERSION",
    help: "Highest version of TLS for clients, TLS1.2 or TLS1.3.",
  },
  "dial-keepalive-time": {
    kind: "option",
    option: "etcd-keepalive-time",
    // As in grpc-go.
    duration: { leastMs: 10_000 },
    value: "DURATION",
    help: "Time without a response after which etcd gets a keepalive ping, at least 10s. 0: the default.",
  },
  "dial-keepalive-timeout": {
    kind: "option",
    option: "etcd-keepalive-timeout",
    // The least that the option takes.
    duration: { leastMs: 100 },
    value: "DURATION",
    help: "How long etcd may take to answer a keepalive ping, at least 100ms. 0: the default.",
  },
  "permit-without-stream": {
    kind: "option",
    option: "etcd-keepalive-without-calls",
    help: "Send keepalive pings to etcd also without open calls, which etcd itself takes for an attack.",
  },
  debug: { kind: "own", help: "Log at level debug." },
  "auto-tls": {
    kind: "refused",
    help: "Refused.",
    why: "certificates are not generated; make one and use --cert-file and --key-file.",
    overriddenBy: "cert-file",
  },
  "self-signed-cert-validity": {
    kind: "ignored",
    value: "YEARS",
    help: "No effect.",
    why: "certificates are not generated.",
  },
  "client-crl-file": {
    kind: "refused",
    value: "FILE",
    help: "Refused.",
    why: "revocation lists are not read; use client certificates of short validity.",
    needs: "cert-file",
  },
  namespace: {
    kind: "refused",
    value: "PREFIX",
    help: "Refused.",
    why: "keys are passed on as they are; add the prefix in the clients.",
  },
  "resolver-prefix": {
    kind: "refused",
    value: "PREFIX",
    help: "Refused.",
    why: "replicas are not registered in etcd; name them in DNS, or use --advertise-client-url.",
  },
  "resolver-ttl": {
    kind: "refused",
    value: "SECONDS",
    help: "Refused.",
    why: "replicas are not registered in etcd; name them in DNS, or use --advertise-client-url.",
    unset: "0",
  },
  "discovery-srv": { kind: "refused", value: "DOMAIN", help: "Refused.", why: noDiscovery },
  "discovery-srv-name": {
    kind: "refused",
    value: "NAME",
    help: "Refused.",
    why: noDiscovery,
    needs: "discovery-srv",
  },
  "insecure-discovery": {
    kind: "refused",
    help: "Refused.",
    why: noDiscovery,
    needs: "discovery-srv",
  },
  "experimental-leasing-prefix": {
    kind: "refused",
    value: "PREFIX",
    help: "Refused.",
    why: "there is no leasing; other users of that prefix would miss writes.",
  },
  "experimental-serializable-ordering": {
    kind: "ignored",
    help: "No effect.",
    why: "all calls go to one member, so its responses are in order.",
  },
  "endpoints-auto-sync-interval": {
    kind: "ignored",
    value: "DURATION",
    help: "No effect.",
    why: "the members are those of --endpoints; start again with others when the cluster changes.",
  },
  "experimental-enable-grpc-logging": {
    kind: "ignored",
    help: "No effect.",
    why: "calls are not logged; --audit-log records them.",
  },
  "max-send-bytes": { kind: "ignored", value: "BYTES", help: "No effect.", why: noLimit },
  "max-recv-bytes": { kind: "ignored", value: "BYTES", help: "No effect.", why: noLimit },
  "max-concurrent-streams": {
    kind: "ignored",
    value: "COUNT",
    help: "No effect.",
    why: "a connection may have 10,000 calls open.",
  },
  "data-dir": { kind: "ignored", value: "DIR", help: "No effect.", why: "nothing is stored." },
  "enable-pprof": { kind: "ignored", help: "No effect.", why: "there are no profiling pages." },
  "grpc-keepalive-min-time": {
    kind: "ignored",
    value: "DURATION",
    help: "No effect.",
    why: "clients may send as many as 10,000 pings per second.",
  },
  "grpc-keepalive-interval": {
    kind: "ignored",
    value: "DURATION",
    help: "No effect.",
    why: "clients get a ping every 30 s.",
  },
  "grpc-keepalive-timeout": {
    kind: "ignored",
    value: "DURATION",
    help: "No effect.",
    why: "a client has 20 s to answer a ping.",
  },
};
