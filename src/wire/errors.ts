import { Metadata, type status } from "@grpc/grpc-js";
import type { WatchFanoutError } from "../base/errors.ts";
import type { Any__Output } from "./generated/google/protobuf/Any.ts";
import { type WireReason, wireForms } from "./reasons.ts";
import { detailsKey, domain, encodeRpcStatus, type RpcStatus, statusType } from "./rpc-status.ts";

/** The end of a call as grpc-js takes it. */
export interface WireStatus {
  readonly code: status;
  readonly details: string;
  readonly metadata: Metadata;
}

// Some versions of gRPC's C core refuse more than 8 KiB of trailers. These have the message up to three times:
// percent-encoded, and twice in base64.
const maxMessageBytes = 600;
const maxMetadataBytes = 200;

/**
 * The status that a client gets for `error`. The delay in RetryInfo has a jitter of half of it in either direction, so
 * that clients that were refused together do not retry together; `random` returns 0 to 1.
 */
export function statusOf(error: WatchFanoutError, random: () => number = Math.random): WireStatus {
  const { code, retryMs: usualMs } = wireForms[error.reason];
  const retryMs = error.retryMs ?? usualMs;
  const message = presentable(error.message, maxMessageBytes);
  const errorMetadata: Record<string, string> = {};
  for (const [name, value] of Object.entries(error.metadata)) {
    errorMetadata[name] = presentable(value, maxMetadataBytes);
  }
  const metadata = new Metadata();
  metadata.set(
    detailsKey,
    binary({
      code,
      message,
      reason: error.reason,
      domain,
      metadata: errorMetadata,
      retryDelayMs: retryMs === undefined ? undefined : Math.round(retryMs * (0.5 + random())),
      field: error.field,
    }),
  );
  return { code, details: message, metadata };
}

/** The metadata of a status that has a code of gRPC's own for this reason. */
export function reasonMetadata(code: status, reason: WireReason, text: string): Metadata {
  const metadata = new Metadata();
  const message = presentable(text, maxMessageBytes);
  const rest = { domain, metadata: {}, retryDelayMs: undefined, field: undefined };
  metadata.set(detailsKey, binary({ code, message, reason, ...rest }));
  return metadata;
}

/** A status of `statusOf` as an encoded google.rpc.Status, for a message of a stream. */
export function encodedStatus({ metadata }: WireStatus): Uint8Array {
  return metadata.get(detailsKey)[0] as Buffer;
}

/** The details of a status, each an encoded message of the type that its URL names. Empty without details. */
export function detailsIn(status: WireStatus): readonly Any__Output[] {
  const encoded = encodedStatus(status) as Buffer | undefined;
  return encoded === undefined ? [] : statusType.decode(encoded).details;
}

/**
 * Returns text that can be sent: a lone surrogate throws inside grpc-js, where no handler catches it, and clients
 * refuse a trailer that is too long. Truncates between characters.
 */
function presentable(text: string, maxBytes: number): string {
  const wellFormed = text.toWellFormed();
  if (Buffer.byteLength(wellFormed) <= maxBytes) return wellFormed;
  let bytes = 3; // of the ellipsis
  let kept = "";
  for (const character of wellFormed) {
    bytes += Buffer.byteLength(character);
    if (bytes > maxBytes) break;
    kept += character;
  }
  return `${kept}…`;
}

/** An encoded google.rpc.Status, as Metadata takes it. */
function binary(status: RpcStatus): Buffer {
  // In Node.js it is a Buffer.
  return encodeRpcStatus(status) as Buffer;
}

/** The text of a status from its header: gRPC percent-encodes it. */
export function decodedDetails(text: string): string {
  try {
    return decodeURIComponent(text);
  } catch {
    return text;
  }
}
