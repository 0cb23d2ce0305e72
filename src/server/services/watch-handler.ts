import { textBytes } from "../../base/text-memory.ts";
import type { CacheWatchRequest } from "../../cacher/request/request.ts";
import type { Decoded } from "../../wire/decode.ts";
import { statusOf } from "../../wire/errors.ts";
import type { WatchRequest__Output } from "../../wire/generated/watchfanout/v1/WatchRequest.ts";
import { type CallContext, toClientError } from "../calls/call-context.ts";
import type { ServerCall } from "../calls/server-call.ts";
import { parseWatch, resourceNamed } from "./parse-requests.ts";
import { WatchSender, watchMethod } from "./watch-sender.ts";

/** Serves calls of Watch. */
export function watchHandler(
  context: CallContext,
): (call: ServerCall, request: Decoded<WatchRequest__Output>) => void {
  return (call, { request, fault }) => {
    if (fault === undefined) {
      context.streamOpenings.add(call, bytesOf(request), () => open(context, call, request));
    } else {
      call.end(statusOf(fault));
    }
  };
}

/** Never throws. */
function open(context: CallContext, call: ServerCall, request: WatchRequest__Output): void {
  try {
    const resource = resourceNamed(context.resources, request.resource);
    const selection = resource.select(request.label_selector, request.field_selector);
    const ends = { deadline: call.deadline, expiresAt: expiryOf(context) };
    const watch = parseWatch(request, selection, ends);
    const refusal = context.streams.makeRoom(call.connection);
    if (refusal !== undefined) throw refusal;
    const stream = resource.watch({ ...watch, owner: call.connection });
    new WatchSender(call, stream, resource, context).start(retainedBytesOf(watch));
  } catch (error) {
    call.end(statusOf(toClientError(error, watchMethod, context.logger)));
  }
}

/** What a request takes before it has been looked at, in bytes. */
function bytesOf(request: WatchRequest__Output): number {
  const { resource, key = "", prefix = "", label_selector, field_selector, history_id } = request;
  const texts = [resource, key, prefix, label_selector, field_selector, history_id];
  return texts.reduce((bytes, text) => bytes + textBytes(text), 0);
}

/** What is kept of a request for as long as its stream is open, in bytes: by itself, whether it is shared or not. */
function retainedBytesOf({ scope, selection }: CacheWatchRequest): number {
  const text = "key" in scope ? scope.key : scope.prefix;
  return textBytes(text) + (selection?.bytes ?? 0);
}

/** When a watch that begins now is old enough, which is not when all the others are. */
function expiryOf({ clock, maxStreamAgeMs, random }: CallContext): number | undefined {
  return maxStreamAgeMs === 0 ? undefined : clock.now() + maxStreamAgeMs * (0.8 + 0.2 * random());
}
