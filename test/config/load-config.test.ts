import { describe, expect, test } from "vitest";
import { defaultWatcherBounds } from "../../src/cacher/dispatch/watcher-bounds.ts";
import { defaultEventWindowBounds } from "../../src/cacher/state/event-window.ts";
import { opaqueCodec } from "../../src/codec/codec.ts";
import type { Config } from "../../src/config/config.ts";
import {
  definition,
  fileKeyOf,
  flagOf,
  optionNames,
  variableOf,
} from "../../src/config/options.ts";
import { defaultServerLimits } from "../../src/server/limits/server-limits.ts";
import { defaultMaxDeletedObjects } from "../../src/storage/transaction-checks.ts";
import { certificates, type Given, load } from "./sources.ts";

const { cert, key } = certificates;
/** The defaults of a resource with a name and a prefix. */
const plain = {
  codec: opaqueCodec,
  indexes: [],
  eventWindow: defaultEventWindowBounds,
  cache: true,
};
const files = {
  ...{ "cert.pem": cert, "key.pem": key, "ca.pem": cert, password: "from a file\n" },
  tokens: `sha256:${"0".repeat(64)} alice\n`,
  "keys.json": '{"keys":[{"kty":"RSA","n":"AQAB","e":"AQAB"}]}',
};
const plainTls = {
  ...{ cert, key, clientCa: undefined, clientAuth: "off" },
  bounds: { minVersion: "TLSv1.2", maxVersion: "TLSv1.3", ciphers: undefined },
  files: { cert: "cert.pem", key: "key.pem", clientCa: undefined },
};
const etcdPair = {
  ...{ ca: undefined, caFile: undefined, isVerified: true },
  client: { cert, key, files: { cert: "cert.pem", key: "key.pem" } },
};

const upstreamPair = {
  ...etcdPair,
  ...{ ca: cert, caFile: "ca.pem" },
};
const tls: Given = {
  files,
  env: { WATCH_FANOUT_TLS_CERT: "cert.pem", WATCH_FANOUT_TLS_KEY: "key.pem" },
};
const mutual: Given = {
  files,
  env: {
    WATCH_FANOUT_TLS_CERT: "cert.pem",
    WATCH_FANOUT_TLS_KEY: "key.pem",
    WATCH_FANOUT_TLS_CLIENT_CA: "ca.pem",
  },
};

test("a command's own default applies where no source has a value", () => {
  const defaults = { listen: ["127.0.0.1:1"] };
  const portOf = (given: Given) => (load({ ...given, defaults }).listen as { port?: number }).port;
  expect(portOf({})).toBe(1);
  expect(portOf({ yaml: "listen: 127.0.0.1:2" })).toBe(2);
  expect(portOf({ env: { WATCH_FANOUT_LISTEN: "127.0.0.1:3" } })).toBe(3);
  expect(portOf({ flags: ["--listen", "127.0.0.1:4"] })).toBe(4);
});

test("the etcd API of a relay is passed to that of its upstream, with its credentials", () => {
  const flags = ["--upstream", "a:1,unix:b", "--etcd-api", "on", "--upstream-token-file", "token"];
  const { etcd, etcdApi } = load({ flags, files: { token: "secret" } });
  expect(etcd).toBe(undefined);
  expect(etcdApi?.next).toMatchObject({
    endpoints: ["http://a:1", "unix:b"],
    tls: undefined,
    tokenFile: { path: "token", content: Buffer.from("secret") },
    createsHistoryKey: false,
  });
});

