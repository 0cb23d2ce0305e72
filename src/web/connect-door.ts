import { status } from "@grpc/grpc-js";
import { maxTimerMs } from "../base/clock.ts";
import type { CarrierCall } from "../server/calls/methods.ts";
import { refused } from "../server/calls/refusals.ts";
import type { MethodShape, RequestHead, WebDoor, WebRequest } from "../server/calls/web-door.ts";
import { timeoutOf } from "../server/http2/request-headers.ts";
import { descriptors } from "../wire/descriptors.ts";
import type { WireStatus } from "../wire/errors.ts";
import { servedType } from "../wire/json/served-types.ts";
import { Base64Decoder } from "./base64-decoder.ts";
import { AllowedOrigins, isPreflight } from "./cors.ts";
import { base64Form, binaryForm, jsonForm, jsonGrowth, type MethodTypes } from "./message-form.ts";
import { connectStream, connectUnary, grpcWeb, jsonLines, type Protocol } from "./protocol.ts";
import { TranslatedWebCall } from "./web-call.ts";

/** A path of gRPC, before which clients of a proxy put its origin. */
const targetPattern = /^(?:https?:\/\/[^/?]*)?(\/[\w.]+\/\w+)(?:\?.*)?$/;

/** What a content type stands for. */
interface ContentType {
  readonly protocol: Protocol;
  readonly form: "binary" | "json" | "lines" | "base64";
  /** The methods that are called with it. */
  readonly shapes: readonly MethodShape[];
}

const streams: readonly MethodShape[] = ["responses", "both"];

const lines = { protocol: jsonLines("application/x-ndjson") };

/** By the content types of requests, without parameters. */
const contentTypes: ReadonlyMap<string, ContentType> = new Map<string, ContentType>([
  ...(["proto", "json"] as const).flatMap((codec): [string, ContentType][] => {
    const form = codec === "json" ? codec : "binary";
    const [unary, stream] = [`application/${codec}`, `application/connect+${codec}`];
    return [
      [unary, { protocol: connectUnary(unary), form, shapes: ["unary"] }],
      [stream, { protocol: connectStream(stream), form, shapes: streams }],
    ];
  }),
  ["application/x-ndjson", { ...lines, form: "lines", shapes: ["responses"] }],
  ...["", "-text"].flatMap((text) =>
    ["", "+proto"].map((codec): [string, ContentType] => {
      const type = `application/grpc-web${text}${codec}`;
      const isText = text !== "";
      const form = isText ? "base64" : "binary";
      const shapes = isText ? (["unary", "responses"] as const) : (["unary", ...streams] as const);
      return [type, { protocol: grpcWeb(type, isText), form, shapes }];
    }),
  ),
]);

const acceptedTypes = [...contentTypes.keys()].join(", ");

export interface WebDoorOptions {
  /** See `AllowedOrigins`. Default: none, so that no page may call. */
  readonly allowedOrigins?: readonly string[] | undefined;
  /**
   * The types of the messages of a method, by its path; undefined: they are not known, so it has no JSON. Default: those that
   * this service serves.
   */
  readonly typesOf?: (path: string) => MethodTypes | undefined;
}

/**
 * Connect (https://connectrpc.com/docs/protocol) and gRPC-Web, for all methods: their calls are translated to those of gRPC, and
 * their messages are the same bytes, or JSON.
 */
export class ConnectDoor implements WebDoor {
  readonly #origins: AllowedOrigins;
  readonly #typesOf: (path: string) => MethodTypes | undefined;

  constructor({ allowedOrigins = [], typesOf = servedTypes }: WebDoorOptions = {}) {
    this.#origins = new AllowedOrigins(allowedOrigins);
    this.#typesOf = typesOf;
  }

