import { createRequire } from "node:module";
import {
  type Metadata,
  Server,
  ServerCredentials,
  type ServerDuplexStream,
  type ServiceDefinition,
  type ServiceError,
  status,
} from "@grpc/grpc-js";
import { loadSync } from "@grpc/proto-loader";
import type { IRangeResponse } from "etcd3";
import type { RangeRequest, WatchRequest } from "../../../src/etcd/client/requests.ts";

const require = createRequire(import.meta.url);
const definition = loadSync(require.resolve("etcd3/proto/rpc.proto"), {
  keepCase: true,
  longs: String,
  enums: String,
  defaults: true,
  oneofs: true,
});

/** A response to a range; the test sets what it needs. */
export type ScriptedRange = Partial<Omit<IRangeResponse, "header">> & {
  readonly header: { readonly revision: string };
};

/** The responses of the scripted etcd. By default it responds as an empty etcd at revision 1. */
export interface Script {
  readonly version?: string;
  /** Fails each request for its status so. */
  readonly status?: () => Partial<ServiceError>;
  /** The response to each range: one without objects at a revision, a whole one, or an error. */
  readonly range?: (request: RangeRequest) => number | ScriptedRange | Partial<ServiceError>;
  /** Fails each transaction with this error, at once or later. */
  readonly txn?: () => Partial<ServiceError> | Promise<Partial<ServiceError>>;
  /** Fails each grant of a lease with this error, at once or later. By default leases are granted, with the id 7. */
  readonly leaseGrant?: () => Partial<ServiceError> | Promise<object>;
  /** Fails each revocation with this error, or does not respond. By default leases are revoked. */
  readonly leaseRevoke?: () => Partial<ServiceError> | undefined;
  /** Called with each watch stream that is opened, after its create request has come. */
  readonly watch?: (stream: ScriptedWatch) => void;
}

/** A watch stream of the scripted etcd. */
export interface ScriptedWatch {
  readonly metadata: Metadata;
  readonly startRevision: number;
  /** Number of progress requests. */
  readonly progressRequests: number;
  /** Called with each further request. */
  onProgressRequest: () => void;
  /** Calls `onSent` when the client's flow control has accepted it. */
  send(response: object, onSent?: () => void): void;
  fail(error: Partial<ServiceError>): void;
}

export interface ScriptedEtcd {
  readonly url: string;
  /** The names of the calls so far. */
  readonly calls: readonly string[];
  close(): void;
}

/** A service of etcd, with each method's encoding as etcd3 has it. */
export function serviceOf(name: string): ServiceDefinition {
  return definition[`etcdserverpb.${name}`] as unknown as ServiceDefinition;
}

type Callback = (error: Partial<ServiceError> | null, response?: object) => void;

/** A gRPC server with etcd's protocol and the responses of a test. */
export async function startScriptedEtcd(script: Script): Promise<ScriptedEtcd> {
  const server = new Server();
  const calls: string[] = [];
  const unary = (name: string, answer: (request: RangeRequest) => object | undefined) => {
    return async ({ request }: { request: RangeRequest }, callback: Callback): Promise<void> => {
      calls.push(name);
      const said = await answer(request);
      if (said === undefined) return;
      if ("code" in said) callback(said as Partial<ServiceError>);
      else callback(null, said);
    };
  };
  server.addService(serviceOf("Maintenance"), {
    status: unary("status", () => script.status?.() ?? { version: script.version ?? "3.5.16" }),
  });
  server.addService(serviceOf("KV"), {
    range: unary("range", (request) => {
      const said = script.range?.(request) ?? 1;
      return typeof said === "number" ? { header: { revision: said } } : said;
    }),
    txn: unary("txn", () => script.txn?.() ?? { code: status.UNIMPLEMENTED }),
  });
  server.addService(serviceOf("Lease"), {
    leaseGrant: unary("leaseGrant", () => script.leaseGrant?.() ?? { ID: 7 }),
    leaseRevoke: unary("leaseRevoke", () => (script.leaseRevoke ?? (() => ({})))()),
  });
  server.addService(serviceOf("Watch"), {
    watch: (call: ServerDuplexStream<WatchRequest, object>) => {
      calls.push("watch");
      answerWatch(call, script);
    },
  });
  const port = await new Promise<number>((resolve, reject) => {
    server.bindAsync("127.0.0.1:0", ServerCredentials.createInsecure(), (error, bound) =>
      error === null ? resolve(bound) : reject(error),
    );
  });
  return { url: `http://127.0.0.1:${port}`, calls, close: () => server.forceShutdown() };
}

function answerWatch(call: ServerDuplexStream<WatchRequest, object>, script: Script): void {
  let scripted: (ScriptedWatch & { progressRequests: number }) | undefined;
  call.on("error", () => undefined);
  call.on("data", (request: WatchRequest) => {
    if ("create_request" in request && request.create_request !== null) {
      scripted = {
        metadata: call.metadata,
        startRevision: Number(request.create_request.start_revision),
        progressRequests: 0,
        onProgressRequest: () => undefined,
        send: (response, onSent) => call.write(response, onSent),
        fail: (error) => call.emit("error", error),
      };
      script.watch?.(scripted);
    } else if (scripted !== undefined) {
      scripted.progressRequests++;
      scripted.onProgressRequest();
    }
  });
}
