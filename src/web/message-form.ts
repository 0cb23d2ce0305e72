import { status } from "@grpc/grpc-js";
import { WireFault } from "../protobuf/message-cursor.ts";
import { refused, tooLarge } from "../server/calls/refusals.ts";
import { RefusedRequest } from "../server/calls/server-call.ts";
import { prefixSize } from "../wire/encode.ts";
import { InvalidJson } from "../wire/json/invalid-json.ts";
import { messageFromJson } from "../wire/json/json-to-message.ts";
import { JsonValues } from "../wire/json/json-values.ts";
import { jsonOf } from "../wire/json/message-to-json.ts";
import type { Message } from "../wire/json/message-type.ts";

/** The types of the messages of a method. */
export interface MethodTypes {
  readonly request: Message;
  readonly response: Message;
}

/** The form of messages on the wire: how those of gRPC become it. */
export interface MessageForm {
  /** Whether messages are sent as they are by gRPC, from the same bytes. */
  readonly isShared: boolean;
  /** Returns a message with its prefix in this form, which streams that send the same message share. */
  outgoing(frame: Uint8Array): Uint8Array;
  /** Returns the request in protobuf's binary format. Throws a RefusedRequest. */
  incoming(message: Buffer): Buffer;
}

export const binaryForm: MessageForm = {
  isShared: true,
  outgoing: (frame) => frame,
  incoming: (message) => message,
};

/** The base64 of messages that streams share. */
const textOfFrames = new WeakMap<Uint8Array, Buffer>();

/** gRPC-Web's text: each message is encoded on its own. */
export const base64Form: MessageForm = {
  isShared: false,
  outgoing: (frame) => madeOnce(textOfFrames, frame, () => Buffer.from(base64(frame), "latin1")),
  incoming: (message) => message,
};

export function base64(bytes: Uint8Array): string {
  return Buffer.from(bytes.buffer, bytes.byteOffset, bytes.byteLength).toString("base64");
}

/** The JSON of messages that streams share. */
const envelopesOfFrames = new WeakMap<Uint8Array, Buffer>();

/** Maximum size of the JSON of a request, as a part of the maximum size of the request: its bytes are base64. */
export const jsonGrowth = 1.5;

/** The same in lines. */
const linesOfFrames = new WeakMap<Uint8Array, Buffer>();

/** Protobuf's JSON, each message with a prefix or in a line. `maxBytes`: of a request in its binary format. */
export function jsonForm(
  { request, response }: MethodTypes,
  maxBytes: number,
  isInLines: boolean,
): MessageForm {
  const known = isInLines ? linesOfFrames : envelopesOfFrames;
  return {
    isShared: false,
    outgoing: (frame) =>
      madeOnce(known, frame, () => {
        const json = jsonOf(response, messageIn(frame));
        return isInLines ? Buffer.from(`${json}\n`) : enveloped(0, json);
      }),
    incoming: (message) => {
      const binary = binaryOf(request, message);
      if (binary.length > maxBytes) throw new RefusedRequest(tooLarge(binary.length, maxBytes));
      return binary;
    },
  };
}

function madeOnce(
  known: WeakMap<Uint8Array, Buffer>,
  frame: Uint8Array,
  make: () => Buffer,
): Uint8Array {
  const found = known.get(frame);
  if (found !== undefined) return found;
  const made = make();
  known.set(frame, made);
  return made;
}

function messageIn(frame: Uint8Array): Buffer {
  return Buffer.from(frame.buffer, frame.byteOffset + prefixSize, frame.byteLength - prefixSize);
}

/** A text as a message with the prefix that Connect, gRPC and gRPC-Web have, whose first byte is `flags`. */
export function enveloped(flags: number, text: string): Buffer {
  const size = Buffer.byteLength(text);
  const bytes = Buffer.allocUnsafe(prefixSize + size);
  bytes[0] = flags;
  bytes.writeUInt32BE(size, 1);
  bytes.write(text, prefixSize);
  return bytes;
}

function binaryOf(type: Message, json: Buffer): Buffer {
  const values = new JsonValues();
  values.add(json);
  try {
    const text = values.next();
    if (text === undefined || !values.isEmpty) throw new InvalidJson("it is not one JSON object");
    return messageFromJson(type, text);
  } catch (error) {
    if (!(error instanceof InvalidJson || error instanceof WireFault)) throw error;
    const details = `Invalid JSON of ${type.package}.${type.name}: ${error.message}`;
    throw new RefusedRequest(refused(status.INVALID_ARGUMENT, details, "INVALID_REQUEST"));
  }
}
