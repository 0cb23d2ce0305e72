import type { Server, ServiceDefinition } from "@grpc/grpc-js";
import { type Decoded, strictDeserializer } from "../wire/decode.ts";
import { descriptors } from "../wire/descriptors.ts";
import type { CallContext } from "./calls.ts";
import { streamingHandler, unaryHandler } from "./grpc-js-call.ts";
import type { ServedMethod, ServerCall } from "./server-call.ts";

/** How methods are served, by their name in the proto. None of these ever throws. */
export type Serving = Readonly<Record<string, (call: ServerCall, request: Decoded<never>) => void>>;

/** The methods of a service by their path, `/package.Service/Method`. */
export function servedMethods(
  service: ServiceDefinition,
  serving: Serving,
): Map<string, ServedMethod> {
  const methods = new Map<string, ServedMethod>();
  for (const [name, { path }] of Object.entries(service)) {
    const serve = serving[name] as ServedMethod["serve"] | undefined;
    const input = descriptors.inputs.get(path);
    if (serve === undefined || input === undefined) throw new Error(`${path} is not served.`);
    methods.set(path, { decode: strictDeserializer(input), serve });
  }
  return methods;
}

/** Has grpc-js serve the methods too, for the calls that are left to it. */
export function addToGrpcJs(
  server: Server,
  service: ServiceDefinition,
  methods: ReadonlyMap<string, ServedMethod>,
  context: CallContext,
): void {
  for (const definition of Object.values(service)) {
    const method = methods.get(definition.path);
    if (method === undefined) continue;
    const { path, responseStream } = definition;
    const handler = responseStream
      ? streamingHandler(method, context)
      : unaryHandler(method, context);
    const type = responseStream ? "serverStream" : "unary";
    server.register(path, handler, asIs, method.decode, type);
  }
}

/** Responses are encoded already. */
const asIs = (message: Buffer): Buffer => message;
