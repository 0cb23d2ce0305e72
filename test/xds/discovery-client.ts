import { createRequire } from "node:module";
import { dirname, join } from "node:path";
import {
  Client,
  type ClientDuplexStream,
  credentials,
  Metadata,
  type ServiceError,
} from "@grpc/grpc-js";
import { loadSync, type MethodDefinition } from "@grpc/proto-loader";
import { onTestFinished } from "vitest";
import { xdsTypes } from "../../src/xds/types.ts";
import { until } from "../testing/patient-until.ts";

const require = createRequire(import.meta.url);
const deps = join(dirname(require.resolve("@grpc/grpc-js-xds/package.json")), "deps");

/** The protos as gRPC's own client of xDS loads them. */
const definitions = loadSync(
  [
    "envoy/service/discovery/v3/ads.proto",
    "envoy/config/cluster/v3/cluster.proto",
    "envoy/config/endpoint/v3/endpoint.proto",
    "envoy/config/listener/v3/listener.proto",
    "envoy/config/route/v3/route.proto",
  ],
  {
    ...{ keepCase: true, longs: String, enums: String, defaults: false, oneofs: false },
    includeDirs: ["envoy-api", "xds", "googleapis", "protoc-gen-validate"].map((folder) =>
      join(deps, folder),
    ),
  },
);

/** One resource, decoded. */
export interface ReceivedResource {
  readonly name?: string;
  readonly version?: string;
  readonly type: string;
  readonly bytes: Buffer;
}

/** A response of either protocol. */
export interface Received {
  readonly type: string;
  /** version_info, or system_version_info. */
  readonly version: string;
  readonly nonce: string;
  readonly resources: readonly ReceivedResource[];
  readonly removed: readonly string[];
}

/** What a test sends. */
export interface Sent {
  readonly type?: string;
  readonly names?: readonly string[];
  readonly unsubscribe?: readonly string[];
  readonly versions?: Readonly<Record<string, string>>;
  readonly nonce?: string;
  readonly refusal?: string;
  readonly node?: string;
}

/** The URL of a type, by its short name. */
export function urlOf(name: string): string {
  const type = xdsTypes.find((each) => each.name === name);
  if (type === undefined) throw new Error(`There is no type ${name}.`);
  return type.url;
}

/** A client of grpc-js that speaks one stream of discovery, message by message. */
export class DiscoveryStream {
  readonly received: Received[] = [];
  ended: ServiceError | "ok" | undefined;
  /** Called with each response. */
  onReceived: (response: Received) => void = () => {};
  readonly #call: ClientDuplexStream<object, object>;
  readonly #isDelta: boolean;

  constructor(call: ClientDuplexStream<object, object>, isDelta: boolean) {
    this.#call = call;
    this.#isDelta = isDelta;
    call.on("data", (message: RawResponse) => {
      const response = receivedOf(message);
      this.received.push(response);
      this.onReceived(response);
    });
    call.on("error", (error: ServiceError) => {
      this.ended = error;
    });
    call.on("end", () => {
      this.ended ??= "ok";
    });
  }

  send({ type = "", names, unsubscribe, versions, nonce = "", refusal, node }: Sent): void {
    const common = {
      type_url: type === "" ? "" : urlOf(type),
      response_nonce: nonce,
      ...(node === undefined ? {} : { node: { id: node } }),
      ...(refusal === undefined ? {} : { error_detail: { code: 3, message: refusal } }),
    };
    this.#call.write(
      this.#isDelta
        ? {
            ...common,
            resource_names_subscribe: names ?? [],
            resource_names_unsubscribe: unsubscribe ?? [],
            initial_resource_versions: versions ?? {},
          }
        : { ...common, resource_names: names ?? [] },
    );
  }

  /** Sends a message as it is. */
  sendRaw(message: object): void {
    this.#call.write(message);
  }

  /** The response with this index, once it has come. */
  response(at: number): Promise<Received> {
    return until(
      () => `response ${at}; there are ${this.received.length}, ${String(this.ended)}`,
      () => this.received[at],
    );
  }

  /** How it has ended, once it has. */
  end(): Promise<ServiceError | "ok"> {
    return until("the end of the stream", () => this.ended);
  }

  halfClose(): void {
    this.#call.end();
  }

  /** Accepts nothing more of what is sent. */
  pause(): void {
    this.#call.pause();
  }

  resume(): void {
    this.#call.resume();
  }

  cancel(): void {
    this.#call.cancel();
  }
}