  requestAt(
    { verb, target, headers, version }: RequestHead,
    shapeOf: (path: string) => MethodShape | undefined,
  ): WebRequest | undefined {
    const path = targetPattern.exec(target)?.[1];
    if (path === undefined) return undefined;
    const shape = shapeOf(path);
    const [name = ""] = (headers["content-type"] ?? "").toLowerCase().split(";");
    const type = contentTypes.get(name.trim());
    const isKnown = shape !== undefined;
    if (!isKnown && (type === undefined || verb !== "POST")) return undefined;
    const isAllowed = this.#origins.allows(headers);
    if (isPreflight(verb, headers)) {
      if (!isAllowed) return answered(403, ofOtherPage);
      return answered(204, "", this.#origins.preflightHeaders(headers));
    }
    if (!isAllowed) return answered(403, ofOtherPage);
    // Without them the page does not learn what is wrong.
    const shared = this.#origins.responseHeaders(headers);
    if (verb !== "POST") {
      return answered(405, "Methods are called with POST.", { ...shared, allow: "POST" });
    }
    if (!isKnown) return answered(404, `The server does not implement the method ${path}.`, shared);
    if (type === undefined || !type.shapes.includes(shape)) {
      const isUnary = shape === "unary" || name.startsWith("application/grpc-web");
      const orLines = shape === "responses" ? ", or with application/x-ndjson" : "";
      const hint = isUnary
        ? "Call it with application/json or application/proto."
        : `It has a stream: call it with application/connect+json or application/connect+proto${orLines}.`;
      return answered(415, hint, { ...shared, "accept-post": acceptedTypes });
    }
    const isJson = type.form === "json" || type.form === "lines";
    const types = isJson ? this.#typesOf(path) : undefined;
    if (isJson && types === undefined) {
      const binary = shape === "unary" ? "application/proto" : "application/connect+proto";
      return answered(415, `The method has no JSON: call it with ${binary}.`, shared);
    }
    // Requests of a known length are there before the first response.
    if (shape === "both" && version === "HTTP/1.1" && headers["content-length"] === undefined)
      return answered(
        505,
        "A method with a stream of requests, one after the other, needs HTTP/2.",
        shared,
      );
    const isGrpcWeb = name.startsWith("application/grpc-web");
    const timeoutMs = isGrpcWeb ? timeoutOf(headers) : connectTimeoutOf(headers);
    const isTimeout = !Number.isNaN(timeoutMs);
    const requestEncoding = headers[type.protocol.encodingHeader]?.toString() ?? "identity";
    const refusal = isTimeout
      ? (versionRefusal(headers) ?? encodingRefusal(requestEncoding))
      : invalidTimeout(isGrpcWeb);
    return {
      ...{ path, protocol: type.protocol.name },
      timeoutMs: isTimeout && (timeoutMs ?? 0) <= maxTimerMs ? timeoutMs : undefined,
      translate: (carrier, context) => {
        const { protocol, form } = type;
        const { maxRequestBytes } = context.limits;
        const header = (key: string): string | undefined => headers[key]?.toString();
        const options = {
          ...{ protocol, refusal, json: types?.response },
          form: types ? jsonForm(types, maxRequestBytes, form === "lines") : formOf(form),
          stream: form === "base64" ? carrier.request.pipe(new Base64Decoder()) : carrier.request,
          requestEncoding,
          encoding:
            form === "binary"
              ? context.compressor?.encodingFor(acceptedBy(protocol, header(protocol.acceptHeader)))
              : undefined,
          maxBytes: types && Math.floor(maxRequestBytes * jsonGrowth),
          headers: shared,
        };
        return new TranslatedWebCall(carrier, options, context);
      },
    };
  }
}

/** Undefined for the methods of another door. */
function servedTypes(path: string): MethodTypes | undefined {
  const request = descriptors.inputs.get(path);
  const response = descriptors.outputs.get(path);
  if (request === undefined || response === undefined) return undefined;
  return { request: servedType(request), response: servedType(response) };
}

function formOf(form: ContentType["form"]): typeof binaryForm {
  return form === "base64" ? base64Form : binaryForm;
}

/** The compressions that a client accepts. Of a whole response browsers do not all know zstd. */
function acceptedBy({ isBare }: Protocol, accepted: string | undefined): string | undefined {
  if (!isBare || accepted === undefined) return accepted;
  return /(?:^|[\s,])gzip(?:\s*[,;]|$)/.test(accepted) ? "gzip" : undefined;
}

/** The timeout of Connect in milliseconds; undefined without one, NaN if the header is invalid. */
function connectTimeoutOf(headers: RequestHead["headers"]): number | undefined {
  const given = headers["connect-timeout-ms"];
  if (given === undefined) return undefined;
  return /^\d{1,10}$/.test(String(given)) ? Number(given) : Number.NaN;
}

function invalidTimeout(isGrpcWeb: boolean): WireStatus {
  const header = isGrpcWeb ? "grpc-timeout" : "connect-timeout-ms";
  const code = isGrpcWeb ? status.INTERNAL : status.INVALID_ARGUMENT;
  return refused(code, `The header ${header} is invalid`, "INVALID_REQUEST");
}

function versionRefusal(headers: RequestHead["headers"]): WireStatus | undefined {
  const version = headers["connect-protocol-version"];
  if (version === undefined || version === "1") return undefined;
  const details = "The header connect-protocol-version has to be 1";
  return refused(status.INVALID_ARGUMENT, details, "INVALID_REQUEST");
}

/** The compressions of requests, as those of gRPC. */
const encodings = ["identity", "gzip", "deflate"];

function encodingRefusal(encoding: string): WireStatus | undefined {
  if (encodings.includes(encoding)) return undefined;
  const details = `Unsupported compression "${encoding.slice(0, 32)}"; it can be ${encodings.join(", ")}`;
  return refused(status.UNIMPLEMENTED, details, "UNIMPLEMENTED");
}

const ofOtherPage =
  "Pages of this origin may not call: it is not one of --web-origin. Nothing was done.";

/** A request that is answered at once, with a text. */
function answered(
  code: number,
  text: string,
  headers: Readonly<Record<string, string | number | readonly string[] | undefined>> = {},
): WebRequest {
  return {
    ...{ path: "", protocol: "other", timeoutMs: undefined },
    translate: (carrier: CarrierCall) => {
      const body = Buffer.from(text === "" ? "" : `${text}\n`);
      const type = text === "" ? {} : { "content-type": "text/plain; charset=utf-8" };
      const length = code === 204 ? {} : { "content-length": body.length };
      carrier.sendHeaders({ ":status": code, ...type, ...length, ...(headers as object) });
      carrier.finish(body, code < 400 ? status.OK : status.INVALID_ARGUMENT);
      return undefined;
    },
  };
}