test("without any source the embedded store serves one resource with all keys", () => {
  expect(load({})).toEqual({
    etcd: undefined,
    data: {
      path: "watch-fanout.data/store.db",
      sync: "full",
      historyMs: 24 * 3_600_000,
      historyBytes: 2 * 2 ** 30,
      maxBytes: 8 * 2 ** 30,
    },
    upstream: undefined,
    ...{ etcdApi: undefined, ownApi: true },
    resources: [{ name: "default", prefix: "", ...plain }],
    listen: { host: "127.0.0.1", port: 50051 },
    admin: { listen: { host: "127.0.0.1", port: 8080 }, tls: undefined, tokenFile: undefined },
    tls: undefined,
    policy: undefined,
    audit: undefined,
    identity: {
      certificateNames: ["spiffe", "dns", "cn"],
      tokenFile: undefined,
      jwt: undefined,
      trustedForwarders: undefined,
    },
    eventWindow: { ageMs: 300_000, minEvents: 1_000, maxEvents: 100_000, maxBytes: 64 * 2 ** 20 },
    deepReads: { concurrent: 16, concurrentPerGroup: 4, maxMs: 300_000, maxRevisions: 100_000 },
    cacheDir: undefined,
    workers: 1,
    stallTimeoutMs: 60_000,
    dispatchIntervalMs: 0,
    maxStreamAgeMs: 3_600_000,
    limits: {
      maxStreams: 200_000,
      maxStreamsPerIdentity: 0,
      maxSubscribeWatches: 10_000,
      maxDeletedObjects: 10_000,
      maxConnections: 20_000,
      maxConnectionsPerIdentity: 0,
      maxReadsInFlight: 512,
      maxWritesInFlight: 256,
      maxQueuedRequestsPerIdentity: 10_000,
      maxQueueMs: 5_000,
      maxRequestsPerIdentity: 0,
      maxWatchRate: 0,
      maxWatchRatePerIdentity: 0,
      maxLeases: 100_000,
      maxLeasesPerIdentity: 10_000,
      maxLeaseGrantRatePerIdentity: 1_000,
      maxLeaseRenewalRatePerIdentity: 10_000,
      maxSendRate: 0,
      maxSendRatePerIdentity: 0,
    },
    compression: undefined,
    xds: undefined,
    memoryCeilingBytes: undefined,
    webOrigins: [],
    consistencyIntervalMs: 600_000,
    shutdownTimeoutMs: 10_000,
    otlp: undefined,
    logLevel: "info",
    logFormat: undefined,
  } satisfies Config);
});

test(":memory: is a store without a file, also below etcd's API", () => {
  const { data, etcdApi } = load({ flags: ["--data", ":memory:", "--etcd-api", "on"] });
  expect(data?.path).toBeUndefined();
  // The process knows its socket.
  expect(etcdApi?.next).toMatchObject({ endpoints: [], createsHistoryKey: false });
});

test("the resource that serves etcd's API from the embedded store has the keys of the namespace", () => {
  const { resources } = load({ flags: ["--etcd-api", "on", "--etcd-api-namespace", "ns/"] });
  expect(resources).toEqual([{ name: "default", prefix: "ns/", ...plain }]);
});

test("with etcd, or as a relay, there is no embedded store", () => {
  expect(load({ flags: ["--etcd", "http://a", "--resource", "all="] }).data).toBeUndefined();
  expect(load({ flags: ["--upstream", "root:1"] }).data).toBeUndefined();
});

test("the defaults are those of the cache and of the server", () => {
  const { eventWindow, stallTimeoutMs, dispatchIntervalMs, maxStreamAgeMs, limits } = load({});
  expect(eventWindow).toEqual(defaultEventWindowBounds);
  expect(stallTimeoutMs).toBe(defaultWatcherBounds.stallTimeoutMs);
  expect(dispatchIntervalMs).toBe(defaultWatcherBounds.dispatchIntervalMs);
  expect(maxStreamAgeMs).toBe(defaultServerLimits.maxStreamAgeMs);
  const { maxDeletedObjects, ...ofServer } = limits;
  expect(defaultServerLimits).toMatchObject(ofServer);
  expect(maxDeletedObjects).toBe(defaultMaxDeletedObjects);
});

