import {
  type DescMessage,
  type DescService,
  fromBinary,
  type Registry,
  toBinary,
} from "@bufbuild/protobuf";
import { type Any, anyPack } from "@bufbuild/protobuf/wkt";
import { Metadata } from "@grpc/grpc-js";
import { systemClock } from "../../../src/base/clock.ts";
import { invalidRequest } from "../../../src/base/errors.ts";
import type {
  BidiMethod,
  Methods,
  SingleRequestMethod,
} from "../../../src/server/calls/methods.ts";
import { RefusedRequest, type ServerCall } from "../../../src/server/calls/server-call.ts";
import { frameOf } from "../../../src/wire/encode.ts";
import { statusOf, type WireStatus } from "../../../src/wire/errors.ts";

/*
 * connectrpc.conformance.v1.ConformanceService, which echoes what it is sent, by methods of the server.
 */

interface Header {
  readonly name: string;
  readonly value: readonly string[];
}

interface Failure {
  readonly code: number;
  readonly message?: string;
  readonly details: readonly Any[];
}

/** Of one response, or of a stream of them. */
interface Definition {
  readonly responseHeaders: readonly Header[];
  readonly responseTrailers: readonly Header[];
  readonly responseDelayMs: number;
  readonly response?: { readonly case?: string; readonly value?: unknown };
  readonly responseData?: readonly Uint8Array[];
  readonly error?: Failure;
}

interface Request {
  readonly responseDefinition?: Definition;
  readonly fullDuplex?: boolean;
}

/** What the door knows of a call beside its messages. */
export interface CallFacts {
  readonly headers: readonly Header[];
  readonly timeoutMs: number | undefined;
  /** Sent with the headers of the response. */
  readonly sent: Record<string, string | string[]>;
  readonly isBare: boolean;
}

/** Makes the methods. */
export class ConformanceService {
  readonly #registry: Registry;
  readonly #service: DescService;
  readonly #maxRequestBytes: number;
  readonly #factsOf: (call: ServerCall) => CallFacts;

