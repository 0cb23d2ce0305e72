import { constants, type ServerHttp2Stream } from "node:http2";
import { status } from "@grpc/grpc-js";
import type { Clock } from "../../base/clock.ts";

/**
 * Lets headers through whose value begins or ends with white space. By default nghttp2 drops such a header without a word,
 * so a caller with a wrong credential would be anonymous. Node.js has the option in 22.17 and later releases of 22, and since
 * 24.2. Others ignore it.
 */
export const lenientFields = { strictFieldWhitespaceValidation: false };

/**
 * Closes a stream whose response has ended, and discards what the client still sends (RFC 9113, 8.1). In the next turn of
 * the event loop: in the same turn, Node.js 22 sends RST_STREAM ahead of the response, which the client then never gets.
 */
export function closeAfterResponse(stream: ServerHttp2Stream, clock: Clock): void {
  clock.setImmediate(() => {
    if (!stream.destroyed) stream.close(constants.NGHTTP2_NO_ERROR);
  });
}

/** Refuses a request that is not gRPC, as HTTP does it: with 415. Nothing of it is kept. */
export function refuseAsHttp(stream: ServerHttp2Stream, clock: Clock): void {
  if (stream.destroyed || stream.closed) return;
  stream.respond({ ":status": 415 }, { endStream: true });
  closeAfterResponse(stream, clock);
}

/** The gRPC status codes of streams that the server has ended without sending one. */
const unsentStatuses = new WeakMap<ServerHttp2Stream, number>();

/** The server has ended a stream with this gRPC status code, and can't send it. A later one has no effect. */
export function endedUnsent(stream: ServerHttp2Stream, code: number): void {
  if (!unsentStatuses.has(stream)) unsentStatuses.set(stream, code);
}

/** Ends a stream at once and drops unsent data. gRPC clients see ENHANCE_YOUR_CALM as RESOURCE_EXHAUSTED. */
export function resetStream(
  stream: ServerHttp2Stream,
  code: number = constants.NGHTTP2_ENHANCE_YOUR_CALM,
): void {
  if (stream.destroyed || stream.closed) return;
  const seen = statusOfReset(code);
  if (seen !== undefined) endedUnsent(stream, seen);
  stream.close(code);
}

/**
 * The gRPC status code that the server ended the stream with; undefined if the client or the connection ended it. The
 * stream's own `rstCode` may be that of the client, which may be any.
 */
export function statusCodeOf(stream: ServerHttp2Stream): number | undefined {
  // Without any message the status is in the headers.
  const sent = stream.sentTrailers?.["grpc-status"] ?? stream.sentHeaders?.["grpc-status"];
  return sent === undefined ? unsentStatuses.get(stream) : Number(sent);
}

/**
 * Resets the stream unless it closes within `ms` milliseconds. Otherwise the data of a client that has closed its flow
 * control window would be held without limit. `onReset` is called before that. `code`: see `resetStream`.
 */
export function resetUnlessClosed(
  stream: ServerHttp2Stream,
  ms: number,
  clock: Clock,
  onReset?: () => void,
  code?: number,
): void {
  if (stream.destroyed) return;
  const timer = clock.setTimeout(() => {
    onReset?.();
    resetStream(stream, code);
  }, ms);
  stream.once("close", () => timer.cancel());
}

/*
 * A response that ends within a message can have no status: behind half a message gRPC for Go reports INTERNAL, whatever the
 * trailers say. What clients get then is the HTTP/2 error code of a reset, of which they make a status
 * (https://github.com/grpc/grpc/blob/master/doc/PROTOCOL-HTTP2.md#errors):
 *
 *     code                 status
 *     REFUSED_STREAM       UNAVAILABLE. Without a whole message gRPC for Go repeats the call by itself, once
 *     CANCEL               DEADLINE_EXCEEDED once the client's deadline has passed, otherwise (Node.js: always) CANCELLED
 *     ENHANCE_YOUR_CALM    RESOURCE_EXHAUSTED
 *     INTERNAL_ERROR       INTERNAL
 *
 * gRPC for Go before 1.72 makes INTERNAL, `unexpected EOF`, of all of them, if it does not repeat the call.
 *
 * REFUSED_STREAM is the only one for UNAVAILABLE, after which clients of etcd repeat a read. It says that nothing was done,
 * so a call that may not be repeated must never end with it.
 */

/** The error code for a response that ends with a status within a message. `isRepeatable`: see `RawMethod`. */
export function resetCodeOf(code: status, isRepeatable: boolean): number {
  switch (code) {
    case status.DEADLINE_EXCEEDED:
    case status.CANCELLED:
      return constants.NGHTTP2_CANCEL;
    case status.INTERNAL:
      return constants.NGHTTP2_INTERNAL_ERROR;
    default:
      // The repetition gets the status.
      if (isRepeatable) return constants.NGHTTP2_REFUSED_STREAM;
      return code === status.RESOURCE_EXHAUSTED
        ? constants.NGHTTP2_ENHANCE_YOUR_CALM
        : constants.NGHTTP2_INTERNAL_ERROR;
  }
}

/** The status that gRPC clients make of an error code; undefined for the others. */
export function statusOfReset(code: number): status | undefined {
  switch (code) {
    case constants.NGHTTP2_REFUSED_STREAM:
      return status.UNAVAILABLE;
    case constants.NGHTTP2_ENHANCE_YOUR_CALM:
      return status.RESOURCE_EXHAUSTED;
    case constants.NGHTTP2_INTERNAL_ERROR:
      return status.INTERNAL;
    default:
      return undefined;
  }
}
