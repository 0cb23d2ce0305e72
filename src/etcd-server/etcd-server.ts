import {
  type handleBidiStreamingCall,
  type handleServerStreamingCall,
  type handleUnaryCall,
  Server,
  ServerCredentials,
  type ServerDuplexStream,
  ServerInterceptingCall,
  type ServerInterceptor,
  status,
} from "@grpc/grpc-js";
import type { Logger } from "pino";
import { hasReason, messageOf } from "../base/errors.ts";
import { etcdMethods } from "../etcd/wire/methods.ts";
import { KvService } from "./kv/kv-service.ts";
import { LeaseService } from "./lease-service.ts";
import { MaintenanceService, unimplementedMethod } from "./maintenance.ts";
import { asStatus, etcdErrors, type StatusError, toEtcdError } from "./protocol/errors.ts";
import type { ServedStore } from "./protocol/served-store.ts";
import { StoreWatchCall } from "./watch/store-watch-call.ts";

export interface EtcdServerOptions {
  readonly served: ServedStore;
  /** The key by which relays learn the id of the history. It can be read, but is in no range. */
  readonly historyKey: Buffer;
  /** Where clients reach the service, for MemberList. */
  readonly clientUrl: () => string;
  /** Interval of the progress notifications of idle watches, in milliseconds. */
  readonly progressIntervalMs: number;
  readonly logger: Logger;
}

/** Maximum size of a message, in bytes: as etcd, 512 KiB above that of a write. */
const maxMessageBytes = 2 * 1024 ** 2;

/** Maximum number of calls on one connection. */
const maxStreams = 1_000;

/** Answers a request, or rejects; the signal is aborted when the client does not wait any more. */
type Unary = (message: Buffer, signal: AbortSignal) => Promise<Buffer>;

/**
 * etcd's API over the embedded store, on a Unix socket of this process. A client that can connect may do everything: what
 * others reach is the etcd API in front of it (`EtcdApi`), with its rights, limits and caches.
 */