  constructor(
    registry: Registry,
    maxRequestBytes: number,
    factsOf: (call: ServerCall) => CallFacts,
  ) {
    this.#registry = registry;
    this.#maxRequestBytes = maxRequestBytes;
    this.#service = registry.getService(
      "connectrpc.conformance.v1.ConformanceService",
    ) as DescService;
    this.#factsOf = factsOf;
  }

  get methods(): Methods {
    const path = (name: string): string => `/${this.#service.typeName}/${name}`;
    const single = (name: string, isStreaming: boolean): [string, SingleRequestMethod] => [
      path(name),
      {
        ...{ name: path(name).slice(1), isStreaming, access: "open" },
        decode: (message) => {
          try {
            return { request: this.#decoded(name, message), fault: undefined };
          } catch {
            return { request: undefined, fault: invalidRequest("request", "It is invalid.") };
          }
        },
        handle: (call, request) => {
          const handled = isStreaming
            ? this.#respondAll(call, [request as Request], `${name}Response`)
            : this.#respondOnce(call, [request as Request], `${name}Response`);
          void handled;
          return undefined;
        },
      },
    ];
    const bidi = (name: string): [string, BidiMethod] => [
      path(name),
      {
        ...{ name: path(name).slice(1), maxRequestBytes: this.#maxRequestBytes, mayIdle: true },
        converse: (call, next) => void this.#converse(name, call, next),
      },
    ];
    return {
      single: new Map([single("Unary", false), single("ServerStream", true)]),
      streaming: new Map([bidi("ClientStream"), bidi("BidiStream")]),
    };
  }

  #decoded(name: string, message: Uint8Array): Request {
    return fromBinary(this.#typeOf(`${name}Request`), message) as unknown as Request;
  }

  #typeOf(name: string): DescMessage {
    return this.#registry.getMessage(`connectrpc.conformance.v1.${name}`) as DescMessage;
  }

  async #converse(
    name: string,
    call: ServerCall,
    next: () => Promise<Buffer | undefined>,
  ): Promise<void> {
    try {
      const requests: Request[] = [];
      const read = async (): Promise<Request | undefined> => {
        const message = await next();
        return message && this.#decoded(name, message);
      };
      let first: Request | undefined;
      let sent = 0;
      for (let request = await read(); request !== undefined; request = await read()) {
        first ??= request;
        requests.push(request);
        const { fullDuplex, responseDefinition: definition } = first;
        if (fullDuplex !== true || definition === undefined) continue;
        if (sent === 0) this.#begin(call, definition);
        const data = definition.responseData?.[sent];
        if (data === undefined) break;
        await delay(definition.responseDelayMs);
        await this.#send(
          call,
          "BidiStreamResponse",
          this.#payload(call, requests.splice(0), data, sent === 0),
        );
        sent++;
      }
      if (name === "ClientStream") await this.#respondOnce(call, requests, "ClientStreamResponse");
      else await this.#respondAll(call, requests, "BidiStreamResponse", first, sent);
    } catch (error) {
      if (error instanceof RefusedRequest) call.end(error.status);
      else call.end(statusOf(invalidRequest("request", String(error))));
    }
  }

  #begin(call: ServerCall, { responseHeaders }: Definition): void {
    const { sent } = this.#factsOf(call);
    for (const { name, value } of responseHeaders) sent[name] = [...value];
  }

  async #respondOnce(call: ServerCall, requests: readonly Request[], type: string): Promise<void> {
    const definition = requests[0]?.responseDefinition;
    const facts = this.#factsOf(call);
    if (definition !== undefined) {
      this.#begin(call, definition);
      await delay(definition.responseDelayMs);
      if (facts.isBare)
        for (const { name, value } of definition.responseTrailers)
          facts.sent[`trailer-${name}`] = [...value];
    }
    const { case: kind, value } = definition?.response ?? {};
    if (kind === "error") {
      call.end(this.#failure(value as Failure, definition, this.#info(call, requests)));
      return;
    }
    const data = kind === "responseData" ? (value as Uint8Array) : new Uint8Array();
    const payload = this.#payload(call, requests, data, true);
    if (facts.isBare) call.respond(frameOf(this.#encoded(type, payload)));
    else {
      await this.#send(call, type, payload);
      call.end(ended(definition));
    }
  }

  async #respondAll(
    call: ServerCall,
    requests: readonly Request[],
    type: string,
    first: Request | undefined = requests[0],
    already: number = 0,
  ): Promise<void> {
    const definition = first?.responseDefinition;
    if (definition !== undefined && already === 0) this.#begin(call, definition);
    let sent = already;
    for (const data of definition?.responseData?.slice(already) ?? []) {
      await delay(definition?.responseDelayMs ?? 0);
      await this.#send(
        call,
        type,
        this.#payload(call, sent === 0 ? requests : [], data, sent === 0),
      );
      sent++;
    }
    const { error } = definition ?? {};
    const info = sent === 0 ? this.#info(call, requests) : undefined;
    call.end(error === undefined ? ended(definition) : this.#failure(error, definition, info));
  }

  #info(call: ServerCall, requests: readonly Request[]): object {
    const { headers, timeoutMs } = this.#factsOf(call);
    return {
      $typeName: "connectrpc.conformance.v1.ConformancePayload.RequestInfo",
      requestHeaders: headers.map((each) => ({
        $typeName: "connectrpc.conformance.v1.Header",
        ...each,
      })),
      ...(timeoutMs !== undefined && { timeoutMs: BigInt(Math.trunc(timeoutMs)) }),
      requests: requests.map((request) => {
        const { $typeName } = request as unknown as { $typeName: string };
        return anyPack(this.#registry.getMessage($typeName) as DescMessage, request as never);
      }),
    };
  }

  #payload(
    call: ServerCall,
    requests: readonly Request[],
    data: Uint8Array,
    isFirst: boolean,
  ): object {
    const hasInfo = isFirst || requests.length > 0;
    const info = this.#info(call, requests) as { requestHeaders: unknown; requests: unknown };
    const requestInfo = isFirst ? info : { ...info, requestHeaders: [], timeoutMs: undefined };
    return {
      $typeName: "connectrpc.conformance.v1.ConformancePayload",
      ...{ data, ...(hasInfo && { requestInfo }) },
    };
  }

  #encoded(type: string, payload: object): Uint8Array {
    const $typeName = `connectrpc.conformance.v1.${type}`;
    return toBinary(this.#typeOf(type), { $typeName, payload } as never);
  }

  #send(call: ServerCall, type: string, payload: object): Promise<void> {
    if (call.isOver) return Promise.resolve();
    return new Promise((resolve) =>
      call.send(Buffer.concat(frameOf(this.#encoded(type, payload))), () => resolve()),
    );
  }

  #failure(
    failure: Failure,
    definition: Definition | undefined,
    info: object | undefined,
  ): WireStatus {
    const { code, message = "", details } = failure;
    const { metadata } = ended(definition);
    const status = this.#registry.getMessage("google.rpc.Status") as DescMessage;
    const infoType = this.#typeOf("ConformancePayload.RequestInfo");
    const all = info === undefined ? details : [...details, anyPack(infoType, info as never)];
    const encoded = toBinary(status, {
      $typeName: "google.rpc.Status",
      code,
      message,
      details: all,
    } as never);
    metadata.set("grpc-status-details-bin", Buffer.from(encoded));
    return { code, details: message, metadata };
  }
}

function ended(definition: Definition | undefined): WireStatus {
  const metadata = new Metadata();
  for (const { name, value } of definition?.responseTrailers ?? [])
    for (const each of value)
      metadata.add(name, name.endsWith("-bin") ? Buffer.from(each, "base64") : each);
  return { code: 0, details: "", metadata };
}

function delay(ms: number): Promise<void> {
  return new Promise((resolve) => void systemClock.setTimeout(resolve, ms));
}
