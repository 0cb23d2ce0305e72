import {
  bigVarintSize,
  bytesFieldSize,
  numberFieldSize,
  WireWriter,
} from "../../protobuf/wire-writer.ts";
import type { ResponseHeader } from "./response-header.ts";

/** Encodes the field of a response with its header. The ids and the term are those of `header`. */
export function headerField(header: Omit<ResponseHeader, "revision">, revision: number): Buffer {
  const { clusterId, memberId, raftTerm } = header;
  const size =
    bigFieldSize(clusterId) +
    bigFieldSize(memberId) +
    numberFieldSize(revision) +
    numberFieldSize(raftTerm);
  const writer = new WireWriter(Buffer.allocUnsafe(bytesFieldSize(size)));
  writer.byte(0x0a);
  writer.varint(size);
  bigField(writer, 0x08, clusterId);
  bigField(writer, 0x10, memberId);
  writer.numberField(0x18, revision);
  writer.numberField(0x20, raftTerm);
  return writer.bytes;
}

function bigFieldSize(value: bigint): number {
  return value === 0n ? 0 : 1 + bigVarintSize(value);
}

function bigField(writer: WireWriter, tag: number, value: bigint): void {
  if (value === 0n) return;
  writer.byte(tag);
  writer.bigVarint(value);
}