/** An option, a value as text, the other sources that it needs, and the expected configuration. */
const cases: readonly [
  name: string,
  text: string,
  besides: Given,
  read: (config: Config) => unknown,
  expected: unknown,
][] = [
  [
    "etcd",
    "http://a, http://b:99",
    { env: { WATCH_FANOUT_RESOURCE: "all=" } },
    ({ etcd }) => etcd,
    {
      endpoints: ["http://a:2379", "http://b:99"],
      auth: undefined,
      tls: undefined,
      keepalive: { timeMs: 7_000, timeoutMs: 3_000, withoutCalls: false },
      historyKey: "/watchfanout/history",
      createsHistoryKey: true,
    },
  ],
  [
    "upstream",
    "root-0:50051, [::1]:7",
    {},
    ({ upstream, resources }) => [upstream, resources],
    [{ addresses: ["root-0:50051", "[::1]:7"], tls: undefined, tokenFile: undefined }, []],
  ],
  ["data", "a.db", {}, ({ data }) => data?.path, "a.db"],
  ["data-sync", "off", {}, ({ data }) => data?.sync, "off"],
  ["data-history", "1h", {}, ({ data }) => data?.historyMs, 3_600_000],
  ["data-history-bytes", "1MiB", {}, ({ data }) => data?.historyBytes, 2 ** 20],
  [
    "data-bytes",
    "4MiB",
    {},
    ({ data }) => [data?.maxBytes, data?.historyBytes],
    [2 ** 22, 2 ** 20],
  ],
  [
    "upstream-tls-ca",
    "ca.pem",
    upstreamWith({}),
    ({ upstream }) => upstream?.tls,
    {
      ...{ ca: cert, caFile: "ca.pem", client: undefined, isVerified: true },
    },
  ],
  [
    "upstream-tls-cert",
    "cert.pem",
    upstreamWith({
      WATCH_FANOUT_UPSTREAM_TLS_KEY: "key.pem",
      WATCH_FANOUT_UPSTREAM_TLS_CA: "ca.pem",
    }),
    ({ upstream }) => upstream?.tls,
    upstreamPair,
  ],
  [
    "upstream-tls-key",
    "key.pem",
    upstreamWith({
      WATCH_FANOUT_UPSTREAM_TLS_CERT: "cert.pem",
      WATCH_FANOUT_UPSTREAM_TLS_CA: "ca.pem",
    }),
    ({ upstream }) => upstream?.tls,
    upstreamPair,
  ],
  [
    "upstream-token-file",
    "tokens",
    upstreamWith({}),
    ({ upstream }) => upstream?.tokenFile?.path,
    "tokens",
  ],
  [
    "resource",
    "nodes=/nodes/",
    {},
    ({ resources }) => resources,
    [{ name: "nodes", prefix: "/nodes/", ...plain }],
  ],
  ["listen", "[::1]:0", {}, ({ listen }) => listen, { host: "::1", port: 0 }],
  [
    "listen-socket-mode",
    "0660",
    { env: { WATCH_FANOUT_LISTEN: "unix:wf.sock" } },
    ({ listen }) => listen,
    { path: "wf.sock", mode: 0o660 },
  ],
  ["admin", "localhost:1", {}, ({ admin }) => admin.listen, { host: "localhost", port: 1 }],
  [
    "admin-tls-cert",
    "cert.pem",
    { files, env: { WATCH_FANOUT_ADMIN_TLS_KEY: "key.pem" } },
    ({ admin }) => admin.tls,
    { cert, key, files: { cert: "cert.pem", key: "key.pem" } },
  ],
  [
    "admin-tls-key",
    "key.pem",
    { files, env: { WATCH_FANOUT_ADMIN_TLS_CERT: "cert.pem" } },
    ({ admin }) => admin.tls,
    { cert, key, files: { cert: "cert.pem", key: "key.pem" } },
  ],
  [
    "admin-token-file",
    "tokens",
    { files },
    ({ admin }) => admin.tokenFile,
    { path: "tokens", content: Buffer.from(files.tokens) },
  ],
  [
    "tls-cert",
    "cert.pem",
    { files, env: { WATCH_FANOUT_TLS_KEY: "key.pem" } },
    ({ tls }) => tls,
    plainTls,
  ],
  [
    "tls-key",
    "key.pem",
    { files, env: { WATCH_FANOUT_TLS_CERT: "cert.pem" } },
    ({ tls }) => tls,
    plainTls,
  ],
  [
    "tls-client-ca",
    "ca.pem",
    { files, env: { WATCH_FANOUT_TLS_CERT: "cert.pem", WATCH_FANOUT_TLS_KEY: "key.pem" } },
    ({ tls }) => [tls?.clientCa, tls?.clientAuth, tls?.files.clientCa],
    [cert, "require", "ca.pem"],
  ],
  ["tls-client-auth", "request", mutual, ({ tls }) => tls?.clientAuth, "request"],
  ["tls-min-version", "TLS1.3", tls, ({ tls }) => tls?.bounds.minVersion, "TLSv1.3"],
  ["tls-max-version", "TLS1.2", tls, ({ tls }) => tls?.bounds.maxVersion, "TLSv1.2"],
  [
    "tls-cipher-suites",
    "TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256, TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256",
    tls,
    ({ tls }) => tls?.bounds.ciphers,
    "TLS_AES_256_GCM_SHA384:TLS_CHACHA20_POLY1305_SHA256:TLS_AES_128_GCM_SHA256:" +
      "ECDHE-RSA-AES128-GCM-SHA256:ECDHE-RSA-CHACHA20-POLY1305",
  ],
  [
    "web-origin",
    "https://a.example,http://localhost:5173",
    {},
    ({ webOrigins }) => webOrigins,
    ["https://a.example", "http://localhost:5173"],
  ],
  ["client-cert-name", "dns,cn", {}, ({ identity }) => identity.certificateNames, ["dns", "cn"]],
  [
    "trust-forwarded-cert-from",
    "loopback, proxy.example",
    mutual,
    ({ identity }) => identity.trustedForwarders,
    { loopback: true, unix: false, names: new Set(["proxy.example"]) },
  ],
  [
    "token-file",
    "tokens",
    { files },
    ({ identity }) => identity.tokenFile,
    { path: "tokens", content: Buffer.from(files.tokens) },
  ],
  [
    "jwt-issuer",
    "https://issuer",
    jwtWith({ WATCH_FANOUT_JWT_AUDIENCE: "me", WATCH_FANOUT_JWT_JWKS: "keys.json" }),
    ({ identity }) => identity.jwt,
    {
      ...{ issuer: "https://issuer", audience: "me", groupsClaim: "groups" },
      keys: { file: { path: "keys.json", content: Buffer.from(files["keys.json"]) } },
    },
  ],
  [
    "jwt-audience",
    "me",
    jwtWith({ WATCH_FANOUT_JWT_JWKS: "keys.json" }),
    ({ identity }) => identity.jwt?.audience,
    "me",
  ],
  [
    "jwt-jwks",
    "https://issuer/keys",
    jwtWith({ WATCH_FANOUT_JWT_AUDIENCE: "me" }),
    ({ identity }) => identity.jwt?.keys,
    { url: new URL("https://issuer/keys") },
  ],
  [
    "jwt-groups-claim",
    "roles",
    jwtWith({ WATCH_FANOUT_JWT_AUDIENCE: "me", WATCH_FANOUT_JWT_JWKS: "keys.json" }),
    ({ identity }) => identity.jwt?.groupsClaim,
    "roles",
  ],
  [
    "insecure",
    "on",
    { env: { WATCH_FANOUT_LISTEN: "0.0.0.0:1" } },
    ({ listen }) => listen,
    { host: "0.0.0.0", port: 1 },
  ],
  [
    "policy",
    "policy.yaml",
    { files: { "policy.yaml": "roles: []\nbindings: []\n" } },
    ({ policy }) => policy?.definition,
    { roles: [], bindings: [] },
  ],
  ["audit-log", "-", {}, ({ audit }) => audit, { path: undefined, level: "writes" }],
  [
    "audit-level",
    "reads",
    { env: { WATCH_FANOUT_AUDIT_LOG: "audit.log" } },
    ({ audit }) => audit,
    { path: "audit.log", level: "reads" },
  ],
  [
    "etcd-username",
    "root",
    etcdWith({ WATCH_FANOUT_ETCD_PASSWORD: "hush" }),
    ({ etcd }) => etcd?.auth,
    { username: "root", password: "hush" },
  ],
  [
    "etcd-password",
    "hush",
    etcdWith({ WATCH_FANOUT_ETCD_USERNAME: "root" }),
    ({ etcd }) => etcd?.auth,
    { username: "root", password: "hush" },
  ],
  [
    "etcd-password-file",
    "password",
    etcdWith({ WATCH_FANOUT_ETCD_USERNAME: "root" }),
    ({ etcd }) => etcd?.auth,
    { username: "root", password: "from a file" },
  ],
  [
    "etcd-ca",
    "ca.pem",
    etcdWith({}),
    ({ etcd }) => etcd?.tls,
    {
      ...{ ca: cert, caFile: "ca.pem", client: undefined, isVerified: true },
    },
  ],
  [
    "etcd-cert",
    "cert.pem",
    etcdWith({ WATCH_FANOUT_ETCD_KEY: "key.pem" }),
    ({ etcd }) => etcd?.tls,
    etcdPair,
  ],
  [
    "etcd-key",
    "key.pem",
    etcdWith({ WATCH_FANOUT_ETCD_CERT: "cert.pem" }),
    ({ etcd }) => etcd?.tls,
    etcdPair,
  ],
  ["etcd-history-key", "/elsewhere", etcdWith({}), ({ etcd }) => etcd?.historyKey, "/elsewhere"],
  ["etcd-history-create", "off", etcdWith({}), ({ etcd }) => etcd?.createsHistoryKey, false],
  ["etcd-insecure-skip-verify", "on", etcdWith({}), ({ etcd }) => etcd?.tls?.isVerified, false],
  ["etcd-keepalive-time", "30s", etcdWith({}), ({ etcd }) => etcd?.keepalive.timeMs, 30_000],
  ["etcd-keepalive-timeout", "20s", etcdWith({}), ({ etcd }) => etcd?.keepalive.timeoutMs, 20_000],
  [
    ...(["etcd-keepalive-without-calls", "on", etcdWith({})] as const),
    ...([({ etcd }: Config) => etcd?.keepalive.withoutCalls, true] as const),
  ],
  [
    "etcd-api",
    "on",
    { env: { WATCH_FANOUT_ETCD: "http://a" } },
    ({ etcd, etcdApi, resources }) => [
      { ...etcdApi, next: etcdApi !== undefined && etcdApi.next === etcd },
      resources,
    ],
    [
      {
        next: true,
        namespace: undefined,
        advertiseClientUrl: undefined,
        progressIntervalMs: 600_000,
      },
      [],
    ],
  ],
  [
    "watch-fanout-api",
    "off",
    { env: { WATCH_FANOUT_ETCD: "http://a", WATCH_FANOUT_ETCD_API: "on" } },
    ({ ownApi }) => ownApi,
    false,
  ],
  [
    "etcd-api-namespace",
    "ns/",
    { env: { WATCH_FANOUT_ETCD: "http://a", WATCH_FANOUT_ETCD_API: "on" } },
    ({ etcdApi }) => etcdApi?.namespace,
    "ns/",
  ],
  [
    "advertise-client-url",
    "http://front",
    { env: { WATCH_FANOUT_ETCD: "http://a", WATCH_FANOUT_ETCD_API: "on" } },
    ({ etcdApi }) => etcdApi?.advertiseClientUrl,
    "http://front",
  ],
  [
    "etcd-endpoints-sync-interval",
    "1m",
    { env: { WATCH_FANOUT_ETCD: "http://a", WATCH_FANOUT_ETCD_API: "on" } },
    ({ etcdApi }) => etcdApi?.next.syncIntervalMs,
    60_000,
  ],
  ["resolver-prefix", "/p", registering({}), ({ etcdApi }) => etcdApi?.registration?.prefix, "/p"],
  [
    "resolver-ttl",
    "5",
    registering({ WATCH_FANOUT_RESOLVER_PREFIX: "/p" }),
    ({ etcdApi }) => etcdApi?.registration?.ttlSeconds,
    5,
  ],
  [
    "watch-progress-notify-interval",
    "100ms",
    { env: { WATCH_FANOUT_ETCD: "http://a", WATCH_FANOUT_ETCD_API: "on" } },
    ({ etcdApi }) => etcdApi?.progressIntervalMs,
    100,
  ],
  ["event-window-age", "1h30m", {}, ({ eventWindow }) => eventWindow.ageMs, 5_400_000],
  ["event-window-min-events", "0", {}, ({ eventWindow }) => eventWindow.minEvents, 0],
  ["event-window-max-events", "5000", {}, ({ eventWindow }) => eventWindow.maxEvents, 5_000],
  ["event-window-max-bytes", "1.5KiB", {}, ({ eventWindow }) => eventWindow.maxBytes, 1_536],
  ["deep-reads", "0", {}, ({ deepReads }) => deepReads.concurrent, 0],
  ["deep-reads-per-identity", "3", {}, ({ deepReads }) => deepReads.concurrentPerGroup, 3],
  ["deep-read-revisions", "0", {}, ({ deepReads }) => deepReads.maxRevisions, 0],
  ["deep-read-timeout", "2m", {}, ({ deepReads }) => deepReads.maxMs, 120_000],
  [
    "cache-dir",
    "/var/cache/fanout",
    { env: { WATCH_FANOUT_UPSTREAM: "root:1" } },
    ({ cacheDir }) => cacheDir,
    "/var/cache/fanout",
  ],
  ["workers", "3", {}, ({ workers }) => workers, 3],
  ["stall-timeout", "75s", {}, ({ stallTimeoutMs }) => stallTimeoutMs, 75_000],
  ["max-stream-age", "0s", {}, ({ maxStreamAgeMs }) => maxStreamAgeMs, 0],
  ["max-streams", "7", {}, ({ limits }) => limits.maxStreams, 7],
  ["max-streams-per-identity", "8", {}, ({ limits }) => limits.maxStreamsPerIdentity, 8],
  ["max-connections", "9", {}, ({ limits }) => limits.maxConnections, 9],
  ["max-connections-per-identity", "3", {}, ({ limits }) => limits.maxConnectionsPerIdentity, 3],
  ["max-reads-in-flight", "4", {}, ({ limits }) => limits.maxReadsInFlight, 4],
  ["max-writes-in-flight", "5", {}, ({ limits }) => limits.maxWritesInFlight, 5],
  [
    ...(["max-queued-requests-per-identity", "6", {}] as const),
    ...([({ limits }: Config) => limits.maxQueuedRequestsPerIdentity, 6] as const),
  ],
  ["max-queue-time", "2s", {}, ({ limits }) => limits.maxQueueMs, 2_000],
  ["max-deleted-objects", "14", {}, ({ limits }) => limits.maxDeletedObjects, 14],
  ["max-subscribe-watches", "13", {}, ({ limits }) => limits.maxSubscribeWatches, 13],
  ["max-requests-per-identity", "10", {}, ({ limits }) => limits.maxRequestsPerIdentity, 10],
  ["max-watch-rate", "11", {}, ({ limits }) => limits.maxWatchRate, 11],
  ["max-watch-rate-per-identity", "12", {}, ({ limits }) => limits.maxWatchRatePerIdentity, 12],
  ["max-leases", "14", {}, ({ limits }) => limits.maxLeases, 14],
  ["max-leases-per-identity", "15", {}, ({ limits }) => limits.maxLeasesPerIdentity, 15],
  [
    ...(["max-lease-grant-rate-per-identity", "16", {}] as const),
    ...([({ limits }: Config) => limits.maxLeaseGrantRatePerIdentity, 16] as const),
  ],
  [
    ...(["max-lease-renewal-rate-per-identity", "17", {}] as const),
    ...([({ limits }: Config) => limits.maxLeaseRenewalRatePerIdentity, 17] as const),
  ],
  ["max-send-rate", "1MiB", {}, ({ limits }) => limits.maxSendRate, 2 ** 20],
  ["max-send-rate-per-identity", "1KiB", {}, ({ limits }) => limits.maxSendRatePerIdentity, 1_024],
  [
    "compression",
    "zstd,gzip",
    {},
    ({ compression }) => compression,
    { encodings: ["zstd", "gzip"], minBytes: 4_096 },
  ],
  [
    "compression-min-size",
    "64KiB",
    { env: { WATCH_FANOUT_COMPRESSION: "gzip" } },
    ({ compression }) => compression,
    { encodings: ["gzip"], minBytes: 65_536 },
  ],
  ["memory-ceiling", "2GiB", {}, ({ memoryCeilingBytes }) => memoryCeilingBytes, 2 * 2 ** 30],
  ["dispatch-interval", "20ms", {}, ({ dispatchIntervalMs }) => dispatchIntervalMs, 20],
  [
    "consistency-interval",
    "1h",
    {},
    ({ consistencyIntervalMs }) => consistencyIntervalMs,
    3_600_000,
  ],
  ["shutdown-timeout", "250ms", {}, ({ shutdownTimeoutMs }) => shutdownTimeoutMs, 250],
  [
    "xds",
    "eds=default",
    {},
    ({ xds }) => xds,
    { mappings: [{ type: "eds", resource: "default" }], debounceMs: 0 },
  ],
  [
    "xds-debounce",
    "50ms",
    { env: { WATCH_FANOUT_XDS: "cds=default" } },
    ({ xds }) => xds?.debounceMs,
    50,
  ],
  [
    "otlp-endpoint",
    "http://collector:4318/",
    {},
    ({ otlp }) => otlp,
    { endpoint: "http://collector:4318", traceRatio: 0, metricsIntervalMs: 60_000 },
  ],
  [
    "trace-ratio",
    "0.25",
    { env: { WATCH_FANOUT_OTLP_ENDPOINT: "https://collector/otlp" } },
    ({ otlp }) => [otlp?.endpoint, otlp?.traceRatio],
    ["https://collector/otlp", 0.25],
  ],
  [
    "otlp-metrics-interval",
    "15s",
    { env: { WATCH_FANOUT_OTLP_ENDPOINT: "http://collector:4318" } },
    ({ otlp }) => otlp?.metricsIntervalMs,
    15_000,
  ],
  ["log-level", "debug", {}, ({ logLevel }) => logLevel, "debug"],
  ["log-format", "json", {}, ({ logFormat }) => logFormat, "json"],
];

