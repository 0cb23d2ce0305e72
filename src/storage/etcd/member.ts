import { type ChannelCredentials, connectivityState, credentials, Metadata } from "@grpc/grpc-js";
import { Host } from "etcd3/lib/connection-pool.js";
import { abortable } from "../../abort.ts";
import { oldestVersion, UnsupportedEtcdError } from "./errors.ts";
import type {
  RangeRequest,
  RawClients,
  StatusResponse,
  UnaryMethod,
  WatchCall,
} from "./messages.ts";
import { type DecodedRange, decodePastWatch, decodeRange, decodeWatch } from "./responses.ts";

/** PEM. */
export interface EtcdTls {
  /** Undefined: the authorities that Node.js trusts. */
  readonly ca?: Buffer | undefined;
  readonly client?: { readonly cert: Buffer; readonly key: Buffer } | undefined;
}

/** When a call has to be done, and what ends it before. */
export interface CallLimits {
  /** Milliseconds of the time of day, which is what gRPC takes. */
  readonly deadline: number;
  readonly signal?: AbortSignal | undefined;
}

/**
 * What etcd3 and gRPC leave as it is otherwise: a dead peer would be noticed by nobody, lists beyond
 * 4 MiB would fail, a peer that was away would be tried again only minutes later, and a TXT record
 * could turn on retries. A ping every 7 s is less than what etcd takes for an attack (5 s, its
 * --grpc-keepalive-min-time).
 */
const channelOptions = {
  "grpc.keepalive_time_ms": 7_000,
  "grpc.keepalive_timeout_ms": 3_000,
  "grpc.max_receive_message_length": -1,
  "grpc.max_send_message_length": -1,
  "grpc.initial_reconnect_backoff_ms": 100,
  "grpc.min_reconnect_backoff_ms": 100,
  "grpc.max_reconnect_backoff_ms": 1_000,
  "grpc.service_config_disable_resolution": 1,
};

/**
 * One member of etcd: etcd3's host (its channels and raw clients) and the calls on it. etcd3's own pool
 * is passed by, because it repeats writes, can't be told to give up, has no way to add metadata to a
 * watch, and closes the channel under all calls when one of them takes too long.
 */
export class Member {
  /** As configured, as in "http://127.0.0.1:2379". */
  readonly endpoint: string;
  readonly #host: Host;
  /** For watches from the past, on a connection of their own: only there an answer is bounded. */
  readonly #past: Host;
  #supported: Promise<void> | undefined;

  /** `pastAnswerBytes`: how large an answer to a watch from the past may be; a larger one ends it before it is held. */
  constructor(endpoint: string, tls: EtcdTls | undefined, pastAnswerBytes: number) {
    this.endpoint = endpoint;
    const secured = channelCredentials(endpoint, tls);
    this.#host = new Host(endpoint, secured, channelOptions);
    this.#past = new Host(endpoint, secured, {
      ...channelOptions,
      "grpc.max_receive_message_length": pastAnswerBytes,
    });
  }

  call<Service extends keyof RawClients, Request, Response>(
    service: Service,
    method: (client: RawClients[Service]) => UnaryMethod<Request, Response>,
    request: Request,
    metadata: Metadata,
    limits: CallLimits,
  ): Promise<Response> {
    const client = this.#client(service);
    return this.#send(method(client).bind(client), request, metadata, limits);
  }

  /** Asks for keys, and decodes the answer by hand. */
  range(request: RangeRequest, metadata: Metadata, limits: CallLimits): Promise<DecodedRange> {
    const client = this.#client("KV");
    const { path, requestSerialize } = client.range;
    return this.#send<RangeRequest, DecodedRange>(
      (...call) => client.makeUnaryRequest(path, requestSerialize, decodeRange, ...call),
      request,
      metadata,
      limits,
    );
  }

  /** A stream of watches, whose answers are decoded by hand; those from the past as they are taken. */
  watch(metadata: Metadata, isPast: boolean): WatchCall {
    const client = this.#client("Watch", isPast ? this.#past : this.#host);
    const { path, requestSerialize } = client.watch;
    const decode = isPast ? decodePastWatch : decodeWatch;
    return client.makeBidiStreamRequest(path, requestSerialize, decode, metadata);
  }

  #send<Request, Response>(
    method: UnaryMethod<Request, Response>,
    request: Request,
    metadata: Metadata,
    limits: CallLimits,
  ): Promise<Response> {
    const { deadline, signal } = limits;
    return new Promise((resolve, reject) => {
      if (signal?.aborted === true) return reject(signal.reason);
      const abort = (): void => {
        reject(signal?.reason);
        call.cancel();
      };
      const call = method(request, metadata, { deadline }, (error, response) => {
        signal?.removeEventListener("abort", abort);
        if (response === undefined) reject(error);
        else resolve(response);
      });
      signal?.addEventListener("abort", abort, { once: true });
    });
  }

  /**
   * Resolves to whether a connection stands, and tries to make one first: what is sent then may arrive,
   * what was not sent can't have. Rejects with the signal's reason.
   */
  connected({ deadline, signal }: CallLimits): Promise<boolean> {
    const channel = this.#host.getServiceClient("KV").getChannel();
    const connected = new Promise<boolean>((resolve) => {
      const look = (): void => {
        const state = channel.getConnectivityState(true);
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
   * Resolves if this member's version is one that can be relied on, and asks it only once.
   *
   * @throws UnsupportedEtcdError, or why the member does not answer
   */
  supported({ deadline, signal }: CallLimits): Promise<void> {
    // Not ended by this caller's signal: others may wait for the same answer.
    this.#supported ??= this.#checkVersion({ deadline }).catch((error: unknown) => {
      this.#supported = undefined;
      throw error;
    });
    return abortable(this.#supported, signal);
  }

  close(): void {
    this.#host.close();
    this.#past.close();
  }

  async #checkVersion(limits: CallLimits): Promise<void> {
    const { version } = await this.call<"Maintenance", Record<string, never>, StatusResponse>(
      "Maintenance",
      (client) => client.status,
      {},
      new Metadata(),
      limits,
    );
    if (!isSupported(version)) throw new UnsupportedEtcdError(this.endpoint, version);
  }

  #client<Service extends keyof RawClients>(
    service: Service,
    host: Host = this.#host,
  ): RawClients[Service] {
    return host.getServiceClient(service) as unknown as RawClients[Service];
  }
}

/** Release candidates of the oldest version are older than it. */
function isSupported(version: string): boolean {
  const numbers = /^(\d+)\.(\d+)\.(\d+)(-rc|-alpha|-beta)?/.exec(version);
  if (numbers === null) return false;
  const [, major, minor, patch, pre] = numbers;
  const order = `${major}.${minor}.${patch}`.localeCompare(oldestVersion, "en", { numeric: true });
  return order > 0 || (order === 0 && pre === undefined);
}

function channelCredentials(endpoint: string, tls: EtcdTls | undefined): ChannelCredentials {
  if (!endpoint.startsWith("https:")) return credentials.createInsecure();
  return credentials.createSsl(
    tls?.ca ?? null,
    tls?.client?.key ?? null,
    tls?.client?.cert ?? null,
  );
}
