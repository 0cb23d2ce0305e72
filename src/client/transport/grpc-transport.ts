import {
  type CallOptions,
  type ClientReadableStream,
  credentials,
  Client as GrpcClient,
  Metadata,
} from "@grpc/grpc-js";
import { closeForGood } from "../../base/grpc-channel.ts";
import type { Channel } from "../../base/grpc-codes.ts";
import type { Method } from "../../wire/methods.ts";
import type { Address } from "./address.ts";
import type { ClientCertificates } from "./client-certificates.ts";
import {
  type CallHeaders,
  endlessMs,
  type RequestStream,
  type Transport,
  type TransportSettings,
} from "./transport.ts";

/** Maximum pause before a connection is tried again, in milliseconds. */
const maxReconnectMs = 3_000;

/** Maximum time that a keepalive ping may take, in milliseconds. */
const maxKeepaliveTimeoutMs = 5_000;

interface GrpcSettings extends TransportSettings {
  /** Undefined: without TLS. */
  readonly certificates: ClientCertificates | undefined;
  /** The name that the server's certificate must have, if it is not the host of the address. */
  readonly serverName: string | undefined;
}

/** A connection of grpc-js, which is opened at the first call. */
export class GrpcTransport implements Transport {
  readonly channel: Channel;
  readonly #client: GrpcClient;
  readonly #certificates: ClientCertificates | undefined;
  /** The last headers, which most calls share, as grpc-js takes them. */
  #headers: CallHeaders | undefined;
  #metadata = new Metadata();

  constructor(address: Address, settings: GrpcSettings) {
    this.#certificates = settings.certificates;
    this.#client = clientOf(address, settings);
    this.channel = this.#client.getChannel();
  }

  async refresh(signal: AbortSignal | undefined): Promise<void> {
    await this.#certificates?.refreshFor(this.channel, signal);
  }

  unary<Request, Response>(
    method: Method<Request, Response>,
    request: Request,
    headers: CallHeaders,
    timeoutMs: number,
    signal: AbortSignal | undefined,
  ): Promise<Response> {
    return new Promise((resolve, reject) => {
      if (signal?.aborted === true) return reject(signal.reason);
      const deadline = timeoutMs < endlessMs ? Date.now() + timeoutMs : Infinity;
      const options: CallOptions = { deadline };
      const call = this.#client.makeUnaryRequest(
        method.path,
        encoderOf(method),
        method.decode,
        request,
        this.#metadataOf(headers),
        options,
        (error, response) => {
          signal?.removeEventListener("abort", cancel);
          if (signal?.aborted === true) reject(signal.reason);
          else if (error !== null) reject(error);
          else if (response === undefined) reject(new Error(`${method.path} has no response.`));
          else resolve(response);
        },
      );
      const cancel = (): void => call.cancel();
      signal?.addEventListener("abort", cancel);
    });
  }

  serverStream<Request, Response>(
    method: Method<Request, Response>,
    request: Request,
    headers: CallHeaders,
    signal: AbortSignal,
  ): AsyncGenerator<Response, void, void> {
    const begin = () =>
      this.#client.makeServerStreamRequest(
        method.path,
        encoderOf(method),
        method.decode,
        request,
        this.#metadataOf(headers),
      );
    return responses(begin, signal);
  }

  bidiStream<Request, Response>(
    method: Method<Request, Response>,
    onBegun: (requests: RequestStream<Request>) => void,
    headers: CallHeaders,
    signal: AbortSignal,
  ): AsyncGenerator<Response, void, void> {
    const begin = () => {
      const call = this.#client.makeBidiStreamRequest(
        method.path,
        encoderOf(method),
        method.decode,
        this.#metadataOf(headers),
      );
      onBegun(call);
      return call;
    };
    return responses(begin, signal);
  }

  close(): void {
    closeForGood(this.#client);
  }

  #metadataOf(headers: CallHeaders): Metadata {
    if (headers === this.#headers) return this.#metadata;
    const metadata = new Metadata();
    for (const [name, value] of Object.entries(headers)) metadata.set(name, value);
    this.#headers = headers;
    this.#metadata = metadata;
    return metadata;
  }
}

/** The encoder of a method, as grpc-js takes it. */
function encoderOf<Request>({ encode }: Method<Request, unknown>): (request: Request) => Buffer {
  // In Node.js it returns a Buffer.
  return encode as (request: Request) => Buffer;
}

async function* responses<Response>(
  begin: () => ClientReadableStream<Response>,
  signal: AbortSignal,
): AsyncGenerator<Response, void, void> {
  if (signal.aborted) return;
  const call = begin();
  const cancel = (): void => call.cancel();
  signal.addEventListener("abort", cancel);
  // Cancelling emits an error, even after the loop was left and no listener remains.
  call.on("error", () => {});
  try {
    for await (const response of call) yield response as Response;
  } catch (error) {
    if (!signal.aborted) throw error;
  } finally {
    signal.removeEventListener("abort", cancel);
    call.cancel();
  }
}

function clientOf(
  address: Address,
  { certificates, serverName, keepaliveMs, maxMessageBytes }: GrpcSettings,
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
