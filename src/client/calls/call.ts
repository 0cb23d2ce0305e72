import { type CallOptions, connectivityState, type Client as GrpcClient } from "@grpc/grpc-js";
import type { MethodDefinition } from "@grpc/proto-loader";

/** A method as the service definitions describe it: what goes in, what comes out. */
export type Method<Request, Response> = MethodDefinition<Request, object, object, Response>;

/**
 * From here on a call has no deadline, in milliseconds. Timers overflow at 2^31, and gRPC rounds up on its way
 * there.
 */
const endlessMs = 20 * 86_400_000;

/**
 * Resolves to whether it is decided within `timeoutMs` if there is a connection: a call then goes out, or fails
 * at once. Calls wait for that as long as they have time, however many other servers would answer.
 */
export async function isDecided(client: GrpcClient, timeoutMs: number): Promise<boolean> {
  const channel = client.getChannel();
  const deadline = Date.now() + Math.min(timeoutMs, endlessMs);
  for (;;) {
    const state = channel.getConnectivityState(true);
    const { READY, TRANSIENT_FAILURE, SHUTDOWN } = connectivityState;
    if (state === READY || state === TRANSIENT_FAILURE || state === SHUTDOWN) return true;
    const isLate = await new Promise<boolean>((resolve) => {
      channel.watchConnectivityState(state, deadline, (late) => resolve(late !== undefined));
    });
    if (isLate) return false;
  }
}

/**
 * One call with one answer. Rejects with gRPC's own ServiceError, or with the signal's reason once it
 * is aborted. The server is told of the deadline.
 */
export function callUnary<Request, Response>(
  client: GrpcClient,
  method: Method<Request, Response>,
  request: Request,
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
      options,
      (error, response) => {
        signal?.removeEventListener("abort", cancel);
        if (signal?.aborted === true) reject(signal.reason);
        else if (error !== null) reject(error);
        else if (response === undefined) reject(new Error(`${method.path} gave no answer.`));
        else resolve(response);
      },
    );
    const cancel = (): void => call.cancel();
    signal?.addEventListener("abort", cancel);
  });
}

/**
 * One call with a stream of answers, read as fast as the loop over it goes: what is not read holds the
 * server back. Throws gRPC's own ServiceError. Leaving the loop or aborting the signal cancels the
 * call; after that it finishes without an error.
 */
export async function* callStreaming<Request, Response>(
  client: GrpcClient,
  method: Method<Request, Response>,
  request: Request,
  signal: AbortSignal,
): AsyncGenerator<Response, void, void> {
  if (signal.aborted) return;
  const call = client.makeServerStreamRequest(
    method.path,
    method.requestSerialize,
    method.responseDeserialize,
    request,
  );
  const cancel = (): void => call.cancel();
  signal.addEventListener("abort", cancel);
  // Cancelling makes an error of it also after the loop has been left, when nobody listens any more.
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
