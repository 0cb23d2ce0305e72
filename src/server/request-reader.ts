import type { ServerHttp2Stream } from "node:http2";
import { Metadata, status } from "@grpc/grpc-js";
import { prefixSize } from "../wire/encode.ts";
import type { WireStatus } from "../wire/errors.ts";

/**
 * Reads the one message of a request that is not compressed, and calls `onMessage` with it when the
 * client has said that this is all. Whatever else comes is answered with `onRefused`, as grpc-js does;
 * a stream that closes before is told of with neither.
 */
export function readRequest(
  stream: ServerHttp2Stream,
  maxBytes: number,
  onMessage: (message: Buffer) => void,
  onRefused: (status: WireStatus) => void,
): void {
  const chunks: Buffer[] = [];
  let length = 0;
  /** How long the message says that it is; 0 as long as that has not come. */
  let announced = 0;
  const take = (chunk: Buffer): void => {
    const before = length;
    chunks.push(chunk);
    length += chunk.length;
    if (before < prefixSize && length >= prefixSize) announced = wholeOf(chunks).readUInt32BE(1);
    // Also what comes after a message that is whole is bounded.
    const size = Math.max(announced, length - prefixSize);
    if (size > maxBytes) refuse(tooLarge(size, maxBytes));
  };
  const finish = (): void => {
    stop();
    const bytes = wholeOf(chunks);
    const fault = faultOf(bytes);
    if (fault === undefined) onMessage(bytes.subarray(prefixSize));
    else onRefused(fault);
  };
  const refuse = (why: WireStatus): void => {
    stop();
    stream.resume();
    onRefused(why);
  };
  const stop = (): void => {
    stream.off("data", take);
    stream.off("end", finish);
  };
  stream.on("data", take);
  stream.on("end", finish);
}

function wholeOf(chunks: readonly Buffer[]): Buffer {
  const [first] = chunks;
  return first !== undefined && chunks.length === 1 ? first : Buffer.concat(chunks);
}

/** What is wrong with the bytes of a whole request; undefined: they are one message. */
function faultOf(bytes: Buffer): WireStatus | undefined {
  if (bytes.length === 0) return refused(status.UNIMPLEMENTED, "Received no request message");
  const end = prefixSize + (bytes.length < prefixSize ? 0 : bytes.readUInt32BE(1));
  if (end > bytes.length) {
    const parts = `${bytes.length} of ${end} bytes`;
    return refused(status.UNIMPLEMENTED, `Received no whole request message: ${parts}`);
  }
  if (bytes[0] !== 0) {
    return refused(status.INTERNAL, "Received a compressed request without a grpc-encoding");
  }
  if (end === bytes.length) return undefined;
  return refused(status.UNIMPLEMENTED, "Received a second request message");
}

function tooLarge(size: number, maxBytes: number): WireStatus {
  return refused(
    status.RESOURCE_EXHAUSTED,
    `Received message larger than max (${size} vs ${maxBytes})`,
  );
}

function refused(code: status, details: string): WireStatus {
  return { code, details, metadata: new Metadata() };
}
