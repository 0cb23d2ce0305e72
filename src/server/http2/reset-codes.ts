import { constants } from "node:http2";
import { status } from "@grpc/grpc-js";

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

/** The error code for a response that ends with a status within a message. `isRepeatable`: see `RelayedMethod`. */
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
