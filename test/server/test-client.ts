import {
  type CallOptions,
  type ChannelCredentials,
  Client,
  type ClientReadableStream,
  credentials,
  Metadata,
  type ServiceError,
  type StatusObject,
} from "@grpc/grpc-js";
import type { MethodDefinition } from "@grpc/proto-loader";
import type { WatchFanoutError } from "../../src/base/errors.ts";
import { errorOf } from "../../src/wire/call-error.ts";
import type { WatchRequest } from "../../src/wire/generated/watchfanout/v1/WatchRequest.ts";
import type { WatchResponse__Output } from "../../src/wire/generated/watchfanout/v1/WatchResponse.ts";
import { leaseService, listWatchService, writeService } from "../../src/wire/services.ts";
import { KeepingAlive } from "./leases/keeping-alive.ts";
import { Subscribing } from "./subscribing.ts";

type Method<In, Out> = MethodDefinition<In, object, object, Out>;
type Input<M> = M extends MethodDefinition<infer In, object, object, infer _> ? In : never;
type Output<M> = M extends MethodDefinition<infer _, object, object, infer Out> ? Out : never;

const { Get, List, Watch, Subscribe, History } = listWatchService;
const { Put, Delete } = writeService;
const { Grant, KeepAlive, Revoke, TimeToLive } = leaseService;

/** Options of a call, and the metadata that is sent with it. */
interface TestOptions extends CallOptions {
  readonly metadata?: Metadata;
}

/** A client of grpc-js. A failed call rejects with its WatchFanoutError. */
export class TestClient {
  readonly #client: Client;
  /** Sent with each call. */
  readonly #metadata: Metadata;

  constructor(
    port: number | Client,
    channel: ChannelCredentials = credentials.createInsecure(),
    metadata: Metadata = new Metadata(),
  ) {
    this.#client = typeof port === "number" ? new Client(`localhost:${port}`, channel) : port;
    this.#metadata = metadata;
  }

  /** A client on the same connection that sends this metadata with each call. */
  withMetadata(metadata: Metadata | undefined): TestClient {
    return new TestClient(this.#client, undefined, metadata);
  }

  readonly get = (request: Input<typeof Get>, options?: TestOptions): Promise<Output<typeof Get>> =>
    this.unary(Get, request, options);
  readonly list = (
    request: Input<typeof List>,
    options?: TestOptions,
  ): Promise<Output<typeof List>> => this.unary(List, request, options);
  readonly history = (
    request: Input<typeof History>,
    options?: TestOptions,
  ): Promise<Output<typeof History>> => this.unary(History, request, options);
  readonly put = (request: Input<typeof Put>, options?: TestOptions): Promise<Output<typeof Put>> =>
    this.unary(Put, request, options);
  readonly delete = (
    request: Input<typeof Delete>,
    options?: TestOptions,
  ): Promise<Output<typeof Delete>> => this.unary(Delete, request, options);

  /** Resolves to the id. */
  readonly grant = async (ttlSeconds: number, options?: TestOptions): Promise<string> =>
    (await this.unary(Grant, { ttl: { seconds: ttlSeconds } }, options)).lease;
  readonly revoke = (lease: string, options?: TestOptions): Promise<Output<typeof Revoke>> =>
    this.unary(Revoke, { lease }, options);
  readonly timeToLive = (
    lease: string,
    options?: TestOptions,
  ): Promise<Output<typeof TimeToLive>> =>
    this.unary(TimeToLive, { lease, objects: true }, options);

  keepAlive(options: TestOptions = {}): KeepingAlive {
    const { path, requestSerialize, responseDeserialize } = KeepAlive;
    return new KeepingAlive(
      this.#client.makeBidiStreamRequest(
        path,
        requestSerialize,
        responseDeserialize,
        options.metadata ?? this.#metadata,
        options,
      ),
    );
  }

  unary<In, Out>(method: Method<In, Out>, request: In, options: TestOptions = {}): Promise<Out> {
    const { path, requestSerialize, responseDeserialize } = method;
    return new Promise((resolve, reject) => {
      this.#client.makeUnaryRequest(
        path,
        requestSerialize,
        responseDeserialize,
        request,
        options.metadata ?? this.#metadata,
        options,
        (error, response) => {
          if (error !== null) reject(errorOf(error));
          else resolve(response as Out);
        },
      );
    });
  }

  watch(request: WatchRequest, options: TestOptions = {}): Watching<WatchResponse__Output> {
    return this.stream(Watch, request, options);
  }

  subscribe(options: TestOptions = {}): Subscribing {
    const { path, requestSerialize, responseDeserialize } = Subscribe;
    return new Subscribing(
      this.#client.makeBidiStreamRequest(
        path,
        requestSerialize,
        responseDeserialize,
        options.metadata ?? this.#metadata,
        options,
      ),
    );
  }

  stream<In, Out>(method: Method<In, Out>, request: In, options: TestOptions = {}): Watching<Out> {
    const { path, requestSerialize, responseDeserialize } = method;
    return new Watching(
      this.#client.makeServerStreamRequest(
        path,
        requestSerialize,
        responseDeserialize,
        request,
        options.metadata ?? this.#metadata,
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
