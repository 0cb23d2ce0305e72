import type { Server, ServiceDefinition } from "@grpc/grpc-js";
import type { Authentication } from "../calls/authentication.ts";
import type { CallContext } from "../calls/call-context.ts";
import type { Methods } from "../calls/methods.ts";
import { bidiStreamingHandler, streamingHandler, unaryHandler } from "./grpc-js-call.ts";

/*
 * For versions of grpc-js whose HTTP/2 streams can't be taken over: grpc-js serves all methods itself. Its public API
 * bounds the size of each message; incomplete-requests.ts bounds their time and their total size.
 */

/** Registers the methods of a service with grpc-js. */
export function addToGrpcJs(
  server: Server,
  service: ServiceDefinition,
  methods: Methods,
  context: CallContext,
  authentication: Authentication | undefined,
): void {
  for (const { path, responseStream } of Object.values(service)) {
    const method = methods.single.get(path);
    const conversation = methods.streaming.get(path);
    if (conversation !== undefined) {
      const handler = bidiStreamingHandler(conversation, context, authentication);
      server.register(path, handler, asIs, asIs, "bidi");
    } else if (method !== undefined && responseStream) {
      const handler = streamingHandler(method, context, authentication);
      server.register(path, handler, asIs, method.decode, "serverStream");
    } else if (method !== undefined) {
      const handler = unaryHandler(method, context, authentication);
      server.register(path, handler, asIs, method.decode, "unary");
    }
  }
}

/** Messages are encoded and decoded elsewhere. */
const asIs = (message: Buffer): Buffer => message;