function jwtWith(env: Readonly<Record<string, string>>): Given {
  return { files, env: { WATCH_FANOUT_JWT_ISSUER: "https://issuer", ...env } };
}

function upstreamWith(env: Readonly<Record<string, string>>): Given {
  return { files, env: { WATCH_FANOUT_UPSTREAM: "root:50051", ...env } };
}

function registering(env: Readonly<Record<string, string>>): Given {
  const api = { WATCH_FANOUT_ETCD: "http://a", WATCH_FANOUT_ETCD_API: "on" };
  return { env: { ...api, WATCH_FANOUT_ADVERTISE_CLIENT_URL: "http://front", ...env } };
}

function etcdWith(env: Readonly<Record<string, string>>): Given {
  return {
    files,
    env: { WATCH_FANOUT_ETCD: "https://etcd", WATCH_FANOUT_RESOURCE: "all=", ...env },
  };
}

/** Options without a flag, since other users of the machine can see flags. */
const secrets = optionNames.filter((name) => definition(name).secret) as readonly string[];

test("every option has a case", () => {
  expect(cases.map(([name]) => name).sort()).toEqual([...optionNames].sort());
});

describe.each(cases)("%s", (nameText, text, besides, read, expected) => {
  const name = optionNames.find((option) => option === nameText) ?? "listen";

  test("is read from its variable", () => {
    const env = { ...besides.env, [variableOf(name)]: text };
    expect(read(load({ ...besides, env }))).toEqual(expected);
  });

  test("is read from the file", () => {
    const yaml = `${fileKeyOf(name)}: ${JSON.stringify(text)}\n`;
    expect(read(load({ ...besides, yaml }))).toEqual(expected);
  });
});

