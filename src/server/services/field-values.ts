import { invalidRequest } from "../../base/errors.ts";
import type { Duration__Output } from "../../wire/generated/google/protobuf/Duration.ts";

/**
 * Parses a revision: an int64 that is not negative. No store reaches the largest integer that a `number` holds exactly,
 * so larger revisions become that integer: it is above the store's revision, and no object has it.
 */
export function revisionOf(field: string, text: string): number {
  const value = BigInt(text);
  if (value < 0n) throw invalidRequest(field, `${field} is ${text}. It must not be negative.`);
  return value > maxRevision ? Number.MAX_SAFE_INTEGER : Number(value);
}

const maxRevision = BigInt(Number.MAX_SAFE_INTEGER);

/** Like `revisionOf`, for an optional field. */
export function optionalRevisionOf(field: string, text: string | undefined): number | undefined {
  return text === undefined ? undefined : revisionOf(field, text);
}

/** Parses a lease id; 0: no lease. */
export function leaseOf(field: string, text: string): bigint {
  const value = BigInt(text);
  if (value < 0n) throw invalidRequest(field, `${field} is ${text}. A lease is never negative.`);
  return value;
}

/** The bounds of google.protobuf.Duration, about 10,000 years. */
const maxSeconds = 315_576_000_000;

/** Converts a duration to milliseconds. */
export function durationOf(field: string, { seconds, nanos }: Duration__Output): number {
  const whole = Number(seconds);
  if (Math.abs(whole) > maxSeconds || Math.abs(nanos) > 999_999_999 || whole * nanos < 0) {
    throw invalidRequest(
      field,
      `${field} is ${seconds} s and ${nanos} ns, an invalid google.protobuf.Duration: seconds go up ` +
        `to ${maxSeconds}, nanos up to 999999999, and both have the same sign.`,
    );
  }
  return whole * 1_000 + nanos / 1e6;
}

/** Checks that a key is not empty. */
export function keyOf(key: string): string {
  if (key === "") throw invalidRequest("key", "key is empty. Give the key of an object.");
  return key;
}
