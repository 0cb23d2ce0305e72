import type { OutgoingHttpHeaders } from "node:http2";
import { status } from "@grpc/grpc-js";
import { httpStatuses } from "../server/calls/http-statuses.ts";
import type { CallProtocol } from "../server/calls/service-options.ts";
import { descriptors } from "../wire/descriptors.ts";
import type { FrameParts } from "../wire/encode.ts";
import type { EncodingName } from "../wire/encoding.ts";
import { detailsIn, encodedStatus, type WireStatus } from "../wire/errors.ts";
import { jsonOf } from "../wire/json/message-to-json.ts";
import { servedType } from "../wire/json/served-types.ts";
import { base64, enveloped } from "./message-form.ts";

/** The response of a protocol to a request: its headers, and how it reports its status. */
export interface Protocol {
  readonly name: CallProtocol;
  /** The names of the request's header with the compression of messages, and with those that its client accepts. */
  readonly encodingHeader: string;
  readonly acceptHeader: string;
  /** The code of a request that can't be inflated. */
  readonly corruptCode: status;
  /** The headers of a response. `encoding`: how its messages may be compressed. */
  headers(encoding: EncodingName | undefined): OutgoingHttpHeaders;
  /** Whether the request is one message without a prefix, and so is the response of a method without a stream. */
  readonly isBare: boolean;
  /** What ends a response with this status. */
  ending(why: WireStatus): { readonly bytes: Uint8Array; readonly headers: OutgoingHttpHeaders };
}

const ok: WireStatus["code"] = status.OK;

/** Connect's methods with one request and one response. */
export function connectUnary(contentType: string): Protocol {
  return {
    name: "connect",
    ...{ encodingHeader: "content-encoding", acceptHeader: "accept-encoding", isBare: true },
    corruptCode: status.INVALID_ARGUMENT,
    headers: () => ({ ":status": 200, "content-type": contentType }),
    ending: (why) => {
      const bytes = Buffer.from(JSON.stringify(errorOf(why)));
      const headers = { "content-type": "application/json", "content-length": bytes.length };
      return { bytes, headers: { ":status": httpStatuses[why.code] ?? 500, ...headers } };
    },
  };
}

/**
 * The responses of a method with a stream as JSON, in a line each, for clients such as curl. An error is the last line, or the
 * response.
 */
export function jsonLines(contentType: string): Protocol {
  return {
    ...connectUnary(contentType),
    name: "json-lines",
    ending: (why) => {
      const text = why.code === ok ? "" : `${JSON.stringify({ error: errorOf(why) })}\n`;
      const code = why.code === ok ? 200 : (httpStatuses[why.code] ?? 500);
      return {
        bytes: Buffer.from(text),
        headers: { ":status": code, "content-type": contentType },
      };
    },
  };
}

/** Bit of a prefix: the message ends the stream. */
const endOfStream = 0x02;

/** Connect's methods with a stream. */
export function connectStream(contentType: string): Protocol {
  const headers = (encoding: EncodingName | undefined): OutgoingHttpHeaders => ({
    ...{ ":status": 200, "content-type": contentType },
    ...(encoding === undefined ? {} : { "connect-content-encoding": encoding }),
  });
  return {
    name: "connect",
    encodingHeader: "connect-content-encoding",
    acceptHeader: "connect-accept-encoding",
    corruptCode: status.INVALID_ARGUMENT,
    isBare: false,
    headers,
    ending: (why) => {
      const error = why.code === ok ? {} : { error: errorOf(why) };
      const metadata = Object.entries(trailersIn(why)).map(([name, value]) => [
        name,
        [value].flat(),
      ]);
      const hasMetadata = metadata.length > 0;
      const end = { ...error, ...(hasMetadata && { metadata: Object.fromEntries(metadata) }) };
      return { bytes: enveloped(endOfStream, JSON.stringify(end)), headers: headers(undefined) };
    },
  };
}

/** First byte of the prefix of gRPC-Web's trailers. */
const trailersFlag = 0x80;

/** gRPC-Web: gRPC whose trailers are its last message. `isText`: in base64. */
export function grpcWeb(contentType: string, isText: boolean): Protocol {
  const headers = (encoding: EncodingName | undefined): OutgoingHttpHeaders => ({
    ...{ ":status": 200, "content-type": contentType },
    ...(encoding === undefined ? {} : { "grpc-encoding": encoding }),
  });
  return {
    name: "grpc-web",
    encodingHeader: "grpc-encoding",
    acceptHeader: "grpc-accept-encoding",
    corruptCode: status.INTERNAL,
    isBare: false,
    headers,
    ending: (why) => {
      const trailers = enveloped(trailersFlag, trailersOf(why));
      const bytes = isText ? Buffer.from(base64(trailers), "latin1") : trailers;
      return { bytes, headers: headers(undefined) };
    },
  };
}

const detailsKey = "grpc-status-details-bin";

/** The metadata of a status without its details. */
function trailersIn({ metadata }: WireStatus): OutgoingHttpHeaders {
  const { [detailsKey]: _, ...others } = metadata.toHttp2Headers();
  return others;
}

function trailersOf(why: WireStatus): string {
  const lines = [`grpc-status: ${why.code}`];
  if (why.code !== ok) lines.push(`grpc-message: ${encodeURI(why.details)}`);
  const encoded = encodedStatus(why) as Buffer | undefined;
  if (encoded !== undefined) lines.push(`${detailsKey}: ${unpadded(encoded)}`);
  for (const [name, values] of Object.entries(trailersIn(why)))
    for (const value of [values].flat()) lines.push(`${name}: ${value}`);
  return `${lines.join("\r\n")}\r\n`;
}

function unpadded(bytes: Uint8Array): string {
  return base64(bytes).replace(/=+$/, "");
}

/** The JSON of Connect's errors. Each detail has its JSON beside its bytes, for people to read. */
function errorOf(why: WireStatus): object {
  const details = detailsIn(why).map(({ type_url, value }) => {
    const type = type_url.slice(type_url.lastIndexOf("/") + 1);
    const encoded = { type, value: unpadded(value) };
    if (!descriptors.messages.has(type)) return encoded;
    return { ...encoded, debug: JSON.parse(jsonOf(servedType(type), value)) as unknown };
  });
  const code = status[why.code]?.toLowerCase() ?? "unknown";
  return {
    code: code === "cancelled" ? "canceled" : code,
    message: why.details,
    ...(details.length === 0 ? {} : { details }),
  };
}

/** The bytes of a message in parts, without its prefix, which is in the first part. */
export function withoutPrefix([first, ...rest]: FrameParts, prefixBytes: number): FrameParts {
  if (first === undefined) return rest;
  return first.byteLength === prefixBytes ? rest : [first.subarray(prefixBytes), ...rest];
}
