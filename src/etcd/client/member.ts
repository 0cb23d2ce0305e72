import type { Readable } from "node:stream";
import { getCACertificates } from "node:tls";
import {
  type ChannelCredentials,
  Client,
  connectivityState,
  credentials,
  experimental,
  InterceptingCall,
  type Interceptor,
  Metadata,
} from "@grpc/grpc-js";
import { type ICallable, MaintenanceClient } from "etcd3";
import { CertificateStore } from "../../base/certificate-store.ts";
import { beginClientSpan } from "../../base/client-span.ts";
import { closeForGood, stateOnceConnecting } from "../../base/grpc-channel.ts";
import { abortable } from "../../base/wait.ts";
import { type DecodedRange, decodeRange } from "../wire/range-response.ts";
import { decodePastWatch, decodeWatch } from "../wire/watch-response.ts";
import type { Bearer } from "./call-headers.ts";
import { isDenied, oldestVersion, UnsupportedEtcdError } from "./errors.ts";
import {
  type KeepAliveCall,
  keepAliveMethod,
  methodOf,
  type RangeRequest,
  rangeMethod,
  type WatchCall,
  watchMethod,
} from "./requests.ts";

/** PEM. */
export interface EtcdTls {
  /** Undefined: the certificate authorities that Node.js trusts. */
  readonly ca?: Buffer | undefined;
  readonly client?: { readonly cert: Buffer; readonly key: Buffer } | undefined;
  /** Whether etcd's certificate is checked. Default: true. */
  readonly isVerified?: boolean | undefined;
}

/** The keepalive pings on a connection to a member. */
export interface Keepalive {
  /** Time without a response after which a ping is sent, in milliseconds. */
  readonly timeMs: number;
  /** How long its answer may take before the connection is closed, in milliseconds. */
  readonly timeoutMs: number;
  /** Whether connections without open calls get pings, too. */
  readonly withoutCalls: boolean;
}

/** Below the rate that etcd takes for an attack: one per 5 s (its --grpc-keepalive-min-time), and none without calls. */
export const defaultKeepalive: Keepalive = { timeMs: 7_000, timeoutMs: 3_000, withoutCalls: false };

/** The certificates of all members, which can be replaced while they are in use. */
export interface MemberCertificates {
  /** Has authorities. */
  readonly store: CertificateStore;
  readonly hasClientCertificate: boolean;
  /** Whether etcd's certificate is checked. */
  readonly isVerified: boolean;
}

/** The certificates that are used first. Throws an Error with a sentence if they are unusable. */
export function memberCertificates({ ca, client, isVerified = true }: EtcdTls): MemberCertificates {
  const authorities = ca ?? Buffer.from(getCACertificates("default").join("\n"));
  return {
    store: new CertificateStore(authorities, client),
    hasClientCertificate: client !== undefined,
    isVerified,
  };
}

/** The deadline of a call, and the signal that ends it earlier. */
export interface CallLimits {
  /** In milliseconds since the epoch, as gRPC takes it. */
  readonly deadline: number;
  readonly signal?: AbortSignal | undefined;
}

/**
 * With gRPC's defaults a dead peer goes unnoticed, lists beyond 4 MiB fail, a peer that was unreachable is tried again
 * only minutes later, and a TXT record can enable retries.
 */
const channelOptions = {
  "grpc.max_receive_message_length": -1,
  "grpc.max_send_message_length": -1,
  "grpc.initial_reconnect_backoff_ms": 100,
  "grpc.min_reconnect_backoff_ms": 100,
  "grpc.max_reconnect_backoff_ms": 1_000,
  "grpc.service_config_disable_resolution": 1,
};

/** The numbers of watches among which the memory for responses about the past is divided. */
const shares = [1, 4, 16];

/**
 * One member of etcd: its connections and calls. Each call is sent once, within its limits, and fails with gRPC's own
 * error. etcd3's raw clients send through `callable`; Range and Watch are sent here.
 *
 * Why not through etcd3's own connection pool: docs/decisions/reading-etcd.md.
 */
export class Member {
  /** As configured, such as "http://127.0.0.1:2379". */
  readonly endpoint: string;
  readonly #bearer: Bearer | undefined;
  readonly #client: Client;
  /**
   * For watches from the past, by the number of those that are read at the same time: on connections of their own, as the
   * maximum size of a message is set per connection.
   */
  readonly #past: readonly { readonly upTo: number; readonly client: Client }[];
  #supported: Promise<void> | undefined;
  #withholdsProgress = false;

