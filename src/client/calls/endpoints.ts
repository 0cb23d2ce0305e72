import { credentials, Client as GrpcClient } from "@grpc/grpc-js";
import { Backoff } from "../../base/backoff.ts";
import type { Clock } from "../../base/clock.ts";
import { WatchFanoutError } from "../../base/errors.ts";
import { type Address, parseAddress } from "./address.ts";
import { ClosedError } from "./closed-error.ts";

/** How to prove who one is and whom one talks to. All are PEM. */
export interface ClientTls {
  /** Whom to trust; undefined: the certificate authorities that come with Node. */
  readonly ca?: Buffer | undefined;
  /** One's own certificate and its key, for servers that ask for one: both or neither. */
  readonly cert?: Buffer | undefined;
  readonly key?: Buffer | undefined;
  /** The name that the server's certificate has to be for, where it is not the address's host. */
  readonly serverName?: string | undefined;
}

/** How long a server that has failed is passed over, where there are others. */
const ejectionBounds = { initialMs: 200, maxMs: 10_000 };

/** How servers are connected to. */
export interface EndpointSettings {
  readonly tls: ClientTls | undefined;
  /** How often a connection that is in use is asked for a sign of life, in milliseconds. */
  readonly keepaliveMs: number;
  /** The largest message that is taken, in bytes. */
  readonly maxMessageBytes: number;
  readonly clock: Clock;
  /** Numbers from 0 to below 1, for jitter. */
  readonly random: () => number;
}

/** The longest that a sign of life may take, in milliseconds. */
const maxKeepaliveTimeoutMs = 10_000;

/** One server that a client may turn to, and the connection to it, which is opened when first needed. */
export class Endpoint {
  /** As it was written. */
  readonly address: string;
  /** How many calls wait for its answer, and how many watches are open on it. */
  readonly open = { calls: 0, watches: 0 };
  readonly #target: Address;
  readonly #settings: EndpointSettings;
  readonly #backoff: Backoff;
  #grpc: GrpcClient | undefined;
  #ejectedUntil = 0;

  constructor(target: Address, settings: EndpointSettings) {
    this.address = target.text;
    this.#target = target;
    this.#settings = settings;
    this.#backoff = new Backoff(ejectionBounds, settings.random);
  }

  get grpc(): GrpcClient {
    this.#grpc ??= open(this.#target, this.#settings);
    return this.#grpc;
  }

  /** How much longer to turn to others, in milliseconds; 0: it is as good as any. */
  get ejectedForMs(): number {
    return Math.max(0, this.#ejectedUntil - this.#settings.clock.now());
  }

  /** It can't answer now, and has asked to be left alone for so long. */
  failed(retryDelayMs: number): void {
    const delayMs = Math.max(this.#backoff.next(), retryDelayMs);
    this.#ejectedUntil = this.#settings.clock.now() + delayMs;
  }

  answered(): void {
    this.#ejectedUntil = 0;
    this.#backoff.reset();
  }

  close(): void {
    this.#grpc?.close();
  }
}

/**
 * The servers that a client may turn to, all replicas of one service, with one connection each. Calls and
 * watches are spread: each goes to the one that has the fewest of its kind open, and of these to the next in
 * turn. One that has failed is passed over for a while, unless all have.
 */
export class Endpoints {
  readonly #all: readonly Endpoint[];
  #next: number;
  #isClosed = false;

  /** Throws INVALID_REQUEST of addresses that are none, and of a certificate without its key. */
  constructor(addresses: readonly string[], settings: EndpointSettings) {
    const { tls, random } = settings;
    if (addresses.length === 0) throw parseError("No address is given.");
    if (tls !== undefined && (tls.cert === undefined) !== (tls.key === undefined)) {
      throw parseError("A client certificate and its key go together: give both or neither.");
    }
    this.#all = addresses.map((text) => new Endpoint(parseAddress(text), settings));
    // Many clients that were given the same list are not to begin at the same server.
    this.#next = Math.floor(random() * addresses.length);
  }

  get count(): number {
    return this.#all.length;
  }

  /** The server to turn to now, other than those in `tried` while there are others. Throws when closed. */
  pick(kind: "calls" | "watches", tried: ReadonlySet<Endpoint> = new Set()): Endpoint {
    this.#checkOpen();
    const inTurn = [...this.#all.slice(this.#next), ...this.#all.slice(0, this.#next)];
    const left = inTurn.filter((endpoint) => !tried.has(endpoint));
    const [first, ...others] = left.length > 0 ? left : inTurn;
    if (first === undefined) throw parseError("No address is given.");
    let best = first;
    for (const other of others) {
      const before = other.ejectedForMs - best.ejectedForMs || other.open[kind] - best.open[kind];
      if (before < 0) best = other;
    }
    this.#next = (this.#all.indexOf(best) + 1) % this.#all.length;
    return best;
  }

  /** Whether there is another server than this one that has not failed lately. */
  hasOther(than: Endpoint): boolean {
    return this.#all.some((endpoint) => endpoint !== than && endpoint.ejectedForMs === 0);
  }

  close(): void {
    this.#isClosed = true;
    for (const endpoint of this.#all) endpoint.close();
  }

  #checkOpen(): void {
    if (this.#isClosed) throw new ClosedError("INVALID_REQUEST", "This client is closed.");
  }
}

function open(
  address: Address,
  { tls, keepaliveMs, maxMessageBytes }: EndpointSettings,
): GrpcClient {
  const channelCredentials =
    tls === undefined
      ? credentials.createInsecure()
      : credentials.createSsl(tls.ca ?? null, tls.key ?? null, tls.cert ?? null);
  return new GrpcClient(address.target, channelCredentials, {
    // Above gRPC's 4 MiB: a response may hold one event that is larger than that.
    "grpc.max_receive_message_length": maxMessageBytes,
    "grpc.max_send_message_length": -1,
    // A connection that died without a word is noticed while a watch is open on it.
    "grpc.keepalive_time_ms": keepaliveMs,
    "grpc.keepalive_timeout_ms": Math.min(keepaliveMs, maxKeepaliveTimeoutMs),
    // What is retried is for this client to say, not for a TXT record.
    "grpc.service_config_disable_resolution": 1,
    // Of the addresses behind one name each client takes another.
    "grpc.service_config": JSON.stringify({
      loadBalancingConfig: [{ pick_first: { shuffleAddressList: true } }],
    }),
    "grpc.initial_reconnect_backoff_ms": 200,
    "grpc.max_reconnect_backoff_ms": 10_000,
    // A proxy for the outside is no way to this machine.
    "grpc.enable_http_proxy": address.loopback ? 0 : 1,
    ...(tls?.serverName === undefined
      ? {}
      : {
          "grpc.ssl_target_name_override": tls.serverName,
          "grpc.default_authority": tls.serverName,
        }),
  });
}

function parseError(message: string): WatchFanoutError {
  return new WatchFanoutError("INVALID_REQUEST", message, { field: "address" });
}
