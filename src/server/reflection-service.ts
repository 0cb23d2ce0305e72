import { type ServerDuplexStream, status, type UntypedServiceImplementation } from "@grpc/grpc-js";
import { invalidRequest, type WatchFanoutError } from "../errors.ts";
import type { Decoded } from "../wire/decode.ts";
import type { Descriptors, FileDescriptor } from "../wire/descriptors.ts";
import { statusOf } from "../wire/errors.ts";
import type { ServerReflectionRequest__Output } from "../wire/generated/grpc/reflection/v1/ServerReflectionRequest.ts";
import type { ServerReflectionResponse } from "../wire/generated/grpc/reflection/v1/ServerReflectionResponse.ts";
import { methodOf, presentError, resetUnlessClosed, type StreamContext } from "./calls.ts";
import { forgetMetadata, http2StreamOf } from "./http2-stream.ts";

type ReflectionCall = ServerDuplexStream<
  Decoded<ServerReflectionRequest__Output>,
  ServerReflectionResponse
>;
type Answer = Omit<ServerReflectionResponse, "valid_host" | "original_request">;

/** grpc.reflection.v1 and v1alpha, which differ in nothing but their name. */
export class ReflectionService {
  readonly #descriptors: Descriptors;
  readonly #context: StreamContext;
  readonly #calls = new Set<ReflectionCall>();

  constructor(descriptors: Descriptors, context: StreamContext) {
    this.#descriptors = descriptors;
    this.#context = context;
  }

  readonly handlers: UntypedServiceImplementation = {
    ServerReflectionInfo: (call: ReflectionCall) => {
      const { streams, clock, endFlushMs } = this.#context;
      const http2Stream = http2StreamOf(call);
      const connection = http2Stream?.session ?? call;
      const evict = (error: WatchFanoutError): void => {
        call.emit("error", statusOf(error));
        resetUnlessClosed(http2Stream, endFlushMs, clock);
      };
      forgetMetadata(call.metadata);
      const refusal = streams.makeRoom(connection);
      if (refusal !== undefined) return evict(refusal);
      const stream = { connection, evict };
      streams.add(stream);
      this.#calls.add(call);
      const close = (): void => {
        streams.delete(stream);
        this.#calls.delete(call);
      };
      call.once("close", close);
      http2Stream?.once("close", close);
      void this.#serve(call);
    },
  };

  /** Ends all calls. */
  end(): void {
    for (const call of this.#calls) call.end();
  }

  /** Reads a request when the answer to the one before has been accepted. */
  async #serve(call: ReflectionCall): Promise<void> {
    let release = (): void => {};
    // A message that is on its way when the call ends is never accepted, nor refused.
    call.once("close", () => release());
    try {
      // Destroying the call on the way out would leave its HTTP/2 stream open, without a status.
      for await (const decoded of call.iterator({ destroyOnReturn: false })) {
        const { request, fault } = decoded as Decoded<ServerReflectionRequest__Output>;
        if (fault !== undefined) throw fault;
        checkLength(request);
        const response = {
          valid_host: request.host,
          original_request: request,
          ...this.#answer(request),
        };
        await new Promise<void>((resolve) => {
          release = resolve;
          call.write(response, () => resolve());
        });
      }
      call.end();
    } catch (error) {
      // A call that was cancelled, or ended by `end`, has nobody left to tell.
      if (call.cancelled || call.destroyed || call.writableEnded) return;
      const told = presentError(error, methodOf(call.getPath()), this.#context.logger);
      call.emit("error", statusOf(told));
    }
  }

  #answer(request: ServerReflectionRequest__Output): Answer {
    const { files, declaredIn, messages, services } = this.#descriptors;
    switch (request.message_request) {
      case "list_services":
        return { list_services_response: { service: services.map((name) => ({ name })) } };
      case "file_by_filename":
        return this.#file(files.get(request.file_by_filename ?? ""));
      case "file_containing_symbol":
        return this.#file(declaredIn.get(request.file_containing_symbol ?? ""));
      case "file_containing_extension":
        return notFound("There are no extensions here.");
      case "all_extension_numbers_of_type": {
        const name = request.all_extension_numbers_of_type ?? "";
        if (!messages.has(name)) return notFound("There is no message type of that name here.");
        return { all_extension_numbers_response: { base_type_name: name, extension_number: [] } };
      }
      default:
        return {
          error_response: {
            error_code: status.INVALID_ARGUMENT,
            error_message: "The request asks nothing that is known here.",
          },
        };
    }
  }

  /** The file, then all that it imports, so that it can be understood without asking again. */
  #file(file: FileDescriptor | undefined): Answer {
    if (file === undefined) {
      return notFound("There is no file or symbol of that name here; list_services tells what is.");
    }
    const found = new Set([file]);
    for (const { imports } of found) {
      for (const name of imports) {
        const imported = this.#descriptors.files.get(name);
        if (imported !== undefined) found.add(imported);
      }
    }
    const bytes = [...found].map((each) => Buffer.from(each.bytes));
    return { file_descriptor_response: { file_descriptor_proto: bytes } };
  }
}

/** The longest name that is looked for, in UTF-16 units. Those that there are, are far shorter. */
const maxNameLength = 1024;

/** Throws INVALID_REQUEST for a name that is too long: each stream keeps the last request that it was sent. */
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

function notFound(message: string): Answer {
  return { error_response: { error_code: status.NOT_FOUND, error_message: message } };
}