  /**
   * `pastResponseBytes`: maximum size of the responses to all watches from the past that are read at the same time. One
   * above its watch's share ends the watch before it is received.
   */
  constructor(
    endpoint: string,
    certificates: MemberCertificates | undefined,
    pastResponseBytes: number,
    keepalive: Keepalive = defaultKeepalive,
    bearer?: Bearer,
  ) {
    this.endpoint = endpoint;
    this.#bearer = bearer;
    const address = endpoint.replace(/^https?:\/\//, "");
    const secured = channelCredentials(endpoint, certificates);
    const ofChannel = {
      ...channelOptions,
      "grpc.keepalive_time_ms": keepalive.timeMs,
      "grpc.keepalive_timeout_ms": keepalive.timeoutMs,
      "grpc.keepalive_permit_without_calls": keepalive.withoutCalls ? 1 : 0,
    };
    this.#client = new Client(address, secured, ofChannel);
    this.#past = shares.map((upTo) => {
      const maxBytes = Math.floor(pastResponseBytes / upTo);
      const options = { ...ofChannel, "grpc.max_receive_message_length": maxBytes };
      return { upTo, client: new Client(address, secured, options) };
    });
  }

  /** What an etcd3 raw client needs, for calls with this metadata and within these limits. */
  callable(metadata: Metadata, limits: CallLimits): ICallable<Member> {
    return {
      exec: (service, name, request) => {
        const method = methodOf(service, name);
        // Only the raw client's types say which response belongs to which method.
        const decode = method.responseDeserialize as (bytes: Buffer) => never;
        return this.#send({ ...method, decode }, request, metadata, limits);
      },
      withConnection: () => Promise.reject(new Error("Only Member.watch opens streams.")),
      markFailed: () => undefined,
      callOptionsFactory: undefined,
    };
  }

  /** Reads keys, and decodes the response by hand. */
  range(request: RangeRequest, metadata: Metadata, limits: CallLimits): Promise<DecodedRange> {
    return this.#send({ ...rangeMethod, decode: decodeRange }, request, metadata, limits);
  }

  /**
   * Opens a watch stream, whose responses are decoded by hand. With `past` it is one of this many watches from the past,
   * whose events are decoded one by one when they are read.
   */
  watch(metadata: Metadata, past: number | undefined): WatchCall {
    const { path, requestSerialize } = watchMethod;
    const [client, decode] =
      past === undefined ? [this.#client, decodeWatch] : [this.#clientFor(past), decodePastWatch];
    this.#identify(metadata);
    const pausedRead = new PausedRead();
    const interceptors = [pausedRead.interceptor];
    const call = client.makeBidiStreamRequest(path, requestSerialize, decode, metadata, {
      interceptors,
    });
    pausedRead.attach(call);
    return call;
  }

  /** Opens a stream of lease renewals. */
  keepAlive(metadata: Metadata): KeepAliveCall {
    const { path, requestSerialize, responseDeserialize } = keepAliveMethod;
    this.#identify(metadata);
    return this.#client.makeBidiStreamRequest(
      path,
      requestSerialize,
      responseDeserialize,
      metadata,
    );
  }

  #identify(metadata: Metadata): void {
    const token = this.#bearer?.();
    if (token !== undefined) metadata.set("authorization", `Bearer ${token}`);
  }

  #clientFor(past: number): Client {
    return this.#past.find(({ upTo }) => past <= upTo)?.client ?? this.#client;
  }

  #send<Request, Response>(
    { path, requestSerialize, decode }: SentMethod<Request, Response>,
    request: Request,
    metadata: Metadata,
    { deadline, signal }: CallLimits,
  ): Promise<Response> {
    return new Promise((resolve, reject) => {
      if (signal?.aborted === true) return reject(signal.reason);
      this.#identify(metadata);
      const span = beginClientSpan(path, this.endpoint, metadata);
      const abort = (): void => {
        reject(signal?.reason);
        call.cancel();
      };
      const call = this.#client.makeUnaryRequest<Request, Response>(
        path,
        requestSerialize,
        decode,
        request,
        metadata,
        { deadline },
        (error, response) => {
          signal?.removeEventListener("abort", abort);
          span?.ended(error);
          if (response === undefined) reject(error);
          else resolve(response);
        },
      );
      signal?.addEventListener("abort", abort, { once: true });
    });
  }

  /**
   * Connects if necessary, and resolves to whether the member is connected: a request that is sent then may arrive, one
   * that was not sent can't have. Rejects with the signal's reason.
   */
  connected({ deadline, signal }: CallLimits): Promise<boolean> {
    const channel = this.#client.getChannel();
    const connected = new Promise<boolean>((resolve) => {
      const look = (): void => {
        const state = stateOnceConnecting(channel);
        if (state === connectivityState.IDLE || state === connectivityState.CONNECTING) {
          channel.watchConnectivityState(state, deadline, (error) => {
            if (error !== undefined || signal?.aborted === true) resolve(false);
            else look();
          });
        } else {
          resolve(state === connectivityState.READY);
        }
      };
      look();
    });
    return abortable(connected, signal);
  }

  /**
   * Resolves if this member's version is supported. Asks the member once.
   *
   * @throws UnsupportedEtcdError, or why the member does not respond
   */
  supported({ deadline, signal }: CallLimits): Promise<void> {
    // Without this caller's signal, as others may wait for the same response.
    this.#supported ??= this.#checkVersion({ deadline }).catch((error: unknown) => {
      this.#supported = undefined;
      throw error;
    });
    return abortable(this.#supported, signal);
  }

  /**
   * Whether this member reports the progress of a watch only from the watch's start revision on, as etcd does since
   * 3.6 (`progressIfSync` in its mvcc package). On an idle store, a watch from the next revision then reports nothing.
   * Known once `supported` has resolved.
   */
  get withholdsProgressBeforeStart(): boolean {
    return this.#withholdsProgress;
  }

  /** The connection of all calls but the watches from the past, for ServerReachability. */
  async channel(): Promise<ReturnType<Client["getChannel"]>> {
    return this.#client.getChannel();
  }

  close(): void {
    closeForGood(this.#client);
    for (const { client } of this.#past) closeForGood(client);
  }

  async #checkVersion(limits: CallLimits): Promise<void> {
    const version = await this.#version(limits);
    if (version !== undefined && isBefore(version, oldestVersion)) {
      throw new UnsupportedEtcdError(this.endpoint, version);
    }
    // A watch-fanout behaves as etcd 3.6, in front of any etcd.
    const isOld = version !== undefined && isBefore(version, "3.6.0-alpha");
    this.#withholdsProgress = this.#bearer !== undefined || !isOld;
  }

  /** Undefined if this member does not report it: since 3.6, etcd with authentication reports it to root only. */
  async #version(limits: CallLimits): Promise<string | undefined> {
    const maintenance = new MaintenanceClient(this.callable(new Metadata(), limits));
    try {
      return (await maintenance.status()).version;
    } catch (error) {
      if (isDenied(error)) return undefined;
      throw error;
    }
  }
}

