import { createHash } from "node:crypto";
import { invalidRequest } from "../../base/errors.ts";

/*
 * A page token says where a listing goes on, and which listing that is:
 *
 *     version   1 byte
 *     check     12 bytes of the SHA-256 over all else and the request's other fields
 *     revision  8 bytes, big-endian
 *     history   1 byte of length, then so many bytes: the history that the revision belongs to
 *     key       the rest: the last key of the page before
 *
 * It is no secret, and a client that makes its own gets nothing that it could not have asked for. The
 * check finds tokens that were cut, mixed up, or taken to another request.
 */

const version = 1;
const checkBytes = 12;
const headBytes = 1 + checkBytes + 8 + 1;

export interface PagePosition {
  readonly revision: number;
  readonly historyId: string;
  readonly startAfter: string;
}

/** `request` is all of the request that must not change from page to page, in any unambiguous form. */
export function encodePageToken(position: PagePosition, request: string): string {
  const history = Buffer.from(position.historyId);
  const key = Buffer.from(position.startAfter);
  const token = Buffer.alloc(headBytes + history.byteLength + key.byteLength);
  token[0] = version;
  token.writeBigUInt64BE(BigInt(position.revision), 1 + checkBytes);
  token[headBytes - 1] = history.byteLength;
  history.copy(token, headBytes);
  key.copy(token, headBytes + history.byteLength);
  check(token, request).copy(token, 1);
  return token.toString("base64url");
}

/** The length of a token, from the size of its key and history in UTF-8. */
export function pageTokenSize(keyBytes: number, historyBytes: number): number {
  return Math.ceil(((headBytes + historyBytes + keyBytes) * 4) / 3);
}

/** Throws INVALID_REQUEST for what is no token of ours, or one of another request. */
export function decodePageToken(text: string, request: string): PagePosition {
  const token = Buffer.from(text, "base64url");
  const known = token.byteLength >= headBytes && token[0] === version;
  if (!known || token.toString("base64url") !== text) {
    throw invalidRequest(
      "page_token",
      "page_token is not one of this service. Send next_page_token of the page before, unchanged.",
    );
  }
  if (!check(token, request).equals(token.subarray(1, 1 + checkBytes))) {
    throw invalidRequest(
      "page_token",
      "page_token is damaged or from another request. With a page_token every other field but " +
        "page_size has to be as in the first call.",
    );
  }
  const keyStart = headBytes + (token[headBytes - 1] ?? 0);
  return {
    // Above that is no revision of any store, which is for the store to say.
    revision: Math.min(Number(token.readBigUInt64BE(1 + checkBytes)), Number.MAX_SAFE_INTEGER),
    historyId: token.toString("utf8", headBytes, keyStart),
    startAfter: token.toString("utf8", keyStart),
  };
}

function check(token: Buffer, request: string): Buffer {
  const hash = createHash("sha256");
  hash
    .update(token.subarray(0, 1))
    .update(token.subarray(1 + checkBytes))
    .update(request);
  return hash.digest().subarray(0, checkBytes);
}
