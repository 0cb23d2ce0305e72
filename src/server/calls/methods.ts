import type { ServiceDefinition } from "@grpc/grpc-js";
import type { Access } from "../../policy/access.ts";
import { type Decoded, strictDeserializer } from "../../wire/decode.ts";
import { descriptors } from "../../wire/descriptors.ts";
import type { WireStatus } from "../../wire/errors.ts";
import type { RefusedKind } from "../pressure/memory-pressure.ts";
import { refusedKindOf } from "../pressure/shed-kinds.ts";
import type { NextRequest, ServerCall } from "./server-call.ts";

/** Handles the calls of a method with one request. */
export interface MethodHandler<Request> {
  /**
   * Handles one call: sends its responses and ends it. Never throws. Returns the status if it has ended a stream at once,
   * instead of opening it.
   */
  readonly handle: (call: ServerCall, request: Request) => WireStatus | undefined;
  /**
   * What a request asks for, all of which its caller must have a right to. "open": the method needs no right, and shows
   * each caller only what it may know.
   */
  readonly access: ((request: Request) => Access) | "open";
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
  /** What its calls are refused as while memory is short. Absent: they are not refused. */
  readonly sheds?: RefusedKind | undefined;
  /** Its name in logs and metrics. */
  readonly name: string;
  /** Whether it has a stream of responses. */
  readonly isStreaming: boolean;
  readonly decode: (message: Uint8Array) => Decoded<unknown>;
}

/** A method with a stream of requests. It needs no right. */
export interface BidiMethod {
  /** Its name in logs and metrics. */
  readonly name: string;
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
  for (const [name, { path, responseStream }] of Object.entries(service)) {
    const handler = handlers[name] as MethodHandler<unknown> | undefined;
    if (handler === undefined) throw new Error(`The method ${path} has no handler.`);
    const facts = { name: methodOf(path), isStreaming: responseStream, sheds: refusedKindOf(path) };
    methods.set(path, { ...facts, decode: decoderOf(path), ...handler });
  }
  return methods;
}

/** A method's name in logs and metrics: its gRPC path without the leading slash. */
export function methodOf(path: string): string {
  return path.slice(1);
}

/** The decoder of a method's requests. Throws if the descriptor set does not have the method. */
export function decoderOf<T>(path: string): (message: Uint8Array) => Decoded<T> {
  const input = descriptors.inputs.get(path);
  if (input === undefined) {
    throw new Error(`${path} is not in the descriptor set. Run "npm run generate".`);
  }
  return strictDeserializer(input);
}
