import type { ServiceDefinition } from "@grpc/grpc-js";
import { type Decoded, strictDeserializer } from "../../wire/decode.ts";
import { descriptors } from "../../wire/descriptors.ts";
import type { NextRequest, ServerCall } from "./server-call.ts";

/** Handles the calls of a method with one request. */
export interface MethodHandler<Request> {
  /** Handles one call: sends its responses and ends it. Never throws. */
  readonly handle: (call: ServerCall, request: Request) => void;
  /**
   * Memory that a request takes while its call waits for a time slice, in bytes. Absent: calls of this method are
   * handled at once, since they take less time than to queue them.
   */
  readonly queuedBytes?: (request: Request) => number;
}

/** The handlers of a service's methods, by the method's name in the proto. */
export type ServiceHandlers = Readonly<Record<string, MethodHandler<never>>>;

/** A method with one request, and one response or a stream of them. */
export interface SingleRequestMethod extends MethodHandler<unknown> {
  readonly decode: (message: Uint8Array) => Decoded<unknown>;
}

/** A method with a stream of requests. */
export interface BidiMethod {
  /** The largest request, in bytes. */
  readonly maxRequestBytes: number;
  /** Handles one call. Never throws. */
  readonly converse: (call: ServerCall, next: NextRequest) => void;
}

/** Every method that the server implements, by its path, `/package.Service/Method`. */
export interface Methods {
  readonly single: ReadonlyMap<string, SingleRequestMethod>;
  readonly streaming: ReadonlyMap<string, BidiMethod>;
}

/** The methods of a service by their path. Throws if one of them has no handler. */
export function servedMethods(
  service: ServiceDefinition,
  handlers: ServiceHandlers,
): Map<string, SingleRequestMethod> {
  const methods = new Map<string, SingleRequestMethod>();
  for (const [name, { path }] of Object.entries(service)) {
    const handler = handlers[name] as MethodHandler<unknown> | undefined;
    if (handler === undefined) throw new Error(`The method ${path} has no handler.`);
    methods.set(path, { decode: decoderOf(path), ...handler });
  }
  return methods;
}

/** The decoder of a method's requests. Throws if the descriptor set does not have the method. */
export function decoderOf<T>(path: string): (message: Uint8Array) => Decoded<T> {
  const input = descriptors.inputs.get(path);
  if (input === undefined) {
    throw new Error(`${path} is not in the descriptor set. Run "npm run generate".`);
  }
  return strictDeserializer(input);
}
