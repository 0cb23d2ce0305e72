import { type Client, type ConnectError, createClient } from "@connectrpc/connect";
import { createConnectTransport, createGrpcWebTransport } from "@connectrpc/connect-node";
import { listWatchSchema, registry, writeSchema } from "./served-schema.ts";

/** A protocol of the web, as a client of it is made. */
export interface WebProtocol {
  readonly protocol: "connect" | "grpc-web";
  readonly httpVersion: "1.1" | "2";
  readonly useBinaryFormat: boolean;
}

export const webProtocols: readonly WebProtocol[] = [
  { protocol: "connect", httpVersion: "1.1", useBinaryFormat: true },
  { protocol: "connect", httpVersion: "1.1", useBinaryFormat: false },
  { protocol: "connect", httpVersion: "2", useBinaryFormat: true },
  { protocol: "connect", httpVersion: "2", useBinaryFormat: false },
  { protocol: "grpc-web", httpVersion: "1.1", useBinaryFormat: true },
  { protocol: "grpc-web", httpVersion: "2", useBinaryFormat: true },
];

export function nameOf({ protocol, httpVersion, useBinaryFormat }: WebProtocol): string {
  return `${protocol} over HTTP/${httpVersion}, ${useBinaryFormat ? "binary" : "JSON"}`;
}

/** What these tests read of responses. */
export interface StoredMessage {
  readonly key: string;
  readonly value: Uint8Array;
  readonly modRevision: bigint;
  readonly createRevision: bigint;
  readonly version: bigint;
}

export interface WatchMessage {
  readonly revision?: bigint;
  readonly historyId: string;
  readonly initialEventsEnd: boolean;
  readonly events: readonly { readonly type: number; readonly object?: StoredMessage }[];
}

export interface SubscribeMessage {
  readonly id: bigint;
  readonly watch?: unknown;
  readonly response: { readonly case?: string; readonly value?: unknown };
}

interface Options {
  readonly signal?: AbortSignal;
  readonly headers?: Record<string, string>;
  readonly timeoutMs?: number;
}

type Unary<Response> = (request: object, options?: Options) => Promise<Response>;

/** The methods that these tests call. The schema is read at run time, so it has no types of its own. */
export interface WebClient {
  readonly get: Unary<{ readonly object?: StoredMessage }>;
  readonly list: Unary<{ readonly items: readonly StoredMessage[]; readonly revision: bigint }>;
  readonly watch: (request: object, options?: Options) => AsyncIterable<WatchMessage>;
  readonly subscribe: (
    requests: AsyncIterable<object>,
    options?: Options,
  ) => AsyncIterable<SubscribeMessage>;
  readonly put: Unary<{ readonly revision: bigint }>;
}

/** A client of the Connect project's own library for Node.js. */
export function webClient(port: number, how: WebProtocol, more: object = {}): WebClient {
  const { httpVersion, useBinaryFormat } = how;
  const options = {
    ...{ baseUrl: `http://127.0.0.1:${port}`, httpVersion, useBinaryFormat },
    ...{ jsonOptions: { registry }, ...more },
  };
  const transport =
    how.protocol === "connect" ? createConnectTransport(options) : createGrpcWebTransport(options);
  const reading = createClient(listWatchSchema, transport);
  const writing = createClient(writeSchema, transport);
  return { ...(reading as Client<never>), ...(writing as Client<never>) } as unknown as WebClient;
}

/** The reason in the details of an error; undefined: it has no reason. */
export function reasonOf(error: ConnectError): string | undefined {
  const info = registry.getMessage("google.rpc.ErrorInfo");
  if (info === undefined) return undefined;
  return (error.findDetails(info)[0] as { readonly reason?: string } | undefined)?.reason;
}
