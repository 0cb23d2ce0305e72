import type { Channel } from "../../base/grpc-codes.ts";
import type { Method } from "../../wire/methods.ts";

/** The headers of a call, by lower-case names. Never modified: calls share them. */
export type CallHeaders = Readonly<Record<string, string>>;

/** The requests of a call that has a stream of them. */
export interface RequestStream<Request> {
  write(request: Request): unknown;
  /** Whether the next request should wait for "drain". */
  readonly writableNeedDrain: boolean;
  on(event: "drain", listener: () => void): unknown;
}

/** Timeouts from here on, in milliseconds, mean no deadline. Timers overflow at 2^31 ms, and gRPC rounds up before that. */
export const endlessMs = 20 * 86_400_000;

/**
 * The connection to one server: gRPC in Node.js (GrpcTransport), Connect by `fetch` in browsers (FetchTransport). Calls fail
 * with a CallError. Nothing is sent before the first call.
 */
export interface Transport {
  readonly channel: Channel;
  /** What is waited for before a call, such as certificates that are read again. Rejects only with the signal's reason. */
  refresh?(signal: AbortSignal | undefined): Promise<void>;
  /**
   * Makes one unary call. Rejects with a CallError, or with the signal's reason when it is aborted. The deadline is sent to
   * the server.
   */
  unary<Request, Response>(
    method: Method<Request, Response>,
    request: Request,
    headers: CallHeaders,
    timeoutMs: number,
    signal: AbortSignal | undefined,
  ): Promise<Response>;
  /**
   * Makes one call with a stream of responses. They are read as fast as the loop consumes them: unread responses block the
   * server by flow control. Throws a CallError. Leaving the loop or aborting the signal cancels the call; it then ends without
   * an error.
   */
  serverStream<Request, Response>(
    method: Method<Request, Response>,
    request: Request,
    headers: CallHeaders,
    signal: AbortSignal,
  ): AsyncGenerator<Response, void, void>;
  /**
   * The same with a stream of requests, which `onBegun` gets. Nothing is sent before the first one. Without
   * `Platform.hasRequestStreams`, those that are written as it begins are sent as one body, and none later.
   */
  bidiStream<Request, Response>(
    method: Method<Request, Response>,
    onBegun: (requests: RequestStream<Request>) => void,
    headers: CallHeaders,
    signal: AbortSignal,
  ): AsyncGenerator<Response, void, void>;
  close(): void;
}

/** A server as it was passed to `connect`. */
export interface ServerAddress {
  /** As it was configured. */
  readonly text: string;
  /** The certificate of the client in PEM. Undefined: it connects without one, or the browser knows it. */
  certificate?(): Buffer | undefined;
  open(): Transport;
}

/** What the transports of all servers of a client have in common. */
export interface TransportSettings {
  /** Interval of keepalive pings on a connection in use, in milliseconds. */
  readonly keepaliveMs: number;
  /** Maximum size of a received message, in bytes. */
  readonly maxMessageBytes: number;
}

/** Begins a call with a stream of responses, which are read by the caller's loop. */
export type BeginCall<Response> = (
  transport: Transport,
  headers: CallHeaders,
  signal: AbortSignal,
) => AsyncGenerator<Response, void, void>;

/** Begins a call with one request. */
export function withRequest<Request, Response>(
  method: Method<Request, Response>,
  request: Request,
): BeginCall<Response> {
  return (transport, headers, signal) => transport.serverStream(method, request, headers, signal);
}

/** Begins a call with a stream of requests, which `onBegun` gets. Nothing is sent before the first one. */
export function withRequests<Request, Response>(
  method: Method<Request, Response>,
  onBegun: (requests: RequestStream<Request>) => void,
): BeginCall<Response> {
  return (transport, headers, signal) => transport.bidiStream(method, onBegun, headers, signal);
}
