import { createHash } from "node:crypto";
import { invalidRequest } from "../../base/errors.ts";

/*
 * A page token identifies a list and the position where it continues:
 *
 *     version   1 byte
 *     check     12 bytes of the SHA-256 over the other parts and the request's other fields
 *     revision  8 bytes, big-endian
 *     history   1 byte of length, then that many bytes: the history that the revision belongs to
 *     key       the remaining bytes: the last key of the previous page
 *
 * It is not secret: a client that makes its own token gets nothing that it could not request otherwise. The check detects
 * tokens that were cut, altered, or used with another request.
 */

const version = 1;
const checkBytes = 12;
const headBytes = 1 + checkBytes + 8 + 1;

/** Where a list continues. */
export interface PagePosition {
  readonly revision: number;
  readonly historyId: string;
  readonly startAfter: string;
}

/**
 * The number of items that a page may have, at most `max`; 0, also without `max`: as many as it can. Throws INVALID_REQUEST if
 * it is negative.
 */
export function pageSizeOf(
  { page_size: size }: { readonly page_size: number },
  max: number = 0,
): number {
  if (size < 0) {
    throw invalidRequest("page_size", `page_size is ${size}. It must not be negative.`);
  }
  if (max === 0) return size;
  return size === 0 ? max : Math.min(size, max);
}

/** Encodes a token. `request` is an unambiguous form of all fields that must not change between pages. */
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

/** The length of a token in characters, from the size of its key and history in UTF-8. */
export function pageTokenSize(keyBytes: number, historyBytes: number): number {
  return Math.ceil(((headBytes + historyBytes + keyBytes) * 4) / 3);
}

/** Decodes a token. Throws INVALID_REQUEST if it is invalid or belongs to another request. */
export function decodePageToken(text: string, request: string): PagePosition {
  const token = Buffer.from(text, "base64url");
  const known = token.byteLength >= headBytes && token[0] === version;
  if (!known || token.toString("base64url") !== text) {
    throw invalidRequest(
      "page_token",
      "page_token is invalid. Send next_page_token of the previous page, unchanged.",
    );
  }
  if (!check(token, request).equals(token.subarray(1, 1 + checkBytes))) {
    throw invalidRequest(
      "page_token",
      "page_token is damaged or from another request. With a page_token every other field except " +
        "page_size must be as in the first call.",
    );
  }
  const keyStart = headBytes + (token[headBytes - 1] ?? 0);
  return {
    // No store has larger revisions. The store refuses this one.
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
