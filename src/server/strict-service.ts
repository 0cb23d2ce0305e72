import type { ServiceDefinition } from "@grpc/grpc-js";
import { strictDeserializer } from "../wire/decode.ts";
import { descriptors } from "../wire/descriptors.ts";

/**
 * A service as the server registers it: requests reach the handlers as `Decoded`, after they have been
 * checked byte by byte.
 */
export function strictService(service: ServiceDefinition): ServiceDefinition {
  const methods = Object.entries(service).map(([name, method]) => {
    const input = descriptors.inputs.get(method.path);
    if (input === undefined) {
      throw new Error(`${method.path} is not in the descriptor set. Run "npm run generate".`);
    }
    return [name, { ...method, requestDeserialize: strictDeserializer(input) }] as const;
  });
  return Object.fromEntries(methods);
}
