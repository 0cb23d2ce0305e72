import { isIP } from "node:net";
import { credentials, Client as GrpcClient } from "@grpc/grpc-js";
import { Backoff } from "../../base/backoff.ts";
import type { Clock } from "../../base/clock.ts";
import { invalidRequest, type WatchFanoutError } from "../../base/errors.ts";
import { isConnected, isConnecting } from "./call.ts";
import { ClosedError } from "./call-failure.ts";
import type { ClientCertificates } from "./client-certificates.ts";

/** How long a failed server is ejected, if there are others. */
const ejectionBounds = { initialMs: 200, maxMs: 10_000 };

/** The connection settings of all servers. */
interface EndpointSettings {
  /** Undefined: without TLS. */
  readonly certificates: ClientCertificates | undefined;
  /** The name that the server's certificate must have, if it is not the host of the address. */
  readonly serverName: string | undefined;
  /** Interval of keepalive pings on a connection in use, in milliseconds. */
  readonly keepaliveMs: number;
  /** Maximum size of a received message, in bytes. */
  readonly maxMessageBytes: number;
  readonly clock: Clock;
  /** Numbers from 0 to below 1, for jitter. */
  readonly random: () => number;
}

/** Maximum pause before a connection is tried again, in milliseconds. */
const maxReconnectMs = 3_000;

/** Maximum time that a keepalive ping may take, in milliseconds. */
const maxKeepaliveTimeoutMs = 5_000;

/** One server, and the connection to it, which is opened at first use. */
export class Endpoint {
  /** The address as it was configured. */
  readonly address: string;
  /** Number of calls in progress and of open watches. */
  readonly open = { calls: 0, watches: 0 };
  /**
   * For a relay: whether the server may be followed, as it has said since it last failed; undefined: not asked.
   * @internal
   */
  verified: Promise<void> | undefined;
  readonly #target: Address;
  readonly #settings: EndpointSettings;
  readonly #backoff: Backoff;
  #grpc: GrpcClient | undefined;
  #ejectedUntil = 0;
  /** Until when the server has asked to be left alone. */
  #askedUntil = 0;
  /** Number of failures that count: one for all that a failure of the server or of its connection ends. */
  #incidents = 0;
  #responses = 0;
  /** Whether nothing has come from it since its last failure. */
  #hasFailed = false;

  constructor(target: Address, settings: EndpointSettings) {
    this.address = target.text;
    this.#target = target;
    this.#settings = settings;
    this.#backoff = new Backoff(ejectionBounds, settings.random);
  }

  /**
   * The connection.
   * @internal
   */
  get grpc(): GrpcClient {
    this.#grpc ??= open(this.#target, this.#settings);
    return this.#grpc;
  }

  /**
   * How much longer this server is ejected, in milliseconds; 0 if it is not.
   * @internal
   */
  get ejectedForMs(): number {
    return Math.max(0, this.#ejectedUntil - this.#settings.clock.now());
  }

  /**
   * Number of failures so far. A call or stream reads it when it begins, for `failed`.
   * @internal
   */
  get incidents(): number {
    return this.#incidents;
  }

  /**
   * Number of responses so far: results, messages of streams, and errors after which other servers are not tried.
   * @internal
   */
  get responses(): number {
    return this.#responses;
  }

  /**
   * Counts an error that is the server's answer.
   * @internal
   */
  answered(): void {
    this.#responses++;
  }

  /**
   * Ejects the server after a failure of a call or stream that began after `incidents` failures. One that began before
   * the last failure belongs to the same incident, as the streams of one connection do: it does not eject the server
   * for longer, except for the delay that the server asks for, in milliseconds.
   * @internal
   */
  failed(incidents: number, retryDelayMs: number): void {
    const now = this.#settings.clock.now();
    this.verified = undefined;
    this.#hasFailed = true;
    this.#askedUntil = Math.max(this.#askedUntil, now + retryDelayMs);
    if (incidents === this.#incidents) {
      this.#incidents++;
      this.#ejectedUntil = now + this.#backoff.next();
    }
    this.#ejectedUntil = Math.max(this.#ejectedUntil, this.#askedUntil);
  }

  /**
   * Ends the ejection after a response.
   * @internal
   */
  responded(): void {
    this.#responses++;
    this.#hasFailed = false;
    this.#ejectedUntil = 0;
    this.#askedUntil = 0;
    this.#backoff.reset();
  }

  /**
   * Ends the ejection after a connection was made, except for the delay that the server asked for: it may still refuse.
   * @internal
   */
  connected(): void {
    this.#ejectedUntil = this.#askedUntil;
  }

  /**
   * Whether the server has failed and has no connection yet, which gRPC makes by itself.
   * @internal
   */
  get isUnreachable(): boolean {
    return this.#hasFailed && this.#grpc !== undefined && isConnecting(this.#grpc);
  }

  /**
   * Whether the server has a connection and is not ejected.
   * @internal
   */
  get isReady(): boolean {
    return this.ejectedForMs === 0 && this.#grpc !== undefined && isConnected(this.#grpc);
  }

  /** @internal */
  close(): void {
    this.#grpc?.close();
  }
}

/**
 * The servers of a client, all replicas of one service, with one connection each. A call or watch goes to the server
 * with the fewest open ones of its kind, and among these in round-robin order. A server that has failed is ejected
 * for a while, and passed over until it has a connection again, unless that is true of all.
 */
export class Endpoints {
  readonly #all: readonly Endpoint[];
  #next: number;
  #isClosed = false;

