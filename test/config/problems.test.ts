import { describe, expect, test } from "vitest";
import { certificates, type Given, load, problemsOf } from "./sources.ts";

const { cert, key, otherKey } = certificates;
const files = {
  cert,
  key,
  otherKey,
  nonsense: "nonsense",
  empty: "\n",
  tokens: "# ours\nsecret alice",
};
const tls = ["--tls-cert", "cert", "--tls-key", "key"] as const;
const jwt = ["--jwt-issuer", "a", "--jwt-audience", "b", "--jwt-jwks"] as const;
const upstream = ["--upstream", "root:1"] as const;
const etcd = ["--etcd", "http://etcd", "--resource", "all="] as const;
const secure = ["--etcd", "https://etcd", "--resource", "all="] as const;

/** Each configuration has exactly one problem, with this text. */
function expectProblems(table: readonly (readonly [Given, string | RegExp])[]): void {
  test.each(table)("%j", (given, expected) => {
    const [problem, ...others] = problemsOf({ files, ...given });
    if (typeof expected === "string") expect(problem).toBe(expected);
    else expect(problem).toMatch(expected);
    expect(others).toEqual([]);
  });
}

const address =
  "is not HOST:PORT, such as 127.0.0.1:50051, [::1]:50051, or 0.0.0.0:50051 for all interfaces " +
  "(ports are 0 to 65535, and 0 selects a free one)";
const listen = `${address}, or unix:PATH.`;
const url =
  "is not the URL of an etcd member, such as http://127.0.0.1:2379 " +
  "(http or https; no path, user or query: use --etcd-username for the user), or unix:PATH or unixs:PATH.";
const name =
  "is not a resource name: at most 63 lower-case letters, digits and hyphens, " +
  "beginning and ending with a letter or digit.";

describe("an invalid value is reported with its source and what is accepted", () => {
  expectProblems([
    [{ flags: ["--listen", "50051"] }, `--listen: "50051" ${listen}`],
    [{ env: { WATCH_FANOUT_LISTEN: "x" } }, `WATCH_FANOUT_LISTEN: "x" ${listen}`],
    [{ yaml: "log-level: info\nlisten: 50051" }, `wf.yaml:2: listen: "50051" ${listen}`],
    [{ yaml: "listen:" }, `wf.yaml:1: listen: null ${listen}`],
    [{ yaml: "listen: {host: x}" }, `wf.yaml:1: listen: { host: 'x' } ${listen}`],
    ...["unix:", "unix://host/x"].map((bad): [Given, string] => [
      { flags: ["--listen", bad] },
      `--listen: ${JSON.stringify(bad)} ${listen}`,
    ]),
    [{ flags: ["--admin", "unix:/x"] }, `--admin: "unix:/x" ${address}.`],
    [
      { flags: ["--listen", "unix:/x", "--listen-socket-mode", "rw"] },
      '--listen-socket-mode: "rw" is not the permissions of a file in octal, such as 0600 or 0660.',
    ],
    ...["", "0", "257", "1.5", "all"].map((bad): [Given, string] => [
      { flags: ["--workers", bad] },
      `--workers: ${JSON.stringify(bad)} is not a whole number from 1 to 256, or auto.`,
    ]),
    ...[
      "",
      ":1",
      "h",
      "h:",
      "h:65536",
      "h:1x",
      "::1:1",
      "[h]:1",
      "http://h:1",
      "h:1/",
      "a b:1",
    ].map((bad): [Given, string] => [
      { flags: ["--admin", bad] },
      `--admin: ${JSON.stringify(bad)} ${address}.`,
    ]),
    [
      { flags: ["--stall-timeout", "75"] },
      '--stall-timeout: "75" is not a duration from 1s to 24 days, such as 500ms, 75s, 5m or 1h30m.',
    ],
    ...["", "s", "-1s", "1 s", "1d", "999ms", "25d", "600h", "1e3s", "1..5s"].map(
      (bad): [Given, RegExp] => [
        { flags: ["--stall-timeout", bad] },
        /^--stall-timeout: ".*" is not a duration from 1s to 24 days/,
      ],
    ),
    ...["", "64", "0B", "64MB", "64Mi", "-1MiB", "9999999999GiB"].map((bad): [Given, string] => [
      { flags: ["--event-window-max-bytes", bad] },
      `--event-window-max-bytes: "${bad}" is not a size above 0 in B, KiB, MiB or GiB, such as 64MiB.`,
    ]),
    ...["", "0", "-5", "1.5", "many", "99999999999999999999"].map((bad): [Given, string] => [
      { flags: ["--event-window-max-events", bad, "--event-window-min-events", "0"] },
      `--event-window-max-events: "${bad}" is not a whole number of at least 1.`,
    ]),
    [
      { flags: ["--memory-ceiling", "80%"] },
      '--memory-ceiling: "80%" is not a size above 0 in B, KiB, MiB or GiB, such as 64MiB.',
    ],
    [{ flags: ["--max-streams", "0"] }, '--max-streams: "0" is not a whole number of at least 1.'],
    [
      { env: { WATCH_FANOUT_LOG_LEVEL: "loud" } },
      'WATCH_FANOUT_LOG_LEVEL: "loud" is not trace, debug, info, warn, error, fatal or silent.',
    ],
    [{ yaml: "log-format: yes" }, 'wf.yaml:1: log-format: "yes" is not text or json.'],
    [
      { flags: [...etcd], yaml: "etcd-username: 007" },
      "wf.yaml:1: etcd-username: 7 is not text; put it in quotes.",
    ],
  ]);
});

