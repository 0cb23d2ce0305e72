import { type ServerDuplexStream, status, type UntypedServiceImplementation } from "@grpc/grpc-js";
import type { Logger } from "pino";
import type { Decoded } from "../wire/decode.ts";
import type { Descriptors, FileDescriptor } from "../wire/descriptors.ts";
import { statusOf } from "../wire/errors.ts";
import type { ServerReflectionRequest__Output } from "../wire/generated/grpc/reflection/v1/ServerReflectionRequest.ts";
import type { ServerReflectionResponse } from "../wire/generated/grpc/reflection/v1/ServerReflectionResponse.ts";
import { methodOf, presentError } from "./calls.ts";

type ReflectionCall = ServerDuplexStream<
  Decoded<ServerReflectionRequest__Output>,
  ServerReflectionResponse
>;
type Answer = Omit<ServerReflectionResponse, "valid_host" | "original_request">;

/** grpc.reflection.v1 and v1alpha, which differ in nothing but their name. */
export class ReflectionService {
  readonly #descriptors: Descriptors;
  readonly #logger: Logger;
  readonly #calls = new Set<ReflectionCall>();

  constructor(descriptors: Descriptors, logger: Logger) {
    this.#descriptors = descriptors;
    this.#logger = logger;
  }

  readonly handlers: UntypedServiceImplementation = {
    ServerReflectionInfo: (call: ReflectionCall) => {
      this.#calls.add(call);
      call.once("close", () => this.#calls.delete(call));
      void this.#serve(call);
    },
  };

  /** Ends all calls. */
  end(): void {
    for (const call of this.#calls) call.end();
  }

  /** How many calls are open. */
  get calls(): number {
    return this.#calls.size;
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
      const told = presentError(error, methodOf(call.getPath()), this.#logger);
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

function notFound(message: string): Answer {
  return { error_response: { error_code: status.NOT_FOUND, error_message: message } };
}
