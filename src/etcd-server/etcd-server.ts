import type { OutgoingHttpHeaders } from "node:http2";
import { status } from "@grpc/grpc-js";
import type { Logger } from "pino";
import { hasReason, messageOf } from "../base/errors.ts";
import type { ConnectedMember, UpstreamConnection } from "../etcd/client/upstream-connection.ts";
import { frameOf } from "../wire/encode.ts";
import { KvService } from "./kv/kv-service.ts";
import { LeaseService } from "./lease-service.ts";
import { MaintenanceService, unimplementedMethod } from "./maintenance.ts";
import { type EtcdError, etcdErrors, toEtcdError } from "./protocol/errors.ts";
import { type CallHandler, InProcessCall } from "./protocol/in-process-call.ts";
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

/** The method with many requests of one call. */
const keepAlivePath = "/etcdserverpb.Lease/LeaseKeepAlive";

/** Answers a request, or rejects; the signal is aborted when the client does not wait any more. */
type Method = (message: Buffer, signal: AbortSignal) => Promise<Buffer>;

/**
 * etcd's API over the embedded store, for calls of this process. They may do everything: what clients reach is the etcd API in
 * front of it (`EtcdApi`), with its rights, limits and caches.
 */
export class EtcdServer {
  readonly #options: EtcdServerOptions;
  readonly #calls = new Set<InProcessCall>();
  readonly #maintenance: MaintenanceService;
  /** The methods with one response to each request, by their paths. */
  readonly #methods: Readonly<Record<string, Method>>;
  #isClosed = false;

  constructor(options: EtcdServerOptions) {
    const { served, clientUrl, historyKey } = options;
    this.#options = options;
    const maintenance = new MaintenanceService(served, clientUrl);
    const [kv, lease] = [new KvService(served, historyKey), new LeaseService(served)];
    this.#maintenance = maintenance;
    this.#methods = {
      "/etcdserverpb.KV/Range": (message, signal) => kv.range(message, signal),
      "/etcdserverpb.KV/Put": (message, signal) => kv.put(message, signal),
      "/etcdserverpb.KV/DeleteRange": (message, signal) => kv.deleteRange(message, signal),
      "/etcdserverpb.KV/Txn": (message, signal) => kv.txn(message, signal),
      "/etcdserverpb.KV/Compact": (message) => kv.compact(message),
      "/etcdserverpb.Lease/LeaseGrant": (message) => lease.grant(message),
      "/etcdserverpb.Lease/LeaseRevoke": (message) => lease.revoke(message),
      [keepAlivePath]: (message) => lease.keepAlive(message),
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
  }

  /** A connection for calls of `member`, which stands for this server. Throws an Error once it is closed. */
  connect(member: ConnectedMember): UpstreamConnection {
    if (this.#isClosed) throw new Error("the store is closed");
    const server = this;
    return {
      ...{ member, isSilent: false, isUnresponsive: false },
      get hasRoom() {
        return !server.#isClosed;
      },
      get isInUse() {
        return member.isInUse;
      },
      get lost() {
        return server.#isClosed ? "the store is closed" : undefined;
      },
      request: (headers) => this.#request(headers),
      close: () => {},
      destroy: () => this.close(),
    };
  }

  /** Ends all calls, with UNAVAILABLE. Idempotent. */
  close(): void {
    this.#isClosed = true;
    for (const call of this.#calls) this.#fail(call, etcdErrors.stopped());
  }

  #request(headers: OutgoingHttpHeaders): InProcessCall {
    const call = new InProcessCall(String(headers["grpc-encoding"] ?? ""));
    const path = String(headers[":path"]);
    this.#calls.add(call);
    call.on("close", () => this.#calls.delete(call));
    // The caller listens to it then.
    process.nextTick(() => this.#serve(call, path));
    return call;
  }

  #serve(call: InProcessCall, path: string): void {
    const method = this.#methods[path];
    if (method !== undefined) call.serve(this.#answering(call, path, method));
    else if (path === "/etcdserverpb.Watch/Watch") {
      const { served, progressIntervalMs } = this.#options;
      new StoreWatchCall(call, served, progressIntervalMs).start();
    } else this.#fail(call, unimplementedMethod(path.slice(1)));
  }

  /** Answers each request, one after another. Of a call with one response what follows the first is ignored. */
  #answering(call: InProcessCall, path: string, answer: Method): CallHandler {
    const isStream = path === keepAlivePath;
    let gone: AbortController | undefined;
    return {
      take: (message) => {
        call.pauseRequests();
        gone = new AbortController();
        const { signal } = gone;
        answer(message, signal).then(
          (response) => {
            gone = undefined;
            const hasRoom = call.respond(frameOf(response));
            if (!isStream) call.finish(status.OK);
            else if (hasRoom) call.resumeRequests();
          },
          (error: unknown) => this.#failed(call, path, error, signal),
        );
      },
      onRoom: () => call.resumeRequests(),
      requestsEnded: () => {
        if (isStream) call.finish(status.OK);
        else call.finish(status.UNKNOWN, "EOF");
      },
      closed: () => gone?.abort(),
    };
  }

  /** What a method has thrown ends its call. If the call has ended before, which aborts the signal, it is no failure. */
  #failed(call: InProcessCall, path: string, thrown: unknown, signal: AbortSignal): void {
    if (hasReason(thrown, "STORAGE_FULL")) this.#maintenance.refusedWrite();
    const error = toEtcdError(thrown);
    if (error.cause !== undefined && !signal.aborted) {
      const why = messageOf(error.cause);
      this.#options.logger.error({ method: path.slice(1), why }, "a call of etcd's API failed");
    }
    this.#fail(call, error);
  }

  #fail(call: InProcessCall, { code, message }: EtcdError): void {
    call.finish(code, message);
  }
}