test.each(cases.filter(([name]) => !secrets.includes(name)))(
  "%s is read from its flag",
  (name, text, besides, read, expected) => {
    expect(read(load({ ...besides, flags: [flagOf(name), text] }))).toEqual(expected);
  },
);

test("a Unix socket has permissions, and its peers may be trusted to forward certificates", () => {
  const flags = ["--listen", "unix:/run/wf.sock", "--trust-forwarded-cert-from", "unix"];
  const { listen, identity } = load({ flags });
  expect(listen).toEqual({ path: "/run/wf.sock", mode: 0o600 });
  expect(identity.trustedForwarders).toEqual({ loopback: false, unix: true, names: new Set() });
});

describe("of several sources", () => {
  const yaml = "listen: 127.0.0.1:1\nlog-level: error\nstall-timeout: 9s\n";
  const env = { WATCH_FANOUT_LISTEN: "127.0.0.1:2", WATCH_FANOUT_LOG_LEVEL: "warn" };
  const flags = ["--listen", "127.0.0.1:3"];

  test("a flag takes precedence over a variable, a variable over the file, and the file over the default", () => {
    const config = load({ yaml, env, flags });
    expect(config.listen).toMatchObject({ port: 3 });
    expect(config.logLevel).toBe("warn");
    expect(config.stallTimeoutMs).toBe(9_000);
    expect(config.shutdownTimeoutMs).toBe(10_000);
  });

  test("a list comes from one source, the first that has it", () => {
    const { resources } = load({
      yaml: "resources: [a=/a/, b=/b/]",
      env: { WATCH_FANOUT_RESOURCE: "c=/c/,d=/d/" },
      flags: ["--resource", "e=/e/"],
    });
    expect(resources.map(({ name }) => name)).toEqual(["e"]);
  });

  test("the last value of a repeated flag applies", () => {
    const { listen } = load({ flags: [...flags, "--listen", "127.0.0.1:4"] });
    expect(listen).toMatchObject({ port: 4 });
  });

  test("an empty variable counts as absent", () => {
    const { listen } = load({ yaml, env: { WATCH_FANOUT_LISTEN: "" } });
    expect(listen).toMatchObject({ port: 1 });
  });
});

