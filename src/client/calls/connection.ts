import { Backoff } from "../../base/backoff.ts";
import { type Clock, pause } from "../../base/clock.ts";
import { invalidRequest, type WatchFanoutError } from "../../base/errors.ts";
import { ServerReachability } from "../../base/server-reachability.ts";
import type { Reachability } from "../../base/stream-backoff.ts";
import { abortable } from "../../base/wait.ts";
import type { OwnCredentials } from "../../cache-files/user-of.ts";
import { listWatchMethods, type Method } from "../../wire/methods.ts";
import { isPathRefusal } from "../../wire/via.ts";
import type { Platform } from "../transport/platform.ts";
import type { BeginCall } from "../transport/transport.ts";
import {
  CallFailure,
  cancelled,
  closedMeanwhile,
  failureOf,
  isUnimplemented,
  notToFollow,
  streamEndedEarly,
} from "./call-failure.ts";
import { CallTelemetry, watchOpened } from "./call-telemetry.ts";
import { connectOneOf, type Endpoint, Endpoints } from "./endpoints.ts";
import { Hedging } from "./hedging.ts";
import type { ConnectOptions } from "./options.ts";
import { TokenSource } from "./token-source.ts";

/** The settings of one call. */
interface CallSettings {
  readonly signal?: AbortSignal | undefined;
  readonly timeoutMs?: number | undefined;
  /** The only server to ask. */
  readonly server?: Endpoint | undefined;
  /** The server to ask first. */
  readonly preferredServer?: Endpoint | undefined;
  /** The relays that the request has passed. */
  readonly via?: string | undefined;
  /**
   * Called when the outcome of an attempt of a write is unknown: the write has a request id, so it is sent again. Undefined: it
   * is not.
   */
  readonly onUnknown?: ((error: WatchFanoutError) => void) | undefined;
}

/** The call that an attempt is made for. */
interface AttemptedCall {
  /** The time that it has left, in milliseconds. */
  readonly left: number;
  readonly telemetry: CallTelemetry;
  readonly write: boolean;
  /** Ends the attempt when another one has the response. */
  readonly cancel: AbortSignal | undefined;
}

const retryBounds = { initialMs: 100, maxMs: 5_000 };
const defaultTimeoutMs = 10_000;
const defaultConnectTimeoutMs = 3_000;
const defaultKeepaliveMs = 10_000;
const defaultHedgingDelayMs = 1_000;
const defaultMaxAttempts = 4;

/** How long a server may take to say whether a relay may follow it, in milliseconds. */
const verifyTimeoutMs = 5_000;

/**
 * Room for an object and its previous state, each as large as etcd can be configured to accept. etcd recommends at
 * most 10 MiB.
 */
export const defaultMaxMessageBytes = 32 * 1024 ** 2;

/** Makes calls: selects a server, and retries where that is safe and can help. */
export class Connection {
  readonly #endpoints: Endpoints;
  /** What is known of the connections, for the pauses of streams. */
  readonly reachability: Reachability;
  readonly #hedging: Hedging;
  readonly #timeoutMs: number;
  readonly #connectTimeoutMs: number;
  readonly #maxAttempts: number;
  readonly #maxMessageBytes: number;
  readonly #clock: Clock;
  readonly #random: () => number;
  readonly #token: TokenSource;
  /** See ServerAddress. Servers of one client have the same. */
  readonly #certificate: () => Buffer | undefined;
  readonly #hasTls: boolean;
  /** See Platform. */
  readonly hasRequestStreams: boolean;
  readonly #isOfRelay: boolean;
  readonly #closing = new AbortController();