  /** Throws INVALID_REQUEST for invalid addresses. */
  constructor(addresses: readonly string[], settings: EndpointSettings) {
    const { random } = settings;
    if (addresses.length === 0) throw noAddress();
    this.#all = addresses.map((text) => new Endpoint(parseAddress(text), settings));
    // Clients with the same list of addresses must not all start at the same server.
    this.#next = Math.floor(random() * addresses.length);
  }

  get count(): number {
    return this.#all.length;
  }

  /**
   * Picks the server for the next call or watch, if possible not one in `tried`: `preferred`, if it is not ejected. Throws
   * when closed.
   */
  pick(
    kind: "calls" | "watches",
    tried: ReadonlySet<Endpoint> = new Set(),
    preferred?: Endpoint,
  ): Endpoint {
    if (this.#isClosed) throw new ClosedError("INVALID_REQUEST", "This client is closed.");
    const isUsable = preferred !== undefined && !tried.has(preferred);
    if (isUsable && preferred.ejectedForMs === 0) return preferred;
    const inTurn = [...this.#all.slice(this.#next), ...this.#all.slice(0, this.#next)];
    const left = inTurn.filter((endpoint) => !tried.has(endpoint));
    const [first, ...others] = left.length > 0 ? left : inTurn;
    if (first === undefined) throw noAddress();
    let best = first;
    for (const other of others) {
      const before =
        other.ejectedForMs - best.ejectedForMs ||
        Number(other.isUnreachable) - Number(best.isUnreachable) ||
        other.open[kind] - best.open[kind];
      if (before < 0) best = other;
    }
    this.#next = (this.#all.indexOf(best) + 1) % this.#all.length;
    return best;
  }

  /** The servers that are not in `tried`, if all of these are unreachable; otherwise none. */
  unreachable(tried: ReadonlySet<Endpoint>): readonly Endpoint[] {
    const left = this.#all.filter((endpoint) => !tried.has(endpoint));
    return left.every(({ isUnreachable }) => isUnreachable) ? left : [];
  }

  /** Whether a server is ready while another one is ejected. */
  get hasAlternative(): boolean {
    return this.#all.some(isEjected) && this.#all.some(({ isReady }) => isReady);
  }

  get isClosed(): boolean {
    return this.#isClosed;
  }

  /** All servers. */
  get all(): readonly Endpoint[] {
    return this.#all;
  }

  /**
   * Another server that is not ejected, if possible not one in `tried`: of these the one with the fewest calls. Undefined
   * if all others are ejected.
   */
  other(than: Endpoint, tried: ReadonlySet<Endpoint> = new Set()): Endpoint | undefined {
    let best: Endpoint | undefined;
    for (const endpoint of this.#all) {
      if (endpoint === than || isEjected(endpoint)) continue;
      const before =
        best === undefined
          ? -1
          : Number(tried.has(endpoint)) - Number(tried.has(best)) ||
            endpoint.open.calls - best.open.calls;
      if (before < 0) best = endpoint;
    }
    return best;
  }

  close(): void {
    this.#isClosed = true;
    for (const endpoint of this.#all) endpoint.close();
  }
}

function noAddress(): WatchFanoutError {
  return invalidRequest("address", "No address was given.");
}

function isEjected({ ejectedForMs }: Endpoint): boolean {
  return ejectedForMs > 0;
}

function open(
  address: Address,
  { certificates, serverName, keepaliveMs, maxMessageBytes }: EndpointSettings,
): GrpcClient {
  const channelCredentials = certificates?.channelCredentials() ?? credentials.createInsecure();
  return new GrpcClient(address.target, channelCredentials, {
    // Above gRPC's default of 4 MiB, since a response may hold one event that is larger.
    "grpc.max_receive_message_length": maxMessageBytes,
    "grpc.max_send_message_length": -1,
    // Detects a dead connection while a watch is open on it.
    "grpc.keepalive_time_ms": keepaliveMs,
    "grpc.keepalive_timeout_ms": Math.min(keepaliveMs, maxKeepaliveTimeoutMs),
    // This client decides what is retried, not a TXT record.
    "grpc.service_config_disable_resolution": 1,
    // If a name has several addresses, clients spread over them.
    "grpc.service_config": JSON.stringify({
      loadBalancingConfig: [{ pick_first: { shuffleAddressList: true } }],
    }),
    // grpc-js would share connections between clients, and also that another one has just failed to connect.
    "grpc.use_local_subchannel_pool": 1,
    "grpc.initial_reconnect_backoff_ms": 200,
    // Within 20 %. All calls and streams of this client wait for it after an outage.
    "grpc.max_reconnect_backoff_ms": maxReconnectMs,
    // By default a name is resolved every 30 s at most, also if no server remains at its addresses.
    "grpc.dns_min_time_between_resolutions_ms": maxReconnectMs,
    // A proxy for outgoing connections can't reach this machine.
    "grpc.enable_http_proxy": address.loopback ? 0 : 1,
    ...(serverName === undefined
      ? {}
      : {
          "grpc.ssl_target_name_override": serverName,
          "grpc.default_authority": serverName,
        }),
  });
}

/** A parsed server address. */
export interface Address {
  /** The address as it was configured. */
  readonly text: string;
  /** The address in grpc-js's form. */
  readonly target: string;
  /** Whether the server is on this machine. */
  readonly loopback: boolean;
}

/**
 * Parses `HOST:PORT`, `[IPV6]:PORT` and `unix:/path`. Throws INVALID_REQUEST with a message that says what to write
 * instead.
 */
export function parseAddress(text: string): Address {
  if (/^unix:.+/.test(text)) return { text, target: text, loopback: true };
  const scheme = /^([a-z][a-z0-9+.-]*):\/\//i.exec(text);
  if (scheme !== null) {
    const tls =
      scheme[1]?.toLowerCase() === "https" ? ", and set TLS by the option tls (--tls)" : "";
    throw invalidRequest(
      "address",
      `The address ${JSON.stringify(text)} has a scheme. Write HOST:PORT, for example 127.0.0.1:50051${tls}.`,
    );
  }
  const parts = /^(?:\[([^\]]+)\]|([^\s:/]+)):(\d{1,5})$/.exec(text);
  const host = parts?.[1] ?? parts?.[2] ?? "";
  const port = Number(parts?.[3]);
  const bracketed = parts?.[1] !== undefined;
  if (parts === null || port < 1 || port > 65_535 || (bracketed && isIP(host) !== 6)) {
    throw invalidRequest(
      "address",
      `${JSON.stringify(text)} is not an address. Write HOST:PORT, for example 127.0.0.1:50051 or [::1]:50051.`,
    );
  }
  const loopback = host === "localhost" || host === "::1" || /^127\./.test(host);
  return { text, target: target(host, port), loopback };
}

function target(host: string, port: number): string {
  const version = isIP(host);
  if (version === 6) return `ipv6:[${host}]:${port}`;
  return version === 4 ? `ipv4:${host}:${port}` : `dns:${host}:${port}`;
}
