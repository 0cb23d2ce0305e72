import { type ServiceDefinition, status } from "@grpc/grpc-js";
import { invalidRequest, type WatchFanoutError } from "../../base/errors.ts";
import type { Descriptors, FileDescriptor } from "../../wire/descriptors.ts";
import { statusOf } from "../../wire/errors.ts";
import { frameOf } from "../../wire/frame-parts.ts";
import type { ServerReflectionRequest__Output } from "../../wire/generated/grpc/reflection/v1/ServerReflectionRequest.ts";
import type { ServerReflectionResponse } from "../../wire/generated/grpc/reflection/v1/ServerReflectionResponse.ts";
import { type CallContext, toClientError } from "../calls/call-context.ts";
import { type BidiMethod, decoderOf, methodOf } from "../calls/methods.ts";
import { refused } from "../calls/refusals.ts";
import { ResponseSender } from "../calls/response-sender.ts";
import { type NextRequest, RefusedRequest, type ServerCall } from "../calls/server-call.ts";
import { nextStreamId, type OpenStream } from "../kernel/open-streams.ts";

type Result = Omit<ServerReflectionResponse, "valid_host" | "original_request">;
type Method = ServiceDefinition[string];

/** Maximum size of a request, in bytes: requests hold the name of a file or of a symbol. */
const maxReflectionRequestBytes = 16 * 1024;

/** Serves grpc.reflection.v1 and v1alpha, which differ only in their name. They have the protos, the same for each caller. */
export class ReflectionService {
  readonly #descriptors: Descriptors;
  readonly #context: CallContext;
  readonly #calls = new Set<ServerCall>();

  /** `hasOwnServices`: whether this service's own are among those that are listed. */
  constructor(descriptors: Descriptors, hasOwnServices: boolean, context: CallContext) {
    const isListed = (name: string): boolean => hasOwnServices || !name.startsWith("watchfanout.");
    this.#descriptors = { ...descriptors, services: descriptors.services.filter(isListed) };
    this.#context = context;
  }

  /** The single method of a version, by its path. */
  serving(service: ServiceDefinition): Map<string, BidiMethod> {
    const methods = Object.values(service).map((method) => {
      const converse = (call: ServerCall, next: NextRequest): void =>
        void this.#converse(call, next, method);
      const name = methodOf(method.path);
      const served = { name, maxRequestBytes: maxReflectionRequestBytes, converse };
      return [method.path, served] as const;
    });
    return new Map(methods);
  }

  /** Ends all calls with OK. */
  end(): void {
    for (const call of this.#calls) {
      this.#calls.delete(call);
      call.end(refused(status.OK, ""));
    }
  }

  /** Reads each request after the client has accepted the response to the one before. */
  async #converse(call: ServerCall, next: NextRequest, method: Method): Promise<void> {
    const decode = decoderOf<ServerReflectionRequest__Output>(method.path);
    const { logger, streams } = this.#context;
    const evict = (error: WatchFanoutError): void => call.end(statusOf(error));
    const { connection, owner, identity } = call;
    const id = nextStreamId();
    const stream: OpenStream = {
      ...{ id, streamKind: "reflection" },
      ...{ connection, owner, identity, access: undefined, evict },
    };
    const sender = new ResponseSender(this.#context, call);
    call.onOver(() => {
      streams.delete(stream);
      this.#calls.delete(call);
      sender.over();
    });
    if (call.isOver) return;
    const refusal = streams.makeRoom(owner);
    if (refusal !== undefined) return evict(refusal);
    streams.add(stream);
    this.#calls.add(call);
    try {
      for (;;) {
        const message = await next();
        if (message === undefined || call.isOver) break;
        const { request, fault } = decode(message);
        if (fault !== undefined) throw fault;
        checkLength(request);
        await sender.send(() => {
          const response = {
            valid_host: request.host,
            original_request: request,
            ...this.#resultOf(request),
          };
          return frameOf(method.responseSerialize(response));
        });
        if (call.isOver) break;
      }
      call.end(refused(status.OK, ""));
    } catch (error) {
      // A call that was cancelled, or ended by `end`, gets no status.
      if (call.isOver) return;
      if (error instanceof RefusedRequest) call.end(error.status);
      else call.end(statusOf(toClientError(error, methodOf(method.path), logger, call)));
    } finally {
      streams.delete(stream);
      this.#calls.delete(call);
    }
  }

  #resultOf(request: ServerReflectionRequest__Output): Result {
    const { files, declaredIn, messages, services } = this.#descriptors;
    switch (request.message_request) {
      case "list_services":
        return { list_services_response: { service: services.map((name) => ({ name })) } };
      case "file_by_filename":
        return this.#file(files.get(request.file_by_filename ?? ""));
      case "file_containing_symbol":
        return this.#file(declaredIn.get(request.file_containing_symbol ?? ""));
      case "file_containing_extension":
        return notFound("The services have no extensions.");
      case "all_extension_numbers_of_type": {
        const name = request.all_extension_numbers_of_type ?? "";
        if (!messages.has(name)) return notFound("There is no message type of that name.");
        return { all_extension_numbers_response: { base_type_name: name, extension_number: [] } };
      }
      default:
        return {
          error_response: {
            error_code: status.INVALID_ARGUMENT,
            error_message: "The request has no supported field set.",
          },
        };
    }
  }

  /** The file and everything that it imports, so that clients need no further requests. */
  #file(file: FileDescriptor | undefined): Result {
    if (file === undefined) {
      return notFound(
        "There is no file or symbol of that name. list_services returns the services.",
      );
    }
    const found = new Set([file]);
    for (const { imports } of found) {
      for (const name of imports) {
        const imported = this.#descriptors.files.get(name);
        if (imported !== undefined) found.add(imported);
      }
    }
    const bytes = [...found].map(({ bytes }) => bytes);
    return { file_descriptor_response: { file_descriptor_proto: bytes as Buffer[] } };
  }
}

/** Maximum length of a name in a request, in UTF-16 code units. The names of files and symbols are far shorter. */
const maxNameLength = 1024;

/** Throws INVALID_REQUEST for a name that is too long, since each stream retains its last request. */
function checkLength({ host, ...request }: ServerReflectionRequest__Output): void {
  const field = request.message_request ?? "";
  const asked: unknown = Reflect.get(request, field);
  for (const [name, text] of [["host", host] as const, [field, asked] as const]) {
    if (typeof text !== "string" || text.length <= maxNameLength) continue;
    throw invalidRequest(
      name,
      `${name} is ${text.length} characters long, expected at most ${maxNameLength}.`,
    );
  }
}

function notFound(message: string): Result {
  return { error_response: { error_code: status.NOT_FOUND, error_message: message } };
}