  constructor(options: ConnectOptions, platform: Platform, clock: Clock, random: () => number) {
    this.#clock = clock;
    this.#random = random;
    this.#token = new TokenSource(options.token, platform, clock, options.relayId);
    this.#isOfRelay = options.relayId !== undefined;
    this.#timeoutMs = positive("timeoutMs", options.timeoutMs ?? defaultTimeoutMs);
    this.#connectTimeoutMs = positive(
      "connectTimeoutMs",
      options.connectTimeoutMs ?? defaultConnectTimeoutMs,
    );
    this.#maxAttempts = positive("maxAttempts", options.maxAttempts ?? defaultMaxAttempts);
    const { keepaliveIntervalMs = defaultKeepaliveMs } = options;
    const keepaliveMs = positive("keepaliveIntervalMs", keepaliveIntervalMs);
    const { maxMessageBytes = defaultMaxMessageBytes } = options;
    this.#maxMessageBytes = positive("maxMessageBytes", maxMessageBytes);
    this.hasRequestStreams = platform.hasRequestStreams;
    this.#hasTls = options.tls !== undefined;
    const settings = { keepaliveMs, maxMessageBytes: this.#maxMessageBytes };
    const servers = platform.servers(options, settings, clock);
    this.#certificate = () => servers[0]?.certificate?.();
    this.#endpoints = new Endpoints(servers, { clock, random });
    this.reachability = this.#observed(clock);
    const hedgingDelayMs = positive(
      "hedgingDelayMs",
      options.hedgingDelayMs ?? defaultHedgingDelayMs,
    );
    this.#hedging = new Hedging(this.#endpoints, hedgingDelayMs, clock);
  }

