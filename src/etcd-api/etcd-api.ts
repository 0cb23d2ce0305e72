import type { Logger } from "pino";
import type { KeyPair } from "../base/certificate-store.ts";
import type { Clock } from "../base/clock.ts";
import { runInTimeSlices } from "../base/event-loop-turns.ts";
import { type Bearer, leftOutKeyHeader, requestHeaders } from "../etcd/client/call-headers.ts";
import {
  type EtcdTls,
  type Keepalive,
  type MemberCertificates,
  memberCertificates,
} from "../etcd/client/member.ts";
import { Upstream, type UpstreamOutage } from "../etcd/client/upstream.ts";
import type { ConnectInProcess } from "../etcd/client/upstream-member.ts";
import { memberListPath, withClientUrls } from "../etcd/wire/member-list.ts";
import { type EtcdMethod, etcdMethodAt, etcdMethods } from "../etcd/wire/methods.ts";
import { behindRoom, type MessageTranslation, Namespace } from "../etcd/wire/namespace.ts";
import { headerField, type ResponseHeader, raisedTo } from "../etcd/wire/response-header.ts";
import type { Access } from "../policy/access.ts";
import type { HttpMethod, RawCall, RawMethod, RawServices } from "../server/calls/methods.ts";
import type { ServiceContext } from "../server/calls/service-context.ts";
import { Rounds } from "../server/kernel/rounds.ts";
import { type CachedResource, CachedResources } from "./cached/cached-resources.ts";
import { NewestHeader } from "./cached/newest-header.ts";
import type { EtcdCall } from "./calls/etcd-call.ts";
import { ForwardedCall, type ForwardedCallDeps } from "./calls/forwarded-call.ts";
import { MemberRouting } from "./calls/member-routing.ts";
import { Gateway } from "./gateway/gateway.ts";
import { RangeCall } from "./range/range-call.ts";
import {
  isRangePath,
  type RangeCounts,
  type RangePath,
  RangeService,
} from "./range/range-service.ts";
import type { Registration } from "./registration.ts";
import { AnsweredCall } from "./rights/answered-call.ts";
import { KeyRights } from "./rights/key-rights.ts";
import { isCheckedMethod, LimitedCalls } from "./rights/limited-calls.ts";
import { watchPath } from "./watch/member-monitor.ts";
import { WatchCall } from "./watch/watch-call.ts";
import { type WatchCounts, WatchService } from "./watch/watch-service.ts";

export interface EtcdApiOptions {
  /** At least one, such as "http://127.0.0.1:2379", all with the same scheme. */
  readonly endpoints: readonly string[];
  /** Present if the endpoints have the scheme https. */
  readonly tls: EtcdTls | undefined;
  /** Whether `replaceMembers` may be called. Default: false. */
  readonly syncs?: boolean | undefined;
  /** Default: after 7 s, for 3 s, on connections with calls. */
  readonly keepalive?: Keepalive | undefined;
  /** The token of this process, if the endpoints are those of another watch-fanout. Default: they are etcd's. */
  readonly bearer?: Bearer | undefined;
  /** Connects to the endpoint, which is in this process. Default: by HTTP/2. */
  readonly connect?: ConnectInProcess | undefined;
  /** Serves only the keys with this prefix, without it. Default: all. */
  readonly namespace?: Buffer | undefined;
  /** Whether other processes serve the same address, through the same endpoint. Default: false. */
  readonly hasSiblings?: boolean | undefined;
  /** The URL that MemberList names for each member. Undefined: those of the members. */
  readonly advertiseClientUrl?: string | undefined;
  /** Interval of the progress notifications of watches, in milliseconds. */
  readonly progressIntervalMs: number;
  readonly clock: Clock;
  readonly logger: Logger;
}

/** How much is open, and what is known of etcd. */
export interface EtcdApiStats {
  /** Open calls. */
  readonly calls: number;
  /** Open connections to etcd. */
  readonly connections: number;
  /** The highest revision in a response that was forwarded; 0 before the first. */
  readonly revision: number;
  /** Open watches of streams that are not forwarded as a whole, and those of them that etcd serves. */
  readonly watches: Readonly<WatchCounts>;
  /** Calls of Range that were read here. */
  readonly ranges: Readonly<RangeCounts>;
}

/** Interval of the checks of each open call, in milliseconds. */
const checkIntervalMs = 1_000;

const compactPath = "/etcdserverpb.KV/Compact";

/** Methods whose header has the revision of the member that was asked, while another one answers. */
const ofLaggingMembers: ReadonlySet<string> = new Set(
  ["LeaseKeepAlive", "LeaseTimeToLive"].map((name) => `/etcdserverpb.Lease/${name}`),
);

/** The beginning of the paths of methods that change the rights of users. */
const authPrefix = "/etcdserverpb.Auth/";

