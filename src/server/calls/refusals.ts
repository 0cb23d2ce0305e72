import { Metadata, status } from "@grpc/grpc-js";
import { WatchFanoutError } from "../../base/errors.ts";
import { statusOf, type WireStatus } from "../../wire/errors.ts";

/** A status that gRPC itself would give, without a reason of ours. */
export function refused(code: status, details: string): WireStatus {
  return { code, details, metadata: new Metadata() };
}

/** As gRPC libraries word it, and as its clients know it by. */
export function tooLarge(size: number | "more", maxBytes: number): WireStatus {
  const details = `Received message larger than max (${size} vs ${maxBytes})`;
  return refused(status.RESOURCE_EXHAUSTED, details);
}

/** A request that was evicted to make room for others. Nothing of it was done. */
export function outOfRequestRoom(maxBytesPerConnection: number): WireStatus {
  return statusOf(
    new WatchFanoutError(
      "TOO_MANY_STREAMS",
      "The requests that this connection has sent, and that are not whole or not served yet, take more " +
        `than there is room for: ${maxBytesPerConnection} bytes, or less while all connections together ` +
        "have no more room. Nothing was done. Send fewer large requests at once.",
      { metadata: { limit: String(maxBytesPerConnection) } },
    ),
  );
}

/** A request that waited behind answers which its client does not take. Nothing of it was done. */
export function answerNotTaken(ms: number): WireStatus {
  return statusOf(
    new WatchFanoutError(
      "SLOW_CONSUMER",
      `The client has not accepted enough of its other answers for ${ms / 1_000} s, behind which this call ` +
        "waited. Nothing was done. Read faster, or ask for less at once.",
    ),
  );
}

/** The server shuts down before the client has said what it wants. */
export function drainingUnread(): WireStatus {
  const message =
    "This replica is shutting down, and the request has not come. Make the call again at another one.";
  return statusOf(new WatchFanoutError("DRAINING", message));
}

/** A request, or a question of a stream, that does not come. */
export function tookTooLong(ms: number): WireStatus {
  return refused(status.DEADLINE_EXCEEDED, `The request did not come within ${ms / 1_000} s`);
}
