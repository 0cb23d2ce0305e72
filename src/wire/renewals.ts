import {
  bigFieldSize,
  bytesFieldSize,
  numberFieldSize,
  WireWriter,
} from "../protobuf/wire-writer.ts";
import { durationOf } from "./encode.ts";

/*
 * A watchfanout.v1.KeepAliveResponse, encoded by hand: it may have thousands of renewals. A tag is the field's number in the
 * proto, shifted by three, and its wire type.
 */

/** How long a lease lasts, in milliseconds, or the encoded google.rpc.Status that says why it was not renewed. */
export type RenewalOutcome = number | Uint8Array;

/** Encodes a response with the outcomes of these leases. */
export function encodeRenewals(
  leases: readonly bigint[],
  outcomes: readonly RenewalOutcome[],
): Uint8Array {
  let total = 0;
  for (let i = 0; i < leases.length; i++) {
    total += bytesFieldSize(renewalSize(leases[i] as bigint, outcomes[i] as RenewalOutcome));
  }
  const writer = new WireWriter(Buffer.allocUnsafe(total));
  for (let i = 0; i < leases.length; i++) {
    const lease = leases[i] as bigint;
    const outcome = outcomes[i] as RenewalOutcome;
    writer.byte(0x0a);
    writer.varint(renewalSize(lease, outcome));
    writer.bigField(0x08, lease);
    if (typeof outcome === "number") {
      const { seconds, nanos } = durationOf(outcome);
      writer.byte(0x12);
      writer.varint(durationSize(outcome));
      writer.numberField(0x08, seconds);
      writer.numberField(0x10, nanos);
    } else {
      writer.byte(0x1a);
      writer.varint(outcome.byteLength);
      writer.raw(outcome);
    }
  }
  return writer.bytes;
}

function renewalSize(lease: bigint, outcome: RenewalOutcome): number {
  const content = typeof outcome === "number" ? durationSize(outcome) : outcome.byteLength;
  return bigFieldSize(lease) + bytesFieldSize(content);
}

function durationSize(ms: number): number {
  const { seconds, nanos } = durationOf(ms);
  return numberFieldSize(seconds) + numberFieldSize(nanos);
}
