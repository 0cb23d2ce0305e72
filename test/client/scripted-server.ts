import {
  type handleBidiStreamingCall,
  type handleServerStreamingCall,
  type handleUnaryCall,
  Server,
  ServerCredentials,
  type ServerOptions,
} from "@grpc/grpc-js";
import { invalidRequest, type WatchFanoutError } from "../../src/base/errors.ts";
import { statusOf } from "../../src/wire/errors.ts";
import type { BatchGetRequest__Output } from "../../src/wire/generated/watchfanout/v1/BatchGetRequest.ts";
import type { BatchGetResponse } from "../../src/wire/generated/watchfanout/v1/BatchGetResponse.ts";
import type { DeletePrefixRequest__Output } from "../../src/wire/generated/watchfanout/v1/DeletePrefixRequest.ts";
import type { DeletePrefixResponse } from "../../src/wire/generated/watchfanout/v1/DeletePrefixResponse.ts";
import type { DeleteRequest__Output } from "../../src/wire/generated/watchfanout/v1/DeleteRequest.ts";
import type { DeleteResponse } from "../../src/wire/generated/watchfanout/v1/DeleteResponse.ts";
import type { GetRequest__Output } from "../../src/wire/generated/watchfanout/v1/GetRequest.ts";
import type { GetResponse } from "../../src/wire/generated/watchfanout/v1/GetResponse.ts";
import type { HistoryRequest__Output } from "../../src/wire/generated/watchfanout/v1/HistoryRequest.ts";
import type { HistoryResponse } from "../../src/wire/generated/watchfanout/v1/HistoryResponse.ts";
import type { ListRequest__Output } from "../../src/wire/generated/watchfanout/v1/ListRequest.ts";
import type { ListResponse } from "../../src/wire/generated/watchfanout/v1/ListResponse.ts";
import type { PutRequest__Output } from "../../src/wire/generated/watchfanout/v1/PutRequest.ts";
import type { PutResponse } from "../../src/wire/generated/watchfanout/v1/PutResponse.ts";
import type { ResourcesRequest__Output } from "../../src/wire/generated/watchfanout/v1/ResourcesRequest.ts";
import type { ResourcesResponse } from "../../src/wire/generated/watchfanout/v1/ResourcesResponse.ts";
import type { SubscribeRequest__Output } from "../../src/wire/generated/watchfanout/v1/SubscribeRequest.ts";
import type { SubscribeResponse } from "../../src/wire/generated/watchfanout/v1/SubscribeResponse.ts";
import type { TransactRequest__Output } from "../../src/wire/generated/watchfanout/v1/TransactRequest.ts";
import type { TransactResponse } from "../../src/wire/generated/watchfanout/v1/TransactResponse.ts";
import type { WatchRequest__Output } from "../../src/wire/generated/watchfanout/v1/WatchRequest.ts";
import type { WatchResponse } from "../../src/wire/generated/watchfanout/v1/WatchResponse.ts";
import { listWatchService, writeService } from "../../src/wire/services.ts";

/** A server with scripted responses. An unscripted call is INVALID_REQUEST, and of Subscribe UNIMPLEMENTED. */
export interface Script {
  readonly get?: handleUnaryCall<GetRequest__Output, GetResponse>;
  readonly batchGet?: handleUnaryCall<BatchGetRequest__Output, BatchGetResponse>;
  readonly list?: handleUnaryCall<ListRequest__Output, ListResponse>;
  readonly history?: handleUnaryCall<HistoryRequest__Output, HistoryResponse>;
  readonly resources?: handleUnaryCall<ResourcesRequest__Output, ResourcesResponse>;
  readonly watch?: handleServerStreamingCall<WatchRequest__Output, WatchResponse>;
  readonly subscribe?: handleBidiStreamingCall<SubscribeRequest__Output, SubscribeResponse>;
  readonly put?: handleUnaryCall<PutRequest__Output, PutResponse>;
  readonly delete?: handleUnaryCall<DeleteRequest__Output, DeleteResponse>;
  readonly deletePrefix?: handleUnaryCall<DeletePrefixRequest__Output, DeletePrefixResponse>;
  readonly transact?: handleUnaryCall<TransactRequest__Output, TransactResponse>;
}

export interface ScriptedServer {
  readonly address: string;
  /** Resets every connection. */
  stop(): void;
}

export async function startScriptedServer(
  script: Script,
  credentials: ServerCredentials = ServerCredentials.createInsecure(),
  options: ServerOptions = {},
): Promise<ScriptedServer> {
  const server = new Server(options);
  const unscripted = invalidRequest("method", "This is not in the script.");
  const refuse: handleUnaryCall<unknown, never> = (_, callback) => callback(statusOf(unscripted));
  const refuseStream: Script["watch"] = (call) => endWith(call, unscripted);
  server.addService(listWatchService, {
    Get: script.get ?? refuse,
    BatchGet: script.batchGet ?? refuse,
    List: script.list ?? refuse,
    Watch: script.watch ?? refuseStream,
    History: script.history ?? refuse,
    ...(script.subscribe && { Subscribe: script.subscribe }),
    Resources: script.resources ?? refuse,
  });
  server.addService(writeService, {
    Put: script.put ?? refuse,
    Delete: script.delete ?? refuse,
    DeletePrefix: script.deletePrefix ?? refuse,
    Transact: script.transact ?? refuse,
  });
  const port = await new Promise<number>((resolve, reject) => {
    server.bindAsync("127.0.0.1:0", credentials, (error, bound) =>
      error === null ? resolve(bound) : reject(error),
    );
  });
  return { address: `127.0.0.1:${port}`, stop: () => server.forceShutdown() };
}

/** Ends a stream with `error`, as watch-fanout does. */
export function endWith(
  call: Parameters<handleServerStreamingCall<WatchRequest__Output, WatchResponse>>[0],
  error: WatchFanoutError,
): void {
  call.emit("error", statusOf(error));
}