  /**
   * What a call presents now, by which the server decides what it returns. Rejects with a CallFailure if there is no token in
   * time, and with the signal's reason.
   */
  async credentials(signal: AbortSignal): Promise<OwnCredentials> {
    const token = await this.#token.token(this.#timeoutMs, signal);
    return { token, certificate: this.#certificate() };
  }

  read<Request, Response>(
    method: Method<Request, Response>,
    request: Request,
    settings: CallSettings,
  ): Promise<Response> {
    return this.#call(method, request, settings, false);
  }

  write<Request, Response>(
    method: Method<Request, Response>,
    request: Request,
    settings: CallSettings,
  ): Promise<Response> {
    return this.#call(method, request, settings, true);
  }

  /**
   * Opens one stream of responses, at the server with the fewest watches. Throws a CallFailure when it ends, unless the
   * signal is aborted. `onServer` is called before the call begins.
   */
  async *stream<Response>(
    begin: BeginCall<Response>,
    signal: AbortSignal,
    onServer: (server: Endpoint) => void,
  ): AsyncGenerator<Response, void, void> {
    const endpoint = this.#endpoints.pick("watches");
    const { address, open, incidents } = endpoint;
    const ended = watchOpened(address);
    let failure: CallFailure | undefined;
    open.watches++;
    try {
      await endpoint.connect(this.#connectTimeoutMs, signal);
      await this.#verify(endpoint, signal);
      onServer(endpoint);
      const headers = await this.#token.headers(this.#timeoutMs, signal);
      for await (const response of begin(endpoint.transport, headers, signal)) {
        endpoint.responded();
        yield response;
      }
      if (!signal.aborted) throw streamEndedEarly(address);
    } catch (error) {
      if (signal.aborted) return;
      failure = this.streamFailure(endpoint, incidents, error);
      throw failure;
    } finally {
      open.watches--;
      ended(failure);
    }
  }

  /**
   * Maps why a stream, or one watch of it, has ended. It began after `incidents` failures of its server, which is ejected
   * if another one may serve.
   */
  streamFailure(endpoint: Endpoint, incidents: number, error: unknown): CallFailure {
    const failure = failureOf(error, this.#callAt(endpoint.address, false));
    if (failure.elsewhere) endpoint.failed(incidents, failure.retryDelayMs);
    return this.#endpoints.other(endpoint) === undefined ? failure : failure.withoutDelay();
  }

  /** Whether there are several servers. */
  get hasSeveral(): boolean {
    return this.#endpoints.count > 1;
  }

  /** Aborted when the connection is closed, so that pauses between retries end. */
  get closing(): AbortSignal {
    return this.#closing.signal;
  }

  #observed(clock: Clock): ServerReachability {
    const endpoints = this.#endpoints;
    const servers = endpoints.all.map((endpoint) => ({
      channel: async () => {
        if (!endpoints.isClosed) await endpoint.transport.refresh?.(undefined);
        return endpoints.isClosed ? undefined : endpoint.transport.channel;
      },
      onConnected: () => endpoint.connected(),
    }));
    return new ServerReachability({
      ...{ servers: () => servers, hasAlternative: () => endpoints.hasAlternative, clock },
    });
  }

  close(): void {
    this.#closing.abort();
    this.#endpoints.close();
  }

  async #call<Request, Response>(
    method: Method<Request, Response>,
    request: Request,
    settings: CallSettings,
    write: boolean,
  ): Promise<Response> {
    const telemetry = new CallTelemetry(this.#clock, method.path);
    try {
      const response = await this.#persist(method, request, settings, write, telemetry);
      telemetry.responded();
      return response;
    } catch (error) {
      telemetry.failed(error);
      throw error;
    }
  }

  /**
   * Tries each server once, then again after a pause, until one responds, a failure is not retryable, or the time or
   * the attempts are used up. Then it throws the last failure. If one has failed, and no other is left but those that have
   * failed to connect, waits once for one of them: grpc-js connects after a pause, and fails calls meanwhile, although the
   * server may be back.
   */
  async #persist<Request, Response>(
    method: Method<Request, Response>,
    request: Request,
    settings: CallSettings,
    write: boolean,
    telemetry: CallTelemetry,
  ): Promise<Response> {
    const { signal, server, preferredServer, onUnknown } = settings;
    const end = this.#clock.now() + positive("timeoutMs", settings.timeoutMs ?? this.#timeoutMs);
    const left = (): number => end - this.#clock.now();
    const backoff = new Backoff(retryBounds, this.#random);
    const tried = new Set<Endpoint>();
    let before: CallFailure | undefined;
    let hasWaited = false;
    for (let attempt = 1; ; attempt++) {
      const isAnother = tried.size > 0 && !hasWaited && server === undefined;
      const lost = isAnother ? this.#endpoints.unreachable(tried) : [];
      if (lost.length > 0) {
        hasWaited = true;
        await connectOneOf(lost, Math.min(left(), this.#connectTimeoutMs), signal);
      }
      const endpoint = server ?? this.#endpoints.pick("calls", tried, preferredServer);
      telemetry.attempt(endpoint.address, before);
      // The repetition of a write whose server hangs needs a part of the time.
      const parts = onUnknown !== undefined && attempt < this.#maxAttempts ? 2 : 1;
      const attemptAt = (at: Endpoint, cancel?: AbortSignal) => {
        const attempted = { left: left() / parts, telemetry, write, cancel };
        return this.#attempt(at, method, request, attempted, settings);
      };
      const maxCopies = write || server !== undefined ? 0 : this.#maxAttempts - attempt;
      const onCopy = (at: Endpoint): void => {
        attempt++;
        tried.add(at);
        telemetry.hedged(at.address);
      };
      const result =
        maxCopies > 0 && this.#hedging.isEnabled
          ? await this.#hedging.read({ first: endpoint, attempt: attemptAt, maxCopies, onCopy })
          : await attemptAt(endpoint);
      if (!(result instanceof CallFailure)) return result;
      before = result;
      const isUnknown = write && result.error.reason === "OUTCOME_UNKNOWN";
      if (isUnknown) onUnknown?.(result.error);
      const isRepeated = isUnknown && onUnknown !== undefined && !this.closing.aborted;
      const again = write ? isRepeated || result.writeAgain : result.readAgain;
      if (!again || attempt >= this.#maxAttempts) throw result.error;
      tried.add(endpoint);
      const others = server === undefined && tried.size < this.#endpoints.count;
      const delayMs = others ? 0 : Math.max(backoff.next(), result.retryDelayMs);
      if (delayMs >= left()) throw result.error;
      if (others) continue;
      tried.clear();
      await pause(this.#clock, delayMs, signal, this.closing);
      signal?.throwIfAborted();
    }
  }

  async #attempt<Request, Response>(
    endpoint: Endpoint,
    method: Method<Request, Response>,
    request: Request,
    { left: timeoutMs, telemetry, write, cancel }: AttemptedCall,
    { signal, via }: CallSettings,
  ): Promise<Response | CallFailure> {
    const { address, open, incidents } = endpoint;
    const end = this.#clock.now() + timeoutMs;
    const stop = new AbortController();
    const onStop = (): void => stop.abort();
    const stops = [signal, this.closing, cancel];
    for (const each of stops) each?.addEventListener("abort", onStop);
    let isSent = false;
    open.calls++;
    try {
      if (signal?.aborted === true || this.closing.aborted) onStop();
      const others = this.#endpoints.count > 1;
      const connectMs = others ? Math.min(timeoutMs, this.#connectTimeoutMs) : timeoutMs;
      await endpoint.connect(connectMs, stop.signal);
      if (method.path !== listWatchMethods.Resources.path) {
        await this.#verify(endpoint, stop.signal);
      }
      const headers = await this.#token.headers(end - this.#clock.now(), stop.signal, via);
      const left = end - this.#clock.now();
      isSent = true;
      const traced = telemetry.traced(headers);
      const response = await endpoint.transport.unary(method, request, traced, left, stop.signal);
      endpoint.responded();
      return response;
    } catch (error) {
      if (signal?.aborted === true) throw signal.reason;
      if (this.closing.aborted) return closedMeanwhile(address, write && isSent);
      if (cancel?.aborted === true) return cancelled(address);
      const failure = failureOf(error, this.#callAt(address, write));
      if (failure.elsewhere) endpoint.failed(incidents, failure.retryDelayMs);
      else endpoint.answered();
      return failure;
    } finally {
      open.calls--;
      for (const each of stops) each?.removeEventListener("abort", onStop);
    }
  }

  /**
   * For a relay: rejects with a CallFailure unless the server reports that the relay may follow it. A server is asked at its
   * first use, and again once it has failed.
   */
  async #verify(endpoint: Endpoint, signal: AbortSignal): Promise<void> {
    if (!this.#isOfRelay) return;
    if (endpoint.verified === undefined) {
      const asked = this.#askToFollow(endpoint);
      endpoint.verified = asked;
      asked.catch(() => {
        if (endpoint.verified === asked) endpoint.verified = undefined;
      });
    }
    await abortable(endpoint.verified, signal);
  }

  async #askToFollow({ transport, address }: Endpoint): Promise<void> {
    const { Resources } = listWatchMethods;
    try {
      const headers = await this.#token.headers(verifyTimeoutMs, this.closing);
      const request = { after_name: "", check_path: true };
      await transport.unary(Resources, request, headers, verifyTimeoutMs, this.closing);
    } catch (error) {
      if (this.closing.aborted) throw closedMeanwhile(address, false);
      const failure = failureOf(error, this.#callAt(address, false));
      const { error: why } = failure;
      throw isPathRefusal(why) || isUnimplemented(why) ? notToFollow(why, address) : failure;
    }
  }

  #callAt(address: string, write: boolean) {
    const security = { hasTls: this.#hasTls, isOfRelay: this.#isOfRelay };
    return { address, write, maxMessageBytes: this.#maxMessageBytes, security };
  }
}

function positive(field: string, value: number): number {
  if (value > 0) return value;
  throw invalidRequest(field, `${field} is ${value}: it must be above 0.`);
}
