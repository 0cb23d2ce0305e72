import { credentials, Client as GrpcClient } from "@grpc/grpc-js";
import { WatchFanoutError } from "../errors.ts";
import { type Address, parseAddress } from "./address.ts";

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

/** A server, and the connection to it. */
export interface Endpoint {
  readonly grpc: GrpcClient;
  /** As it was written. */
  readonly address: string;
}

/**
 * The servers that a client may turn to, one connection each, opened when first needed. One of them is
 * current; when it fails the next one becomes so.
 */
export class Endpoints {
  readonly #addresses: readonly Address[];
  readonly #tls: ClientTls | undefined;
  readonly #open: (Endpoint | undefined)[] = [];
  #current = 0;
  #closed = false;

  /** Throws INVALID_REQUEST of addresses that are none, and of a certificate without its key. */
  constructor(addresses: readonly string[], tls: ClientTls | undefined) {
    this.#addresses = addresses.map(parseAddress);
    this.#tls = tls;
    if (this.#addresses.length === 0) throw parseError("No address is given.");
    if (tls !== undefined && (tls.cert === undefined) !== (tls.key === undefined)) {
      throw parseError("A client certificate and its key go together: give both or neither.");
    }
  }

  get count(): number {
    return this.#addresses.length;
  }

  /** The server to turn to now. Throws when closed. */
  current(): Endpoint {
    if (this.#closed) throw new WatchFanoutError("INVALID_REQUEST", "This client is closed.");
    const known = this.#open[this.#current];
    if (known !== undefined) return known;
    const address = this.#addresses[this.#current];
    if (address === undefined) throw parseError("No address is given.");
    const endpoint = { grpc: open(address, this.#tls), address: address.text };
    this.#open[this.#current] = endpoint;
    return endpoint;
  }

  /** Turns to the next server, unless another call that failed at `failed` has done so already. */
  leave(failed: GrpcClient): void {
    if (this.#open[this.#current]?.grpc !== failed) return;
    this.#current = (this.#current + 1) % this.#addresses.length;
  }

  close(): void {
    this.#closed = true;
    for (const endpoint of this.#open) endpoint?.grpc.close();
  }
}

function open(address: Address, tls: ClientTls | undefined): GrpcClient {
  const channelCredentials =
    tls === undefined
      ? credentials.createInsecure()
      : credentials.createSsl(tls.ca ?? null, tls.key ?? null, tls.cert ?? null);
  return new GrpcClient(address.target, channelCredentials, {
    // A response may hold one event of any size; the server keeps all others below 4 MiB.
    "grpc.max_receive_message_length": -1,
    "grpc.max_send_message_length": -1,
    // A connection that died without a word is noticed while a watch is open on it.
    "grpc.keepalive_time_ms": 30_000,
    "grpc.keepalive_timeout_ms": 10_000,
    // What is retried is for this client to say, not for a TXT record.
    "grpc.service_config_disable_resolution": 1,
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