describe("the file", () => {
  test("may be named by a variable", () => {
    const config = load({
      env: { WATCH_FANOUT_CONFIG: "other.yaml" },
      files: { "other.yaml": "log-level: trace" },
    });
    expect(config.logLevel).toBe("trace");
  });

  test("named by a flag takes precedence over one named by a variable", () => {
    const config = load({ yaml: "log-level: trace", env: { WATCH_FANOUT_CONFIG: "other.yaml" } });
    expect(config.logLevel).toBe("trace");
  });

  test.each(["", "# nothing yet\n", "---\n"])("may be empty: %j", (yaml) => {
    expect(load({ yaml })).toEqual(load({}));
  });

  test("may have etcd's endpoints as a sequence", () => {
    const yaml = "etcd: [http://a, 'http://b,http://c']\nresources: all=";
    const endpoints = ["http://a:2379", "http://b:2379", "http://c:2379"];
    expect(load({ yaml }).etcd?.endpoints).toEqual(endpoints);
  });

  test("may have resources as mappings", () => {
    const yaml = "resources:\n  - name: a\n    prefix: /a/\n  - b=/b/=\n";
    expect(load({ yaml }).resources).toEqual([
      { name: "a", prefix: "/a/", ...plain },
      { name: "b", prefix: "/b/=", ...plain },
    ]);
  });

  test("may have counts as numbers", () => {
    expect(load({ yaml: "event-window-max-events: 2000" }).eventWindow.maxEvents).toBe(2_000);
  });
});

