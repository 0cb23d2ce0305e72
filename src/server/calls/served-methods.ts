import type { ServiceDefinition } from "@grpc/grpc-js";
import { type Decoded, strictDeserializer } from "../../wire/decode.ts";
import { descriptors } from "../../wire/descriptors.ts";
import type { ServedMethod, ServerCall } from "./server-call.ts";

/** How methods are served, by their name in the proto. None of these ever throws. */
export type ServiceHandlers = Readonly<
  Record<string, (call: ServerCall, request: Decoded<never>) => void>
>;

/** The methods of a service by their path, `/package.Service/Method`. */
export function servedMethods(
  service: ServiceDefinition,
  serving: ServiceHandlers,
): Map<string, ServedMethod> {
  const methods = new Map<string, ServedMethod>();
  for (const [name, { path }] of Object.entries(service)) {
    const serve = serving[name] as ServedMethod["serve"] | undefined;
    if (serve === undefined) throw new Error(`${path} is not served.`);
    methods.set(path, { decode: decoderOf(path), serve });
  }
  return methods;
}

/** What reads the requests of a method. */
export function decoderOf<T>(path: string): (message: Uint8Array) => Decoded<T> {
  const input = descriptors.inputs.get(path);
  if (input === undefined) {
    throw new Error(`${path} is not in the descriptor set. Run "npm run generate".`);
  }
  return strictDeserializer(input);
}
