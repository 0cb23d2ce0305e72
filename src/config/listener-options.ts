import { fileOption, type OptionDefinition } from "./option-definition.ts";
import {
  choice,
  cipherSuite,
  fileMode,
  listenAddress,
  tcpAddress,
  text,
  webOrigin,
} from "./value-types.ts";

/** The options of the ports: addresses, TLS, and callers that a certificate identifies. */
export const listenerOptions = {
  listen: {
    schema: listenAddress,
    value: "HOST:PORT|unix:PATH",
    help: "Address of the gRPC server, or the path of its Unix socket.",
    default: "127.0.0.1:50051",
  },
  "listen-socket-mode": {
    schema: fileMode,
    value: "MODE",
    help: "Permissions of the Unix socket, in octal. Processes that may write to it can connect.",
    default: "0600",
  },
  admin: {
    schema: tcpAddress,
    value: "HOST:PORT",
    help: "Address of /livez, /readyz and /metrics. If other machines can reach it, it needs --admin-tls-cert and --admin-token-file, or --insecure.",
    default: "127.0.0.1:8080",
  },
  "admin-tls-cert": {
    ...fileOption,
    help: "Certificate of the admin port with its chain. Enables HTTPS, with --admin-tls-key.",
  },
  "admin-tls-key": { ...fileOption, help: "Private key of --admin-tls-cert." },
  "admin-token-file": {
    ...fileOption,
    help: "Tokens of the admin port, as in --token-file. All but the status of /livez and /readyz then needs one.",
  },
  "tls-cert": {
    ...fileOption,
    help: "Server certificate with its chain. Enables TLS, with --tls-key.",
  },
  "tls-key": { ...fileOption, help: "Private key of --tls-cert." },
  "tls-client-ca": { ...fileOption, help: "Authorities of client certificates (mTLS)." },
  "tls-client-auth": {
    schema: choice(["require", "request", "off"]),
    value: "MODE",
    help:
      "Whether clients need a certificate: require refuses connections without a valid one, request accepts them, off " +
      "asks for none.",
    defaultHelp: "require with --tls-client-ca, otherwise off",
  },
  "tls-min-version": {
    schema: choice(["TLS1.2", "TLS1.3"]),
    value: "VERSION",
    help: "Lowest version on --listen, TLS1.2 or TLS1.3.",
    default: "TLS1.2",
  },
  "tls-max-version": {
    schema: choice(["TLS1.2", "TLS1.3"]),
    value: "VERSION",
    help: "Highest version on --listen, TLS1.2 or TLS1.3.",
    default: "TLS1.3",
  },
  "tls-cipher-suites": {
    schema: cipherSuite,
    list: "commas",
    value: "NAME[,NAME...]",
    help: "Cipher suites of TLS 1.2 on --listen, by IANA's names. HTTP/2 needs one with ECDHE and GCM or CHACHA20.",
    defaultHelp: "those of Node.js",
  },
  "web-origin": {
    schema: webOrigin,
    list: "commas",
    value: "ORIGIN[,ORIGIN...]",
    help: "Origins of web pages that may call by Connect and gRPC-Web, such as https://app.example.com; * for every page. Without it, no page may.",
  },
  "client-cert-name": {
    schema: choice(["spiffe", "dns", "cn"]),
    list: "commas",
    value: "KIND[,KIND...]",
    help: "The caller's name in a client certificate, the first that exists: spiffe (URI), dns (first DNS name) or cn (common name).",
    defaultHelp: "spiffe,dns,cn",
  },
  "trust-forwarded-cert-from": {
    schema: text,
    list: "commas",
    value: "PEER[,PEER...]",
    help: "Proxies whose x-forwarded-client-cert is believed: loopback (connections from this machine), unix (those to the Unix socket), or the name in a client certificate.",
  },
} as const satisfies Readonly<Record<string, OptionDefinition>>;