describe("the export of telemetry is refused", () => {
  const endpoint =
    "is not the URL of an OpenTelemetry collector, such as http://127.0.0.1:4318 (http or https; no user or query: " +
    "OTEL_EXPORTER_OTLP_HEADERS has credentials), or env.";
  expectProblems([
    ...["collector:4318", "grpc://c", "http://", "http://c?x", "http://c:70000"].map(
      (bad): [Given, string] => [
        { flags: ["--otlp-endpoint", bad] },
        `--otlp-endpoint: "${bad}" ${endpoint}`,
      ],
    ),
    ...["", "1.01", "-1", "half", "1e-1"].map((bad): [Given, string] => [
      { flags: ["--otlp-endpoint", "http://c", "--trace-ratio", bad] },
      `--trace-ratio: "${bad}" is not a number from 0 to 1, such as 0.01.`,
    ]),
    [
      { flags: ["--otlp-endpoint", "http://u:p@c"] },
      `--otlp-endpoint: "http://(hidden)@c" ${endpoint}`,
    ],
    [{ flags: ["--trace-ratio", "1"] }, "--trace-ratio: needs --otlp-endpoint as well."],
    [
      { yaml: "otlp-metrics-interval: 5s" },
      "wf.yaml:1: otlp-metrics-interval: needs --otlp-endpoint as well.",
    ],
  ]);
});

describe("an endpoint of etcd is a URL without path, user or query", () => {
  expectProblems([
    ...[
      "etcd:2379",
      "grpc://e",
      "http://",
      "http://e/v3",
      "http://e:0",
      "http://e:70000",
      "",
      "unix:",
    ].map((bad): [Given, string] => [
      { flags: ["--etcd", bad, "--resource", "all="] },
      `--etcd: ${JSON.stringify(bad)} ${url}`,
    ]),
    [{ yaml: "etcd: [http://a, b]\nresources: all=" }, `wf.yaml:1: etcd[1]: "b" ${url}`],
    [{ yaml: "etcd: []" }, "wf.yaml:1: etcd: the list is empty."],
    [
      { flags: ["--etcd", "http://a,https://b", "--resource", "all="] },
      "--etcd: http://a:2379, https://b:2379 mix http and https; use one scheme for all.",
    ],
  ]);
});