interface RawAny {
  readonly type_url: string;
  readonly value: Buffer;
}

interface RawResponse {
  readonly type_url: string;
  readonly version_info?: string;
  readonly system_version_info?: string;
  readonly nonce: string;
  readonly resources?: readonly (
    | RawAny
    | { readonly name: string; readonly version: string; readonly resource: RawAny }
  )[];
  readonly removed_resources?: readonly string[];
}

function receivedOf(message: RawResponse): Received {
  const type = xdsTypes.find(({ url }) => url === message.type_url)?.name ?? message.type_url;
  return {
    type,
    version: message.version_info ?? message.system_version_info ?? "",
    nonce: message.nonce,
    removed: message.removed_resources ?? [],
    resources: (message.resources ?? []).map((resource) =>
      "resource" in resource
        ? {
            ...{ name: resource.name, version: resource.version },
            ...{ type: resource.resource.type_url, bytes: resource.resource.value },
          }
        : { type: resource.type_url, bytes: resource.value },
    ),
  };
}

/** Options of a `DiscoveryClient`. */
interface DiscoveryClientOptions {
  readonly token?: string;
  /** Whether no other client has its connection. */
  readonly ownConnection?: boolean;
}

/** Opens streams of discovery at a port. Closed with the test. */
export class DiscoveryClient {
  readonly #client: Client;
  readonly #metadata = new Metadata();

  constructor(port: number, { token, ownConnection = false }: DiscoveryClientOptions = {}) {
    this.#client = new Client(`127.0.0.1:${port}`, credentials.createInsecure(), {
      "grpc.use_local_subchannel_pool": ownConnection ? 1 : 0,
    });
    if (token !== undefined) this.#metadata.set("authorization", `Bearer ${token}`);
    onTestFinished(() => this.#client.close());
  }

  state(path = "/envoy.service.discovery.v3.AggregatedDiscoveryService/StreamAggregatedResources") {
    return this.#open(path, false);
  }

  delta(path = "/envoy.service.discovery.v3.AggregatedDiscoveryService/DeltaAggregatedResources") {
    return this.#open(path, true);
  }

  #open(path: string, isDelta: boolean): DiscoveryStream {
    const { StreamAggregatedResources, DeltaAggregatedResources } = definitions[
      "envoy.service.discovery.v3.AggregatedDiscoveryService"
    ] as unknown as Record<string, MethodDefinition<object, object>>;
    const method = isDelta ? DeltaAggregatedResources : StreamAggregatedResources;
    if (method === undefined) throw new Error("The protos have no such method.");
    const call = this.#client.makeBidiStreamRequest(
      path,
      method.requestSerialize,
      method.responseDeserialize,
      this.#metadata,
    );
    return new DiscoveryStream(call, isDelta);
  }
}

interface MessageType {
  readonly serialize: (value: object) => Buffer;
  readonly deserialize: (bytes: Buffer) => object;
}

function messageOf(fullName: string): MessageType {
  return definitions[fullName] as unknown as MessageType;
}

/** A message of a type as a binary google.protobuf.Any. */
export function anyOf(fullName: string, value: object): Buffer {
  const content = messageOf(fullName).serialize(value);
  return messageOf("google.protobuf.Any").serialize({
    type_url: `type.googleapis.com/${fullName}`,
    value: content,
  });
}

/** The message in a binary google.protobuf.Any. */
export function contentOf(any: Buffer): Buffer {
  return (messageOf("google.protobuf.Any").deserialize(any) as RawAny).value;
}

/** Decodes a message of a type. */
export function decoded(fullName: string, bytes: Buffer): unknown {
  return messageOf(fullName).deserialize(bytes);
}

/** A cluster as it is stored in binary. */
export function cluster(name: string, more: object = {}): Buffer {
  return anyOf("envoy.config.cluster.v3.Cluster", { name, ...more });
}
