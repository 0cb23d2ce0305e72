import type { CallOptions, Client as GrpcClient } from "@grpc/grpc-js";
import type { MethodDefinition } from "@grpc/proto-loader";

/** A method as the service definitions describe it: what goes in, what comes out. */
export type Method<Request, Response> = MethodDefinition<Request, object, object, Response>;

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
    const options: CallOptions = { deadline: Date.now() + timeoutMs };
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
