import {
  type CallOptions,
  type ChannelCredentials,
  Client,
  type ClientReadableStream,
  credentials,
  type ServiceError,
  type StatusObject,
} from "@grpc/grpc-js";
import type { MethodDefinition } from "@grpc/proto-loader";
import type { WatchFanoutError } from "../../src/base/errors.ts";
import { errorOf } from "../../src/wire/errors.ts";
import type { WatchRequest } from "../../src/wire/generated/watchfanout/v1/WatchRequest.ts";
import type { WatchResponse__Output } from "../../src/wire/generated/watchfanout/v1/WatchResponse.ts";
import { listWatchService, writeService } from "../../src/wire/services.ts";

type Method<In, Out> = MethodDefinition<In, object, object, Out>;
type Input<M> = M extends MethodDefinition<infer In, object, object, infer _> ? In : never;
type Output<M> = M extends MethodDefinition<infer _, object, object, infer Out> ? Out : never;

const { Get, List, Watch } = listWatchService;
const { Put, Delete } = writeService;

/** A client of grpc-js. A failed call rejects with its WatchFanoutError. */
export class TestClient {
  readonly #client: Client;

  constructor(port: number, channel: ChannelCredentials = credentials.createInsecure()) {
    this.#client = new Client(`localhost:${port}`, channel);
  }

  readonly get = (request: Input<typeof Get>): Promise<Output<typeof Get>> =>
    this.unary(Get, request);
  readonly list = (request: Input<typeof List>): Promise<Output<typeof List>> =>
    this.unary(List, request);
  readonly put = (request: Input<typeof Put>): Promise<Output<typeof Put>> =>
    this.unary(Put, request);
  readonly delete = (request: Input<typeof Delete>): Promise<Output<typeof Delete>> =>
    this.unary(Delete, request);

  unary<In, Out>(method: Method<In, Out>, request: In, options: CallOptions = {}): Promise<Out> {
    const { path, requestSerialize, responseDeserialize } = method;
    return new Promise((resolve, reject) => {
      this.#client.makeUnaryRequest(
        path,
        requestSerialize,
        responseDeserialize,
        request,
        options,
        (error, response) => {
          if (error !== null) reject(errorOf(error));
          else resolve(response as Out);
        },
      );
    });
  }

  watch(request: WatchRequest, options: CallOptions = {}): Watching<WatchResponse__Output> {
    return this.stream(Watch, request, options);
  }

  stream<In, Out>(method: Method<In, Out>, request: In, options: CallOptions = {}): Watching<Out> {
    const { path, requestSerialize, responseDeserialize } = method;
    return new Watching(
      this.#client.makeServerStreamRequest(
        path,
        requestSerialize,
        responseDeserialize,
        request,
        options,
      ),
    );
  }

  close(): void {
    this.#client.close();
  }
}

/** A stream of responses, read one at a time. */
export class Watching<Out> {
  readonly #call: ClientReadableStream<Out>;
  readonly #iterator: AsyncIterator<Out>;
  /** The error that the stream ended with. */
  readonly ended: Promise<WatchFanoutError>;
  readonly status: Promise<StatusObject>;

  constructor(call: ClientReadableStream<Out>) {
    this.#call = call;
    this.#iterator = call[Symbol.asyncIterator]();
    this.ended = new Promise((resolve) => {
      call.on("error", (error) => resolve(errorOf(error as ServiceError)));
    });
    this.status = new Promise((resolve) => {
      call.on("status", resolve);
    });
  }

  /** The next response. Rejects when the stream ends instead. */
  async next(): Promise<Out> {
    const { value, done } = await this.#iterator.next();
    if (done === true) throw new Error("The stream has ended.");
    return value;
  }

  /** Number of responses that have arrived and were not read. */
  get waiting(): number {
    return this.#call.readableLength;
  }

  /** Reads until `enough` returns true, and returns all responses. */
  async until(enough: (response: Out) => boolean): Promise<Out[]> {
    const responses: Out[] = [];
    for (;;) {
      const response = await this.next();
      responses.push(response);
      if (enough(response)) return responses;
    }
  }

  cancel(): void {
    this.#call.cancel();
  }
}