describe("a resource has a valid name, and keys that no other resource has", () => {
  expectProblems([
    [
      { flags: ["--resource", "services"] },
      '--resource: "services" is not NAME=PREFIX, such as services=/services/.',
    ],
    ...["", "A", "a.b", "-a", "a-", "a/b", "a b", "ä", "a".repeat(64)].map(
      (bad): [Given, string] => [
        { flags: ["--resource", `${bad}=/x/`] },
        `--resource (name): "${bad}" ${name}`,
      ],
    ),
    [
      { env: { WATCH_FANOUT_RESOURCE: "a=/a/,B=/b/" } },
      `WATCH_FANOUT_RESOURCE (name): "B" ${name}`,
    ],
    [
      { yaml: "resources:\n  - name: a\n    prefix: /a/\n  - name: 7\n    prefix: /b/" },
      "wf.yaml:4: resources[1].name: 7 is not text; put it in quotes.",
    ],
    [{ yaml: "resources: [{name: a}]" }, "wf.yaml:1: resources[0].prefix: is missing."],
    [
      { yaml: 'resources: [{name: a, prefix: "\\uD800"}]' },
      /^wf\.yaml:1: resources\[0\]\.prefix: .* is not valid Unicode\.$/,
    ],
    [
      { yaml: "resources: [7]" },
      "wf.yaml:1: resources[0]: 7 is neither NAME=PREFIX nor a mapping with name and prefix.",
    ],
    [
      { flags: ["--resource", "a=/a/", "--resource", "a=/b/"] },
      '--resource: the name "a" is given twice, for the prefixes "/a/" and "/b/".',
    ],
    [
      { yaml: "resources:\n  - a=/x/\n  - b=/y/\n  - c=/x/y/" },
      'wf.yaml:4: resources[2]: the prefixes of "a", "/x/", and "c", "/x/y/", overlap: ' +
        "a key can belong to one resource only.",
    ],
    [
      { flags: ["--resource", "a=/x/y", "--resource", "b="] },
      '--resource: the prefixes of "a", "/x/y", and "b", "", overlap: ' +
        "a key can belong to one resource only.",
    ],
    [
      { env: { WATCH_FANOUT_ETCD: "http://a" } },
      "WATCH_FANOUT_ETCD: needs the keys to serve: --resource NAME=PREFIX, " +
        "such as --resource services=/services/.",
    ],
  ]);
});

describe("a resource of a relay is a name, or that and the name in the upstream", () => {
  expectProblems([
    [
      { flags: [...upstream, "--resource", "a=/a/"] },
      '--resource: with --upstream, a resource is NAME or NAME=NAME-UPSTREAM, and "/a/" is not the name of a resource.',
    ],
    [
      { flags: [...upstream, "--resource", "a", "--resource", "a=b"] },
      '--resource: the name "a" is given twice.',
    ],
    [
      { yaml: "resources: [{name: a, prefix: /a/, upstream-name: b}]" },
      "wf.yaml:1: resources[0].upstream-name: needs --upstream as well.",
    ],
    ...["http://root:1", "root", "root:0", ":1", "root:1/x"].map((bad): [Given, RegExp] => [
      { flags: ["--upstream", bad] },
      /^--upstream: ".*" is not the address of a watch-fanout, HOST:PORT, such as root-0\.example:50051/,
    ]),
  ]);

  test.each<[string, Given]>([
    ["as flags", { flags: [...upstream, "--resource", "a", "--resource", "b=c"] }],
    ["in the file", { yaml: "upstream: [root:1]\nresources: [a, {name: b, upstream-name: c}]" }],
  ])("is read %s", (_where, given) => {
    const names = load(given).resources.map(({ name, upstreamName }) => [name, upstreamName]);
    expect(names).toEqual([
      ["a", "a"],
      ["b", "c"],
    ]);
  });
});

describe("an unknown option is refused, with the most similar one", () => {
  expectProblems([
    [
      { env: { WATCH_FANOUT_LISTN: "x" } },
      "WATCH_FANOUT_LISTN: this option does not exist. Did you mean WATCH_FANOUT_LISTEN?",
    ],
    [
      { env: { WATCH_FANOUT_RESOURCES: "x" } },
      "WATCH_FANOUT_RESOURCES: this option does not exist. Did you mean WATCH_FANOUT_RESOURCE?",
    ],
    [
      { env: { WATCH_FANOUT_QUUX_ZORK: "x" } },
      "WATCH_FANOUT_QUUX_ZORK: this option does not exist.",
    ],
    [
      { yaml: "log-level: info\netcdUsername: root" },
      'wf.yaml:2: etcdUsername: this option does not exist. Did you mean "etcd-username"?',
    ],
    [{ yaml: "codec: json" }, "wf.yaml:1: codec: this option does not exist."],
    [{ yaml: "1: x" }, "wf.yaml: 1: this option does not exist."],
  ]);
});

