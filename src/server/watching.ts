import { tooManyStreams } from "../errors.ts";
import type { Decoded } from "../wire/decode.ts";
import { statusOf } from "../wire/errors.ts";
import type { WatchRequest__Output } from "../wire/generated/watchfanout/v1/WatchRequest.ts";
import { type CallContext, presentError } from "./calls.ts";
import { parseWatch, resourceNamed } from "./requests.ts";
import type { ServerCall } from "./server-call.ts";
import { WatchSender, watchMethod } from "./watch-sender.ts";

/** Serves calls of Watch. */
export function watching(
  context: CallContext,
): (call: ServerCall, request: Decoded<WatchRequest__Output>) => void {
  return (call, { request, fault }) => {
    try {
      if (fault !== undefined) throw fault;
      const resource = resourceNamed(context.resources, request.resource);
      const selection = resource.select(request.label_selector, request.field_selector);
      const ends = { deadline: call.deadline, expiresAt: expiryOf(context) };
      const parsed = parseWatch(request, selection, ends);
      checkStreamCount(context);
      new WatchSender(
        call,
        resource.watch({ ...parsed, owner: call.connection }),
        resource,
        context,
      ).start();
    } catch (error) {
      call.end(statusOf(presentError(error, watchMethod, context.logger)));
    }
  };
}

/** Throws TOO_MANY_STREAMS if there is no room for one more. */
function checkStreamCount({ patrol, maxStreams }: CallContext): void {
  if (patrol.size >= maxStreams) throw tooManyStreams(maxStreams);
}

/** When a watch that begins now is old enough, which is not when all the others are. */
function expiryOf({ clock, maxStreamAgeMs, random }: CallContext): number | undefined {
  return maxStreamAgeMs === 0 ? undefined : clock.now() + maxStreamAgeMs * (0.8 + 0.2 * random());
}