test("a prefix given by a flag may contain a comma", () => {
  const { resources } = load({ flags: ["--resource", "a=x,y/", "--resource", "b=z/"] });
  expect(resources.map(({ prefix }) => prefix)).toEqual(["x,y/", "z/"]);
});

test("the variables that Kubernetes sets for a service called watch-fanout are not options", () => {
  const env = {
    WATCH_FANOUT_SERVICE_HOST: "10.0.0.7",
    WATCH_FANOUT_SERVICE_PORT: "50051",
    WATCH_FANOUT_SERVICE_PORT_GRPC: "50051",
    WATCH_FANOUT_PORT: "tcp://10.0.0.7:50051",
    WATCH_FANOUT_PORT_50051_TCP: "tcp://10.0.0.7:50051",
    WATCH_FANOUT_PORT_50051_TCP_PROTO: "tcp",
    WATCH_FANOUT_PORT_50051_TCP_PORT: "50051",
    WATCH_FANOUT_PORT_50051_TCP_ADDR: "10.0.0.7",
    WATCH_FANOUT_ADMIN_SERVICE_HOST: "10.0.0.8",
    WATCH_FANOUT_ADMIN_PORT_8080_TCP: "tcp://10.0.0.8:8080",
  };
  expect(load({ env })).toEqual(load({}));
});

test("the variables of client commands and of top are not options of serve", () => {
  const names = ["ADDRESS", "ADMIN_URL", "BEARER_TOKEN", "BEARER_TOKEN_FILE", "OUTPUT", "TIMEOUT"];
  const env = Object.fromEntries(names.map((name) => [`WATCH_FANOUT_${name}`, "x"]));
  expect(load({ env })).toEqual(load({}));
});

test("variables without the prefix are ignored", () => {
  expect(load({ env: { PATH: "/bin", WATCH_FAN: "1", watch_fanout_listen: "x" } })).toEqual(
    load({}),
  );
});
