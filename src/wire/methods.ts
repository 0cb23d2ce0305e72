import type { MethodDefinition } from "@grpc/proto-loader";
import { type MessageType, MessageTypes } from "../protobuf/message-types.ts";
import type { HealthDefinition } from "./generated/grpc/health/v1/Health.ts";
import { protoJson } from "./generated/proto-json.ts";
import type { LeaseServiceDefinition } from "./generated/watchfanout/v1/LeaseService.ts";
import type { ListWatchServiceDefinition } from "./generated/watchfanout/v1/ListWatchService.ts";
import type { WriteServiceDefinition } from "./generated/watchfanout/v1/WriteService.ts";

/** A method as clients call it, with any transport. Messages are as those of services.ts. */
export interface Method<Request, Response> {
  /** `/package.Service/Method`. */
  readonly path: string;
  readonly encode: (request: Request) => Uint8Array;
  /** Throws an Error for what is no response of the method. Bytes in the result are views. */
  readonly decode: (response: Uint8Array) => Response;
}

type MethodsOf<Definition> = {
  readonly [Name in keyof Definition]: Definition[Name] extends MethodDefinition<
    infer Request,
    infer _Response,
    infer _Received,
    infer Response
  >
    ? Method<Request, Response>
    : never;
};

const types = new MessageTypes(protoJson);

/** A message type of the contract, by its full name. */
export function messageType<Input, Output>(name: string): MessageType<Input, Output> {
  return types.message(name);
}

function methodsOf<Definition>(service: string): MethodsOf<Definition> {
  const methods = types.methods(service).map(({ name, requestType, responseType }) => {
    const { encode } = types.message(requestType);
    const { decode } = types.message(responseType);
    return [name, { path: `/${service}/${name}`, encode, decode }];
  });
  return Object.fromEntries(methods) as MethodsOf<Definition>;
}

export const listWatchMethods = methodsOf<ListWatchServiceDefinition>(
  "watchfanout.v1.ListWatchService",
);

export const writeMethods = methodsOf<WriteServiceDefinition>("watchfanout.v1.WriteService");

export const leaseMethods = methodsOf<LeaseServiceDefinition>("watchfanout.v1.LeaseService");

/** The standard health service. */
export const healthMethods = methodsOf<HealthDefinition>("grpc.health.v1.Health");
