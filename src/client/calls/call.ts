import {
  type CallOptions,
  type ClientReadableStream,
  type ClientWritableStream,
  connectivityState,
  type Client as GrpcClient,
  type Metadata,
} from "@grpc/grpc-js";
import type { MethodDefinition } from "@grpc/proto-loader";
import { stateOnceConnecting } from "../../base/server-reachability.ts";

/** A method of a service definition, with its request and response types. */
export type Method<Request, Response> = MethodDefinition<Request, object, object, Response>;

/**
 * Timeouts from here on, in milliseconds, mean no deadline. Timers overflow at 2^31 ms, and gRPC rounds up before it
 * sets them.
 */
const endlessMs = 20 * 86_400_000;

/**
 * Resolves to true when the channel is connected or has failed to connect, so that a call is sent or fails
 * immediately; to false after `timeoutMs`. A call on a channel that connects waits for its whole timeout, even if
 * other servers would respond. `isPatient`: a channel that has failed is not decided, as it connects again by itself.
 */
export async function isDecided(
  client: GrpcClient,
  timeoutMs: number,
  isPatient: boolean,
): Promise<boolean> {
  const channel = client.getChannel();
  const deadline = Date.now() + Math.min(timeoutMs, endlessMs);
  for (;;) {
    const state = stateOnceConnecting(channel);
    const { READY, TRANSIENT_FAILURE, SHUTDOWN } = connectivityState;
    const hasFailed = state === TRANSIENT_FAILURE && !isPatient;
    if (state === READY || state === SHUTDOWN || hasFailed) return true;
    const isLate = await new Promise<boolean>((resolve) => {
      channel.watchConnectivityState(state, deadline, (late) => resolve(late !== undefined));
    });
    if (isLate) return false;
  }
}

/** Whether a channel has a connection. */
export function isConnected(client: GrpcClient): boolean {
  return client.getChannel().getConnectivityState(false) === connectivityState.READY;
}

/** Whether a channel connects, or waits to connect again after a failure. */
export function isConnecting(client: GrpcClient): boolean {
  const state = client.getChannel().getConnectivityState(false);
  return state === connectivityState.CONNECTING || state === connectivityState.TRANSIENT_FAILURE;
}

/**
 * Makes one unary call. Rejects with a ServiceError of gRPC, or with the signal's reason when it is aborted. The
 * deadline is sent to the server.
 */
export function callUnary<Request, Response>(
  client: GrpcClient,
  method: Method<Request, Response>,
  request: Request,
  metadata: Metadata,
  timeoutMs: number,
  signal: AbortSignal | undefined,
): Promise<Response> {
  return new Promise((resolve, reject) => {
    if (signal?.aborted === true) return reject(signal.reason);
    const deadline = timeoutMs < endlessMs ? Date.now() + timeoutMs : Infinity;
    const options: CallOptions = { deadline };
    const call = client.makeUnaryRequest(
      method.path,
      method.requestSerialize,
      method.responseDeserialize,
      request,
      metadata,
      options,
      (error, response) => {
        signal?.removeEventListener("abort", cancel);
        if (signal?.aborted === true) reject(signal.reason);
        else if (error !== null) reject(error);
        else if (response === undefined) reject(new Error(`${method.path} returned no response.`));
        else resolve(response);
      },
    );
    const cancel = (): void => call.cancel();
    signal?.addEventListener("abort", cancel);
  });
}

/** Begins a call with a stream of responses, which are read by the caller's loop. */
export type BeginCall<Response> = (
  client: GrpcClient,
  metadata: Metadata,
) => ClientReadableStream<Response>;

/** Begins a call with one request. */
export function withRequest<Request, Response>(
  method: Method<Request, Response>,
  request: Request,
): BeginCall<Response> {
  return (client, metadata) =>
    client.makeServerStreamRequest(
      method.path,
      method.requestSerialize,
      method.responseDeserialize,
      request,
      metadata,
    );
}

/** Begins a call with a stream of requests, which `onBegun` gets. Nothing is sent before the first one. */
export function withRequests<Request, Response>(
  method: Pick<Method<Request, Response>, "path" | "requestSerialize" | "responseDeserialize">,
  onBegun: (requests: ClientWritableStream<Request>) => void,
): BeginCall<Response> {
  return (client, metadata) => {
    const call = client.makeBidiStreamRequest(
      method.path,
      method.requestSerialize,
      method.responseDeserialize,
      metadata,
    );
    onBegun(call);
    return call;
  };
}

/**
 * Makes one call with a stream of responses. They are read as fast as the loop consumes them: unread responses block
 * the server by flow control. Throws a ServiceError of gRPC. Leaving the loop or aborting the signal cancels the
 * call; it then ends without an error.
 */
export async function* callStreaming<Response>(
  client: GrpcClient,
  begin: BeginCall<Response>,
  metadata: Metadata,
  signal: AbortSignal,
): AsyncGenerator<Response, void, void> {
  if (signal.aborted) return;
  const call = begin(client, metadata);
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