/** etcd's own gRPC API. Watches and reads of cached resources are served from their caches; all else is passed to etcd, unparsed. */
export class EtcdApi implements RawServices {
  readonly #clock: Clock;
  /** For the connections to etcd; undefined: plain text. */
  readonly certificates: MemberCertificates | undefined;
  readonly #upstream: Upstream;
  readonly #advertiseClientUrl: string | undefined;
  /** Whether there may be several members. */
  readonly #hasMembers: boolean;
  /** The open calls, which are checked from time to time. */
  readonly #calls: Rounds<EtcdCall>;
  readonly #cached: CachedResources;
  readonly #newestHeader = new NewestHeader();
  #registration: Pick<Registration, "memberList"> | undefined;
  readonly #routing: MemberRouting;
  readonly #watches: WatchService;
  readonly #ranges: RangeService;
  readonly #limited: LimitedCalls;
  readonly #gateway: Gateway;
  /** Those that are known. */
  readonly #methods: ReadonlyMap<string, RawMethod>;

  /** Throws an Error with a sentence if a certificate is unusable. Connects with the first call. */
  constructor(options: EtcdApiOptions) {
    const { endpoints, tls, keepalive, bearer, connect, clock, logger } = options;
    const { advertiseClientUrl, progressIntervalMs } = options;
    this.#clock = clock;
    const certificates = tls && memberCertificates(tls);
    this.certificates = certificates;
    const namespace = options.namespace && new Namespace(options.namespace);
    const connections = { endpoints, certificates, keepalive, bearer, connect };
    this.#upstream = new Upstream({ ...connections, namespace, clock, logger });
    this.#routing = new MemberRouting(this.#upstream, this.#newestHeader, clock);
    this.#advertiseClientUrl = advertiseClientUrl;
    this.#hasMembers = bearer === undefined && (endpoints.length > 1 || options.syncs === true);
    this.#calls = new Rounds(clock, {
      ...{ intervalMs: checkIntervalMs, visitsPerStep: 64 },
      visit: (call) => call.check(clock.now()),
    });
    this.#cached = new CachedResources(clock, this.#newestHeader, options.hasSiblings);
    const shared = {
      ...{ calls: this.#calls, cached: this.#cached, newestHeader: this.#newestHeader },
      ...{ upstream: this.#upstream, clock },
    };
    this.#watches = new WatchService({ ...shared, progressIntervalMs });
    this.#ranges = new RangeService(shared);
    this.#limited = new LimitedCalls(shared);
    this.#methods = new Map(
      Array.from(etcdMethods, ([path, method]) => [
        path,
        this.#methodOf(path, path.slice(1), method),
      ]),
    );
    this.#gateway = new Gateway((path) => this.methodAt(path));
  }

  /** The newest header of the responses of the member in use; undefined before the first. */
  get newestHeader(): ResponseHeader | undefined {
    return this.#newestHeader.header;
  }

  /** The member of etcd that calls go to. */
  get endpoint(): string {
    return this.#upstream.endpoint;
  }

  /** Resolves if the member that calls go to has a leader. Rejects with an Error otherwise. */
  confirmLeader(): Promise<void> {
    return this.#watches.confirmLeader();
  }

  /** Resolves if etcd answers a linearizable read, and opens watches. Rejects with an Error otherwise. */
  async confirmForwarding(): Promise<void> {
    const failure = await this.#routing.confirmRead();
    if (failure !== undefined) throw new Error(`a read failed: ${failure}`);
    await this.confirmLeader();
  }

  /** That etcd can't be reached, as calls have shown in the last minute. */
  get outage(): UpstreamOutage | undefined {
    return this.#upstream.outage;
  }

  stats(): EtcdApiStats {
    return {
      calls: this.#calls.size,
      connections: this.#upstream.connections,
      revision: this.#newestHeader.floor,
      watches: this.#watches.counts,
      ranges: this.#ranges.counts,
    };
  }

  /**
   * Serves watches and reads of these resources from their caches, of calls that are made from now on. `isOpen`: clients
   * without a credential may have what the caches have, as they were filled without a user. Otherwise only watches of
   * clients with a credential are served from them.
   */
  serve(resources: readonly CachedResource[], isOpen: boolean = true): void {
    this.#cached.serve(resources, isOpen);
  }

  /** Answers MemberList with what is registered. */
  nameRegistered(registration: Pick<Registration, "memberList">): void {
    this.#registration = registration;
  }

  /** Replaces the members that calls go to. At least one, with the scheme of those before. */
  replaceMembers(endpoints: readonly string[]): void {
    this.#upstream.replaceMembers(endpoints);
  }

  methodAt(path: string): RawMethod | undefined {
    const known = this.#methods.get(path);
    if (known !== undefined) return known;
    // Where its keys are is not known either.
    if (this.#upstream.namespace !== undefined) return undefined;
    const method = etcdMethodAt(path);
    return method && this.#methodOf(path, "etcdserverpb/unknown", method);
  }

  httpMethodAt(target: string, verb: string): HttpMethod | undefined {
    return this.#gateway.methodAt(target, verb);
  }

  drain(): void {
    runInTimeSlices(this.#clock, this.#drainAll());
  }

  /** Replaces the client certificate and its key, for new connections. Throws as `EtcdClient.replaceCertificate`. */
  replaceCertificate(pair: KeyPair): void {
    this.certificates?.store.replacePair(pair);
  }

  /** Replaces the authorities of etcd's certificates, for new connections. Throws as `replaceCertificate`. */
  replaceAuthorities(authorities: Buffer): void {
    this.certificates?.store.replaceAuthorities(authorities);
  }

  /** Ends all calls. Idempotent. */
  close(): void {
    this.#watches.close();
    this.#upstream.close();
  }

  *#drainAll(): Generator<void, void, void> {
    for (const call of this.#calls) {
      call.drain();
      yield;
    }
  }

  /** `label`: its name in metrics. */
  #methodOf(path: string, label: string, method: EtcdMethod): RawMethod {
    const { kind, mayWrite, isRepeatable } = method;
    const isStreaming = kind !== "unary";
    const observe = this.#observerOf(path, method);
    const { namespace } = this.#upstream;
    const url = path === memberListPath ? this.#advertiseClientUrl : undefined;
    const translation =
      url === undefined
        ? this.#translationOf(path)
        : { response: behindRoom((message) => withClientUrls(message, url)) };
    const serve: RawMethod["serve"] = (call, metadata, context) => {
      /** `received`: the beginning of the request, if that has been read. */
      const forward = (received?: Buffer, access?: readonly Access[]): void => {
        const headers = requestHeaders(path, metadata);
        // A compressed response could not be translated.
        if (translation !== undefined) delete headers["grpc-accept-encoding"];
        // It is the caller's name of a key, and leaves nothing out of what is not cached.
        if (namespace !== undefined) delete headers[leftOutKeyHeader];
        const shared = { upstream: this.#upstream, calls: this.#calls, context };
        const etcd = { etcdMethod: method, routing: this.#routing, observe, translation };
        const deps = { ...shared, ...etcd, method: label, received, access };
        new ForwardedCall(call, headers, deps).start();
      };
      const range = (rangePath: RangePath, access?: readonly Access[]): RangeCall => {
        const forwardRange = (received: Buffer): void => forward(received, access);
        return new RangeCall(
          rangePath,
          call,
          metadata,
          context,
          this.#ranges,
          forwardRange,
          access,
        );
      };
      if (context.authorizer.isLimited(call.identity)) {
        const rights = new KeyRights(context, call, path.slice(1), () => this.#cached);
        if (path === watchPath) {
          new WatchCall(call, metadata, context, this.#watches, rights).start();
        } else {
          const proceed = (request: Buffer, access: readonly Access[]): void => {
            if (isRangePath(path) && this.#ranges.mayServe(metadata))
              range(path, access).startWith(request);
            else forward(request, access);
          };
          this.#limited.start(call, metadata, context, { path, mayWrite, rights, proceed });
        }
      } else if (path === memberListPath && this.#registration !== undefined) {
        this.#nameMembers(call, context, this.#registration);
      } else if (path === watchPath && this.#watches.mayServe(metadata)) {
        new WatchCall(call, metadata, context, this.#watches).start();
      } else if (isRangePath(path) && this.#ranges.mayServe(metadata)) {
        range(path).start();
      } else {
        forward();
      }
    };
    const checksRequests = path === watchPath || isCheckedMethod(path);
    const sheds = isStreaming ? "stream" : "call";
    const facts = { isStreaming, mayWrite, checksRequests, isRepeatable };
    return { name: path.slice(1), label, sheds, ...facts, serve };
  }

  #nameMembers(
    call: RawCall,
    context: ServiceContext,
    registration: Pick<Registration, "memberList">,
  ): void {
    const answer = async (): Promise<Buffer> => {
      const { header } = this.#newestHeader;
      const members = await registration.memberList();
      return header === undefined ? members : Buffer.concat([headerField(header, 0), members]);
    };
    const deps = { path: memberListPath, isStream: false, calls: this.#calls, answer };
    new AnsweredCall(call, context, deps).start();
  }

  /** What changes the messages of a call. Undefined: they are passed on as they are. */
  #translationOf(path: string): MessageTranslation | undefined {
    const translation = this.#upstream.namespace?.translationOf(path);
    if (!this.#hasMembers || !ofLaggingMembers.has(path)) return translation;
    return {
      request: translation?.request,
      response: behindRoom((message) =>
        raisedTo(translation?.response(message) ?? message, this.#newestHeader.floor),
      ),
    };
  }

  /** What reads the headers of the messages of a response. */
  #observerOf(path: string, { mayWrite, header }: EtcdMethod): ForwardedCallDeps["observe"] {
    if (header === undefined) return () => {};
    const changesAccess = mayWrite && path.startsWith(authPrefix);
    return (start, source) => {
      this.#newestHeader.observe(source, start, header);
      if (path === compactPath) this.#cached.compacted();
      if (changesAccess) this.#cached.accessChanged();
    };
  }
}
