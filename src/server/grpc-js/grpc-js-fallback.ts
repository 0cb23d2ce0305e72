import {
  type Server,
  ServerInterceptingCall,
  type ServerInterceptor,
  type ServiceDefinition,
} from "@grpc/grpc-js";
import type { Clock } from "../../base/clock.ts";
import type { CallContext } from "../calls/call-context.ts";
import type { Methods } from "../calls/methods.ts";
import { tookTooLong } from "../calls/refusals.ts";
import { bidiStreamingHandler, streamingHandler, unaryHandler } from "./grpc-js-call.ts";

/*
 * For versions of grpc-js whose HTTP/2 streams can't be taken over: grpc-js serves all methods itself. Its public API
 * bounds the size of each message and the time of each call, but not the total size of incomplete requests.
 */

/** Registers the methods of a service with grpc-js. */
export function addToGrpcJs(
  server: Server,
  service: ServiceDefinition,
  methods: Methods,
  context: CallContext,
): void {
  for (const { path, responseStream } of Object.values(service)) {
    const method = methods.single.get(path);
    const conversation = methods.streaming.get(path);
    if (conversation !== undefined) {
      const handler = bidiStreamingHandler(conversation, context);
      server.register(path, handler, asIs, asIs, "bidi");
    } else if (method !== undefined && responseStream) {
      const handler = streamingHandler(method, context);
      server.register(path, handler, asIs, method.decode, "serverStream");
    } else if (method !== undefined) {
      server.register(path, unaryHandler(method, context), asIs, method.decode, "unary");
    }
  }
}

/** Messages are encoded and decoded elsewhere. */
const asIs = (message: Buffer): Buffer => message;

/**
 * Ends a call that grpc-js serves if its request is not complete within `requestMs` milliseconds. Of a stream of requests,
 * that applies to the first.
 */
export function boundRequestTime(clock: Clock, requestMs: number): ServerInterceptor {
  return (method, call) =>
    new ServerInterceptingCall(call, {
      start: (next) => {
        const timer = clock.setTimeout(() => call.sendStatus(tookTooLong(requestMs)), requestMs);
        next({
          onReceiveMessage: (message, passOn) => {
            if (method.requestStream) timer.cancel();
            passOn(message);
          },
          onReceiveHalfClose: (passOn) => {
            timer.cancel();
            passOn();
          },
          onCancel: () => timer.cancel(),
        });
      },
    });
}