/**
 * Makes grpc-js hold at most one further message of a call that is paused: its streams read 16 messages ahead, whatever
 * the size of each. Used for one call.
 */
class PausedRead {
  #call: Readable | undefined;
  /** Passes on the message that has come since the call was paused. */
  #held: (() => void) | undefined;

  /** grpc-js reads the next message only once the one before has been passed on. */
  readonly interceptor: Interceptor = (options, nextCall) =>
    new InterceptingCall(nextCall(options), {
      start: (metadata, _listener, next) => {
        next(metadata, {
          onReceiveMessage: (message, passOn) => {
            if (this.#call?.isPaused() === true) this.#held = () => passOn(message);
            else passOn(message);
          },
        });
      },
      // The status of a call waits for its messages.
      cancel: (next) => {
        this.#passOn();
        next();
      },
    });

  /** The call that has the interceptor. */
  attach(call: Readable): void {
    this.#call = call;
    call.on("resume", () => this.#passOn());
  }

  #passOn(): void {
    const held = this.#held;
    this.#held = undefined;
    held?.();
  }
}

/** A unary method: its path, and the encoder and decoder of its messages. */
interface SentMethod<Request, Response> {
  readonly path: string;
  readonly requestSerialize: (request: Request) => Buffer;
  readonly decode: (bytes: Buffer) => Response;
}

/** Whether a version is older than another one. Pre-releases are older than their release; what is no version is old. */
function isBefore(version: string, other: string): boolean {
  const numbers = /^(\d+\.\d+\.\d+)(-rc|-alpha|-beta)?/.exec(version);
  const [, release = "", pre] = /^(\d+\.\d+\.\d+)(-rc|-alpha|-beta)?/.exec(other) ?? [];
  if (numbers === null) return true;
  const [, own = "", ownPre] = numbers;
  const order = own.localeCompare(release, "en", { numeric: true });
  return order < 0 || (order === 0 && ownPre !== undefined && pre === undefined);
}

function channelCredentials(
  endpoint: string,
  certificates: MemberCertificates | undefined,
): ChannelCredentials {
  if (!endpoint.startsWith("https:")) return credentials.createInsecure();
  if (certificates === undefined) return credentials.createSsl();
  const { store, hasClientCertificate, isVerified } = certificates;
  return experimental.createCertificateProviderChannelCredentials(
    store,
    hasClientCertificate ? store : null,
    { rejectUnauthorized: isVerified },
  );
}
