import { Backoff } from "../../base/backoff.ts";
import type { Clock } from "../../base/clock.ts";
import { invalidRequest, type WatchFanoutError } from "../../base/errors.ts";
import { abortable } from "../../base/wait.ts";
import { isConnected, isConnecting, isDecided } from "../transport/connectivity.ts";
import type { ServerAddress, Transport } from "../transport/transport.ts";
import { ClosedError, notConnected } from "./call-failure.ts";

/** How long a failed server is ejected, if there are others. */
const ejectionBounds = { initialMs: 200, maxMs: 10_000 };

interface EndpointSettings {
  readonly clock: Clock;
  /** Numbers from 0 to below 1, for jitter. */
  readonly random: () => number;
}

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
  readonly #server: ServerAddress;
  readonly #settings: EndpointSettings;
  readonly #backoff: Backoff;
  #transport: Transport | undefined;
  #ejectedUntil = 0;
  /** Until when the server has asked to be left alone. */
  #askedUntil = 0;
  /** Number of failures that count: one for all that a failure of the server or of its connection ends. */
  #incidents = 0;
  #responses = 0;
  /** Whether nothing has come from it since its last failure. */
  #hasFailed = false;

  constructor(server: ServerAddress, settings: EndpointSettings) {
    this.address = server.text;
    this.#server = server;
    this.#settings = settings;
    this.#backoff = new Backoff(ejectionBounds, settings.random);
  }

  /**
   * The connection.
   * @internal
   */
  get transport(): Transport {
    this.#transport ??= this.#server.open();
    return this.#transport;
  }

  /**
   * Rejects with a CallFailure if there is no connection in time and no error either. `isPatient`: it waits after an error
   * too.
   * @internal
   */
  async connect(
    timeoutMs: number,
    signal: AbortSignal | undefined,
    isPatient: boolean = false,
  ): Promise<void> {
    const { transport, address } = this;
    await transport.refresh?.(signal);
    if (await abortable(isDecided(transport.channel, timeoutMs, isPatient), signal)) return;
    throw notConnected(address, timeoutMs);
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
    return (
      this.#hasFailed && this.#transport !== undefined && isConnecting(this.#transport.channel)
    );
  }

  /**
   * Whether the server has a connection and is not ejected.
   * @internal
   */
  get isReady(): boolean {
    return (
      this.ejectedForMs === 0 &&
      this.#transport !== undefined &&
      isConnected(this.#transport.channel)
    );
  }

  /** @internal */
  close(): void {
    this.#transport?.close();
  }
}

/**
 * The servers of a client, all replicas of one service, with one connection each. A call or watch goes to the server
 * with the fewest open ones of its kind, and among these in round-robin order. A server that has failed is ejected
 * for a while, and passed over until it has a connection again, unless that is true of all.
 */
export class Endpoints {
  /** All servers. */
  readonly all: readonly Endpoint[];
  #next: number;
  #isClosed = false;

  /** Throws INVALID_REQUEST for no server. */
  constructor(servers: readonly ServerAddress[], settings: EndpointSettings) {
    const { random } = settings;
    if (servers.length === 0) throw noAddress();
    this.all = servers.map((server) => new Endpoint(server, settings));
    // Clients with the same list of addresses must not all start at the same server.
    this.#next = Math.floor(random() * servers.length);
  }

  get count(): number {
    return this.all.length;
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
    const inTurn = [...this.all.slice(this.#next), ...this.all.slice(0, this.#next)];
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
    this.#next = (this.all.indexOf(best) + 1) % this.all.length;
    return best;
  }

  /** The servers that are not in `tried`, if all of these are unreachable; otherwise none. */
  unreachable(tried: ReadonlySet<Endpoint>): readonly Endpoint[] {
    const left = this.all.filter((endpoint) => !tried.has(endpoint));
    return left.every(({ isUnreachable }) => isUnreachable) ? left : [];
  }

  /** Whether a server is ready while another one is ejected. */
  get hasAlternative(): boolean {
    return this.all.some(isEjected) && this.all.some(({ isReady }) => isReady);
  }

  get isClosed(): boolean {
    return this.#isClosed;
  }

  /**
   * Another server that is not ejected, if possible not one in `tried`: of these the one with the fewest calls. Undefined
   * if all others are ejected.
   */
  other(than: Endpoint, tried: ReadonlySet<Endpoint> = new Set()): Endpoint | undefined {
    let best: Endpoint | undefined;
    for (const endpoint of this.all) {
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
    for (const endpoint of this.all) endpoint.close();
  }
}

/** Resolves once one of these servers, which have failed, has a connection, or none has in time. Rejects only with the signal's reason. */
export async function connectOneOf(
  servers: readonly Endpoint[],
  timeoutMs: number,
  signal: AbortSignal | undefined,
): Promise<void> {
  const connecting = servers.map(async (endpoint) => {
    await endpoint.connect(timeoutMs, signal, true);
    endpoint.connected();
  });
  await Promise.any(connecting).catch(() => signal?.throwIfAborted());
}

function noAddress(): WatchFanoutError {
  return invalidRequest("address", "No address was given.");
}

function isEjected({ ejectedForMs }: Endpoint): boolean {
  return ejectedForMs > 0;
}