describe("an unusable file is named", () => {
  expectProblems([
    [{ flags: ["--config", "gone.yaml"] }, /^--config: "gone\.yaml" can't be read: .*no such file/],
    [
      { env: { WATCH_FANOUT_CONFIG: "gone.yaml" } },
      /^WATCH_FANOUT_CONFIG: "gone\.yaml" can't be read: .*no such file/,
    ],
    [
      { flags: ["--policy", "p"], files: { p: "roles: []\nbindings: 7" } },
      "p:2: bindings: 7 is not a list of bindings.",
    ],
    [{ flags: ["--policy", "gone"] }, /^--policy: "gone" can't be read: .*no such file/],
    [{ flags: ["--audit-level", "all"] }, "--audit-level: needs --audit-log as well."],
    [{ flags: ["--compression", "br"] }, '--compression: "br" is not gzip, zstd or off.'],
    [
      { flags: ["--compression", "off,gzip"] },
      "--compression: is off and gzip. Give off alone, or leave it out.",
    ],
    [
      { flags: ["--compression-min-size", "1KiB"] },
      "--compression-min-size: needs --compression as well.",
    ],
    [
      { flags: ["--audit-log", "-", "--audit-level", "none"] },
      '--audit-level: "none" is not writes, reads or all.',
    ],
    [{ yaml: "listen: [\n" }, /^wf\.yaml:2: not valid YAML: /],
    [{ yaml: "listen: a:1\nlisten: b:1" }, /^wf\.yaml:2: not valid YAML: Map keys must be unique/],
    [{ yaml: "listen: *a" }, /^wf\.yaml: not valid YAML: Unresolved alias/],
    [{ yaml: "- listen" }, "wf.yaml: is not a mapping of options to values."],
    [{ yaml: "listen" }, "wf.yaml: is not a mapping of options to values."],
    [{ yaml: "---\na: 1\n---\nb: 1" }, /^wf\.yaml:3: not valid YAML: /],
    [
      { flags: ["--tls-cert", "gone", "--tls-key", "key"] },
      /^--tls-cert: "gone" can't be read: .*no such file/,
    ],
    [
      { flags: ["--tls-cert", "cert", "--tls-key", "otherKey"] },
      /^--tls-cert: "cert" is not a certificate in PEM with the unencrypted key of --tls-key: .*mismatch/,
    ],
    [
      { flags: ["--tls-cert", "nonsense", "--tls-key", "key"] },
      /^--tls-cert: "nonsense" is not a certificate in PEM/,
    ],
    [
      { flags: ["--tls-cert", "cert", "--tls-key", "key", "--tls-client-ca", "nonsense"] },
      /^--tls-client-ca: "nonsense" has no certificate in PEM: /,
    ],
    [
      { flags: [...secure, "--etcd-ca", "empty"] },
      /^--etcd-ca: "empty" has no certificate in PEM: /,
    ],
    [
      { flags: [...etcd, "--etcd-username", "u", "--etcd-password-file", "gone"] },
      /^--etcd-password-file: "gone" can't be read: .*no such file/,
    ],
    [
      { flags: [...etcd, "--etcd-username", "u", "--etcd-password-file", "empty"] },
      "--etcd-password-file: the file is empty; it must contain the password.",
    ],
  ]);
});

describe("options that need or exclude one another are reported", () => {
  expectProblems([
    [
      { flags: ["--tls-min-version", "TLS1.3"] },
      "--tls-min-version: needs --tls-cert and --tls-key as well.",
    ],
    [
      { flags: [...tls, "--tls-min-version", "TLS1.3", "--tls-max-version", "TLS1.2"] },
      "--tls-min-version: TLS1.3 is above --tls-max-version, TLS1.2.",
    ],
    [
      {
        flags: [
          ...[...tls, "--tls-min-version", "TLS1.3"],
          ...["--tls-cipher-suites", "TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256"],
        ],
      },
      "--tls-cipher-suites: has no effect with --tls-min-version TLS1.3; remove it.",
    ],
    [{ flags: ["--tls-cert", "cert"] }, "--tls-cert: needs --tls-key as well."],
    [{ env: { WATCH_FANOUT_TLS_KEY: "key" } }, "WATCH_FANOUT_TLS_KEY: needs --tls-cert as well."],
    [
      { flags: ["--tls-client-ca", "cert"] },
      "--tls-client-ca: needs --tls-cert and --tls-key as well.",
    ],
    ...["0.0.0.0", "[::]", "10.0.0.1", "example.test"].map((host): [Given, RegExp] => [
      { flags: ["--listen", `${host}:1`] },
      /^--listen: \S+ may be reached from other machines, .* accept plain text with --insecure\.$/,
    ]),
    [
      { flags: [...tls, "--tls-client-auth", "request"] },
      "--tls-client-auth: request needs --tls-client-ca as well.",
    ],
    [
      { flags: [...tls, "--tls-client-ca", "cert", "--tls-client-auth", "off"] },
      "--tls-client-auth: off has no use for --tls-client-ca; remove one of them.",
    ],
    [{ flags: ["--jwt-audience", "a"] }, "--jwt-audience: needs --jwt-issuer as well."],
    [
      { flags: ["--jwt-issuer", "a", "--jwt-jwks", "keys"] },
      "--jwt-issuer: needs --jwt-audience and --jwt-jwks as well: a token for another service is refused.",
    ],
    [
      { flags: [...jwt, "http://issuer/keys"] },
      "--jwt-jwks: http://issuer/keys is not https; keys from it could be forged.",
    ],
    [
      { flags: [...jwt, "https://user:secret@issuer/keys"] },
      "--jwt-jwks: is not a URL without a user and password, or the path of a file.",
    ],
    [{ flags: [...jwt, "empty"] }, /^--jwt-jwks: "empty" is not a JSON Web Key Set/],
    [{ flags: [...jwt, "gone"] }, /^--jwt-jwks: "gone" can't be read: /],
    [
      { flags: ["--token-file", "tokens"] },
      "--token-file: tokens:2: expected sha256:HEX NAME[,GROUP...], where `watch-fanout token hash` prints the first part.",
    ],
    [
      { flags: ["--trust-forwarded-cert-from", "unix"] },
      "--trust-forwarded-cert-from: unix has no use: --listen is not a Unix socket. Use loopback.",
    ],
    [
      { flags: ["--trust-forwarded-cert-from", "loopback", "--listen", "unix:/x"] },
      "--trust-forwarded-cert-from: loopback has no use: --listen is a Unix socket. Use unix.",
    ],
    [{ flags: ["--admin-tls-cert", "cert"] }, "--admin-tls-cert: needs --admin-tls-key as well."],
    [
      { flags: ["--admin-token-file", "tokens"] },
      "--admin-token-file: tokens:2: expected sha256:HEX NAME[,GROUP...], where `watch-fanout token hash` prints the first part.",
    ],
    [
      { flags: ["--admin", "0.0.0.0:1"] },
      "--admin: 0.0.0.0 may be reached from other machines, and they can read the metrics without TLS " +
        "(--admin-tls-cert, --admin-tls-key) and tokens (--admin-token-file). Set these, listen on 127.0.0.1, or " +
        "accept it with --insecure.",
    ],
    [
      { flags: ["--admin", "0.0.0.0:1", "--admin-tls-cert", "cert", "--admin-tls-key", "key"] },
      /^--admin: 0\.0\.0\.0 may be reached .* without tokens \(--admin-token-file\)\. Set these/,
    ],
    [
      { flags: ["--listen-socket-mode", "0660"] },
      "--listen-socket-mode: needs --listen unix:PATH as well.",
    ],
    [
      { flags: ["--trust-forwarded-cert-from", "proxy"] },
      "--trust-forwarded-cert-from: proxy is the name of a certificate, which needs --tls-client-ca.",
    ],
    [
      { flags: [...etcd, "--upstream", "root:1"] },
      "--upstream: excludes --etcd: a service follows either etcd or another watch-fanout. Remove one of them.",
    ],
    [
      { flags: ["--upstream", "127.0.0.1:50051"] },
      "--upstream: 127.0.0.1:50051 is the address of --listen: a relay can't follow itself. Give that of a server nearer to etcd.",
    ],
    ...[
      ["127.0.0.1:7", "localhost:7"],
      ["[::]:7", "127.0.0.1:7"],
      ["0.0.0.0:7", "[::1]:7"],
    ].map(([listen = "", address = ""]): [Given, RegExp] => [
      { flags: ["--listen", listen, "--upstream", address, "--insecure", "on"] },
      /^--upstream: \S+ is the address of --listen: a relay can't follow itself\./,
    ]),
    [
      { flags: ["--cache-dir", "caches"] },
      "--cache-dir: needs --etcd or --upstream: the embedded store is in memory with its caches.",
    ],
    [
      { flags: ["--upstream-token-file", "tokens"] },
      "--upstream-token-file: needs --upstream as well.",
    ],
    [
      { flags: [...upstream, "--upstream-tls-cert", "cert", "--upstream-tls-key", "key"] },
      "--upstream-tls-cert: needs --upstream-tls-ca as well.",
    ],
    [
      { flags: [...upstream, "--upstream-tls-ca", "nonsense"] },
      /^--upstream-tls-ca: "nonsense" has no certificate in PEM: /,
    ],
    [
      { flags: [...upstream, "--upstream-token-file", "gone"] },
      /^--upstream-token-file: "gone" can't be read: /,
    ],
    [
      { flags: ["--workers", "2", "--audit-log", "-"] },
      "--audit-log: standard output can't be shared by 2 workers, whose lines would mix. Give a file.",
    ],
    [
      { flags: ["--workers", "4", "--max-streams-per-identity", "3"] },
      "--max-streams-per-identity: 3 can't be divided between 4 workers. Give at least 4, or fewer --workers.",
    ],
    [
      {
        flags: [...etcd, "--etcd-api", "on", "--etcd-username", "u"],
        env: { WATCH_FANOUT_ETCD_PASSWORD: "p" },
      },
      '--etcd-username: beside --etcd-api every caller of ListWatchService and WriteService would have the rights of "u" ' +
        "in etcd, without a credential of etcd. Leave these services out with --watch-fanout-api off, or set --policy to " +
        "say what each caller may do.",
    ],
    [
      { flags: [...etcd, "--watch-fanout-api", "off"] },
      "--watch-fanout-api: off leaves nothing to serve without --etcd-api. Set --etcd-api, or remove this option.",
    ],
    [
      {
        flags: [...etcd, "--etcd-api", "on", "--watch-fanout-api", "off", "--web-origin", "*"],
      },
      "--web-origin: needs --watch-fanout-api as well.",
    ],
    [{ flags: ["--etcd-ca", "cert"] }, "--etcd-ca: needs --etcd as well."],
    [{ yaml: "etcd-username: root" }, "wf.yaml:1: etcd-username: needs --etcd as well."],
    [
      { flags: [...upstream, "--etcd-api", "on", "--etcd-history-key", "key"] },
      "--etcd-history-key: needs --etcd as well.",
    ],
    [
      {
        flags: [...upstream, "--etcd-api", "on", "--etcd-username", "u"],
        env: { WATCH_FANOUT_ETCD_PASSWORD: "p" },
      },
      /^--etcd-username: beside --etcd-api every caller of ListWatchService/,
    ],
    [
      { flags: [...etcd, "--etcd-ca", "cert"] },
      "--etcd-ca: needs https:// endpoints; write https:// in --etcd.",
    ],
    [{ flags: [...secure, "--etcd-key", "key"] }, "--etcd-key: needs --etcd-cert as well."],
    [
      { flags: [...etcd, "--data", "a.db"] },
      "--data: excludes --etcd: it is of the embedded store. Remove one of them.",
    ],
    [
      { flags: [...upstream], env: { WATCH_FANOUT_DATA_HISTORY: "1h" } },
      "WATCH_FANOUT_DATA_HISTORY: excludes --upstream: it is of the embedded store. Remove one of them.",
    ],
    [
      { flags: ["--data", ":memory:", "--data-sync", "off"] },
      "--data-sync: has no effect with --data :memory:. Give a file, or leave it out.",
    ],
    [
      { flags: ["--data-bytes", "1KiB"] },
      "--data-bytes: 1024 bytes are too few. Give at least 1MiB.",
    ],
    [
      { flags: ["--data-history-bytes", "2MiB", "--data-bytes", "1MiB"] },
      "--data-history-bytes: 2097152 bytes are more than --data-bytes, which is 1048576.",
    ],
    [
      { flags: [...etcd, "--etcd-api", "on", "--etcd-api-namespace", "ns/"] },
      '--resource: the prefix must begin with that of --etcd-api-namespace, "ns/".',
    ],
    [
      { flags: ["--etcd", "http://etcd", "--resource", "a=ns/a", "--etcd-api-namespace", "ns/"] },
      "--etcd-api-namespace: needs --etcd-api as well.",
    ],
    [
      { flags: [...etcd, "--advertise-client-url", "http://a"] },
      "--advertise-client-url: needs --etcd-api as well.",
    ],
    [
      { flags: [...etcd, "--etcd-username", "root"] },
      "--etcd-username: needs a password as well: --etcd-password-file or WATCH_FANOUT_ETCD_PASSWORD.",
    ],
    [
      { flags: [...etcd], env: { WATCH_FANOUT_ETCD_PASSWORD: "hush" } },
      "WATCH_FANOUT_ETCD_PASSWORD: needs --etcd-username as well.",
    ],
    [
      {
        flags: [...etcd, "--etcd-username", "root", "--etcd-password-file", "nonsense"],
        env: { WATCH_FANOUT_ETCD_PASSWORD: "hush" },
      },
      "--etcd-password-file: is given as well as WATCH_FANOUT_ETCD_PASSWORD; use one of them.",
    ],
    [
      { flags: ["--listen", "127.0.0.1:8080"] },
      "--admin: is the same address as --listen; gRPC needs its own port.",
    ],
    [
      { flags: ["--event-window-min-events", "200000"] },
      "--event-window-min-events: 200000 is more than --event-window-max-events, which is 100000.",
    ],
  ]);
});

test("all problems are reported at once", () => {
  const problems = problemsOf({
    flags: ["--listen", "x", "--log-level", "loud"],
    env: { WATCH_FANOUT_NOPE: "1" },
    yaml: "nope: 1\nadmin: y",
  });
  const places = problems.map((problem) => problem.split(": ", 1)[0]);
  expect(places.sort()).toEqual([
    "--listen",
    "--log-level",
    "WATCH_FANOUT_NOPE",
    "wf.yaml:1",
    "wf.yaml:2",
  ]);
});

describe("a password is never reported", () => {
  const report = (given: Given): string => problemsOf({ files, ...given }).join("\n");

  test.each<[string, Given]>([
    ["that is not text", { flags: [...etcd], yaml: "etcd-password: [hush-hush]" }],
    ["without a user", { flags: [...etcd], yaml: "etcd-password: hush-hush" }],
    ["without etcd", { env: { WATCH_FANOUT_ETCD_PASSWORD: "hush-hush" } }],
    ["in the URL", { flags: ["--etcd", "http://root:hush-hush@etcd", "--resource", "a="] }],
  ])("%s", (_what, given) => {
    expect(report(given)).not.toBe("");
    expect(report(given)).not.toContain("hush-hush");
  });
});

test("a very long value is cut in its message", () => {
  const [problem = ""] = problemsOf({ flags: ["--listen", "x".repeat(100_000)] });
  expect(problem.length).toBeLessThan(1_000);
});

test("two addresses with port 0 are different", () => {
  expect(
    load({ flags: ["--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0"] }).admin.listen.port,
  ).toBe(0);
});