export class EtcdServer {
  readonly #options: EtcdServerOptions;
  readonly #server = new Server({
    "grpc.max_receive_message_length": maxMessageBytes,
    "grpc.max_send_message_length": -1,
    "grpc.max_concurrent_streams": maxStreams,
    interceptors: [withoutText],
  });
  readonly #watches = new Set<StoreWatchCall>();
  readonly #maintenance: MaintenanceService;

  constructor(options: EtcdServerOptions) {
    const { served, clientUrl } = options;
    this.#options = options;
    this.#maintenance = new MaintenanceService(served, clientUrl);
    this.#register();
  }

  /** Listens. Rejects with an Error with a sentence if the socket can't be made. */
  async listen(path: string): Promise<void> {
    const { promise, resolve, reject } = Promise.withResolvers<void>();
    this.#server.bindAsync(`unix:${path}`, ServerCredentials.createInsecure(), (error) => {
      if (error === null) resolve();
      else reject(error);
    });
    await promise;
  }

  /** Ends all calls, with UNAVAILABLE. Idempotent. */
  close(): void {
    for (const watch of this.#watches) watch.end(etcdErrors.stopped());
    this.#server.forceShutdown();
  }

  #register(): void {
    const { served, historyKey } = this.#options;
    const [kv, lease] = [new KvService(served, historyKey), new LeaseService(served)];
    const maintenance = this.#maintenance;
    const unary: Readonly<Record<string, Unary>> = {
      "/etcdserverpb.KV/Range": (message, signal) => kv.range(message, signal),
      "/etcdserverpb.KV/Put": (message) => kv.put(message),
      "/etcdserverpb.KV/DeleteRange": (message) => kv.deleteRange(message),
      "/etcdserverpb.KV/Txn": (message, signal) => kv.txn(message, signal),
      "/etcdserverpb.KV/Compact": (message) => kv.compact(message),
      "/etcdserverpb.Lease/LeaseGrant": (message) => lease.grant(message),
      "/etcdserverpb.Lease/LeaseRevoke": (message) => lease.revoke(message),
      "/etcdserverpb.Lease/LeaseTimeToLive": (message) => lease.timeToLive(message),
      "/etcdserverpb.Lease/LeaseLeases": () => lease.leases(),
      "/etcdserverpb.Cluster/MemberList": () => maintenance.memberList(),
      "/etcdserverpb.Maintenance/Status": () => maintenance.status(),
      "/etcdserverpb.Maintenance/Alarm": (message) => maintenance.alarm(message),
      "/etcdserverpb.Maintenance/Defragment": () => maintenance.defragment(),
      "/etcdserverpb.Maintenance/Hash": () => maintenance.hash(),
      "/etcdserverpb.Maintenance/HashKV": (message) => maintenance.hashKv(message),
      "/etcdserverpb.Auth/AuthStatus": () => maintenance.authStatus(),
      "/etcdserverpb.Auth/Authenticate": () => maintenance.authenticate(),
    };
    for (const path of etcdMethods.keys()) {
      const method = unary[path];
      if (method !== undefined) this.#serve(path, this.#unary(path, method), "unary");
      else if (path === "/etcdserverpb.Watch/Watch") this.#serve(path, this.#watch, "bidi");
      else if (path === "/etcdserverpb.Lease/LeaseKeepAlive") {
        this.#serve(
          path,
          this.#eachOf((message) => lease.keepAlive(message)),
          "bidi",
        );
      } else this.#serve(path, refusing(path), "serverStream");
    }
  }

  #serve(
    path: string,
    handler:
      | handleUnaryCall<Buffer, Buffer>
      | handleBidiStreamingCall<Buffer, Buffer>
      | handleServerStreamingCall<Buffer, Buffer>,
    kind: "unary" | "bidi" | "serverStream",
  ): void {
    const same = (message: Buffer): Buffer => message;
    this.#server.register(path, handler, same, same, kind);
  }

  #unary(path: string, method: Unary): handleUnaryCall<Buffer, Buffer> {
    return (call, callback) => {
      const aborted = new AbortController();
      call.on("cancelled", () => aborted.abort());
      method(call.request, aborted.signal).then(
        (response) => callback(null, response),
        (error: unknown) => callback(this.#statusOf(error, path, aborted.signal)),
      );
    };
  }

  readonly #watch = (call: ServerDuplexStream<Buffer, Buffer>): void => {
    const watch = new StoreWatchCall(call, {
      served: this.#options.served,
      progressIntervalMs: this.#options.progressIntervalMs,
      onEnd: () => this.#watches.delete(watch),
    });
    this.#watches.add(watch);
    watch.start();
  };

  /** Answers each request of a stream, one after another. */
  #eachOf(answer: (message: Buffer) => Promise<Buffer>): handleBidiStreamingCall<Buffer, Buffer> {
    return (call) => {
      call.on("error", () => {});
      call.on("end", () => call.end());
      call.on("data", (message: Buffer) => {
        call.pause();
        answer(message).then(
          (response) => call.write(response, () => call.resume()),
          (error: unknown) => call.emit("error", this.#statusOf(error, call.getPath())),
        );
      });
    };
  }

  /** `signal`: aborted if its client has cancelled it, so that it is no failure. */
  #statusOf(thrown: unknown, path: string, signal?: AbortSignal): StatusError {
    if (hasReason(thrown, "STORAGE_FULL")) this.#maintenance.refusedWrite();
    const error = toEtcdError(thrown);
    if (error.cause !== undefined && signal?.aborted !== true) {
      const why = messageOf(error.cause);
      this.#options.logger.error({ method: path.slice(1), why }, "a call of etcd's API failed");
    }
    return asStatus(error);
  }
}

/** A success has no text, as from etcd. */
const withoutText: ServerInterceptor = (_method, call) =>
  new ServerInterceptingCall(call, {
    sendStatus: (sent, next) => next(sent.code === status.OK ? { ...sent, details: "" } : sent),
  });

/** Whatever the method's kind, its client gets the status. */
function refusing(path: string): handleServerStreamingCall<Buffer, Buffer> {
  return (call) => void call.emit("error", asStatus(unimplementedMethod(path.slice(1))));
}
