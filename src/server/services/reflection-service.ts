import { type ServiceDefinition, status } from "@grpc/grpc-js";
import type { Timer } from "../../base/clock.ts";
import { invalidRequest, type WatchFanoutError } from "../../base/errors.ts";
import type { Descriptors, FileDescriptor } from "../../wire/descriptors.ts";
import { type FrameParts, frameOf } from "../../wire/encode.ts";
import { statusOf, type WireStatus } from "../../wire/errors.ts";
import type { ServerReflectionRequest__Output } from "../../wire/generated/grpc/reflection/v1/ServerReflectionRequest.ts";
import type { ServerReflectionResponse } from "../../wire/generated/grpc/reflection/v1/ServerReflectionResponse.ts";
import { MessageSender } from "../calls/message-sender.ts";
import { type BidiMethod, decoderOf, methodOf } from "../calls/methods.ts";
import { endingOf, nextNotAccepted, refused, responseNotAccepted } from "../calls/refusals.ts";
import type { NextRequest, ServerCall } from "../calls/server-call.ts";
import type { ServiceContext } from "../calls/service-context.ts";
import { nextStreamId, type OpenStream } from "../kernel/open-streams.ts";

type Result = Omit<ServerReflectionResponse, "valid_host" | "original_request">;
type Method = ServiceDefinition[string];

/** Maximum size of a request, in bytes: requests hold the name of a file or of a symbol. */
const maxReflectionRequestBytes = 16 * 1024;

/** Serves grpc.reflection.v1 and v1alpha, which differ only in their name. They have the protos, the same for each caller. */
export class ReflectionService {
  readonly #descriptors: Descriptors;
  readonly #context: ServiceContext;

  constructor(descriptors: Descriptors, context: ServiceContext) {
    const isListed = (name: string): boolean =>
      name === "watchfanout.v1.LeaseService"
        ? context.hasOwnServices && context.store !== undefined
        : context.hasOwnServices || !name.startsWith("watchfanout.");
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
    for (const stream of this.#context.streams) {
      if (stream instanceof ReflectionStream) stream.end(refused(status.OK, ""));
    }
  }

  /** Reads each request after the client has accepted the response to the one before. */
  async #converse(call: ServerCall, next: NextRequest, method: Method): Promise<void> {
    if (call.isOver) return;
    const decode = decoderOf<ServerReflectionRequest__Output>(method.path);
    const { logger, streams } = this.#context;
    const stream = new ReflectionStream(call, this.#context);
    const refusal = streams.makeRoom(stream.owner);
    if (refusal !== undefined) return stream.evict(refusal);
    streams.add(stream);
    try {
      while (!call.isOver) {
        const message = await next();
        if (message === undefined || call.isOver) break;
        const { request, fault } = decode(message);
        if (fault !== undefined) throw fault;
        checkLength(request);
        await stream.send(() => {
          const response = {
            valid_host: request.host,
            original_request: request,
            ...this.#resultOf(request),
          };
          return frameOf(method.responseSerialize(response));
        });
      }
      stream.end(refused(status.OK, ""));
    } catch (error) {
      // A call that was cancelled, or ended by `end`, gets no status.
      if (call.isOver) return;
      stream.end(endingOf(error, methodOf(method.path), logger, call));
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

/**
 * The responses of one call, one at a time. A client that does not accept one within `responseFlushMs` gets SLOW_CONSUMER, or a
 * reset within a response.
 */
class ReflectionStream extends MessageSender implements OpenStream {
  readonly id = nextStreamId();
  readonly streamKind = "reflection";
  readonly access = undefined;
  #response: Response | undefined;

  constructor(call: ServerCall, context: ServiceContext) {
    super(call, context);
    call.onOver(() => this.close());
  }

  /**
   * Builds a response once there is room for it, and sends it. Resolves when the client has accepted it, or when the call is
   * over, as it is if there is no room for `responseFlushMs`. Rejects with what `build` throws.
   */
  send(build: () => FrameParts): Promise<void> {
    const { clock } = this.context;
    const { responseFlushMs } = this.context.limits;
    return new Promise((resolve, reject) => {
      const refuse = (): void => this.end(responseNotAccepted(responseFlushMs));
      const roomTimer = clock.setTimeout(refuse, responseFlushMs);
      this.#response = { build, roomTimer, resolve, reject };
      this.pump();
    });
  }

  evict(error: WatchFanoutError): void {
    this.end(statusOf(error));
  }

  protected override get waitsFor(): "nothing" | "room" {
    return this.#response === undefined ? "nothing" : "room";
  }

  protected override next(): FrameParts | undefined {
    this.#response?.roomTimer.cancel();
    // In a buffer of its own: one from Node.js' pool would keep 64 KiB alive.
    return this.#response && [new Uint8Array(Buffer.concat(this.#response.build()))];
  }

  protected override onAccepted(): void {
    this.#response?.resolve();
    this.#response = undefined;
  }

  protected override slowStatus(): WireStatus | undefined {
    return this.outstanding ? undefined : nextNotAccepted();
  }

  protected override onFailed(error: unknown): void {
    this.#response?.reject(error);
  }

  protected override onClosed(): void {
    this.#response?.roomTimer.cancel();
    this.onAccepted();
    this.context.streams.delete(this);
  }
}

/** A response that waits for room, or until the client has accepted it. */
interface Response {
  readonly build: () => FrameParts;
  /** Ends the wait for room. */
  readonly roomTimer: Timer;
  readonly resolve: () => void;
  readonly reject: (error: unknown) => void;
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
