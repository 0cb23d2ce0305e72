import type { IncomingHttpHeaders } from "node:http2";
import { status } from "@grpc/grpc-js";
import { askUpstream, type UpstreamAnswer } from "../../etcd/client/upstream-call.ts";
import {
  isKeyMethod,
  isLeaseMethod,
  type LeaseMethod,
  notKeptAlive,
  readLeaseRequest,
} from "../../etcd/wire/checked-requests.ts";
import { headerField, raisedTo } from "../../etcd/wire/response-header.ts";
import { type Access, etcdMethodDenied, verbs } from "../../policy/access.ts";
import type { RawCall } from "../../server/calls/methods.ts";
import { RefusedRequest } from "../../server/calls/server-call.ts";
import type { ServiceContext } from "../../server/calls/service-context.ts";
import { statusOf, type WireStatus } from "../../wire/errors.ts";
import type { EtcdServiceDeps } from "../calls/etcd-call.ts";
import { AnsweredCall } from "./answered-call.ts";
import { CheckedCall } from "./checked-call.ts";
import type { KeyRights } from "./key-rights.ts";
import {
  keepingAlive,
  LeaseRights,
  type LimitedCall,
  Questions,
  statusOfAnswer,
  timeToLive,
} from "./lease-rights.ts";

const authenticatePath = "/etcdserverpb.Auth/Authenticate";

/** Number of passwords that etcd checks at once, which takes it about 50 ms of a core each: of all callers, and of one. */
const passwords = { concurrent: 4, concurrentPerGroup: 2 };

/** How long a password may wait for those before it, in milliseconds: many clients may begin at once. */
const maxWaitMs = 30_000;

/** What a call is, and how it is handled once its request is allowed. */
export interface LimitedCallOptions {
  readonly path: string;
  readonly mayWrite: boolean;
  readonly rights: KeyRights;
  /** Handles the call with its request, with gRPC's framing, and the rights that it needs while it is open. */
  readonly proceed: (request: Buffer, access: readonly Access[]) => void;
}

/** Whether a method is for callers that may not do everything, too: its requests are checked. Watch is checked by its own call. */
export function isCheckedMethod(path: string): boolean {
  return isKeyMethod(path) || isLeaseMethod(path) || path === authenticatePath;
}

/** The calls of callers that may not do everything. What all of them share. */
export class LimitedCalls {
  readonly #deps: EtcdServiceDeps;
  readonly #leases: LeaseRights;
  readonly #passwords: Questions;

  constructor(deps: EtcdServiceDeps) {
    this.#deps = deps;
    this.#passwords = new Questions(passwords, maxWaitMs, deps.clock);
    this.#leases = new LeaseRights(this.#ask, deps.clock, deps.upstream.namespace);
  }

  /** Checks a call and handles it, or refuses it. */
  start(
    call: RawCall,
    metadata: IncomingHttpHeaders,
    context: ServiceContext,
    options: LimitedCallOptions,
  ): void {
    const { path, mayWrite, rights } = options;
    const verb = mayWrite ? "put" : "get";
    if (!isCheckedMethod(path)) {
      call.end(statusOf(etcdMethodDenied(call.identity)));
      return;
    }
    const { calls } = this.#deps;
    const checked = { ...options, calls, metadata, leases: this.#leases };
    if (isKeyMethod(path)) {
      new CheckedCall(call, context, { ...checked, path }).start();
      return;
    }
    const isLease = isLeaseMethod(path);
    const refusal = rights.refusalWithout(isLease ? ["put"] : verbs, verb);
    if (refusal !== undefined) {
      call.end(statusOf(refusal));
      return;
    }
    if (isLease && !isAnswered(path)) {
      new CheckedCall(call, context, { ...checked, path }).start();
      return;
    }
    rights.recordAllowed(verb, { prefix: "" });
    const answer = (request: Buffer, signal: AbortSignal): Promise<Buffer | WireStatus> => {
      const limited = { call, metadata, rights, signal };
      if (isLease) return this.#answer(limited, path, request);
      return this.#authenticate(limited, request);
    };
    const isStream = path === "/etcdserverpb.Lease/LeaseKeepAlive";
    new AnsweredCall(call, context, { path, isStream, calls, answer }).start();
  }

  /** Answers a request of LeaseKeepAlive or LeaseTimeToLive. */
  async #answer(
    limited: LimitedCall,
    path: LeaseMethod,
    request: Buffer,
  ): Promise<Buffer | WireStatus> {
    const { rights, metadata } = limited;
    const read = readLeaseRequest(path, request);
    const isKeepAlive = path === "/etcdserverpb.Lease/LeaseKeepAlive";
    if (read === undefined) return statusOf(rights.refuseUnread(isKeepAlive));
    // The policy may have changed since the stream was opened.
    const lacking = rights.refusalWithout(["put"], isKeepAlive ? "put" : "get");
    if (lacking !== undefined) return statusOf(lacking);
    const { lease, hasKeys } = read;
    if (hasKeys) return this.#leases.readKeys(limited, lease);
    const use = isKeepAlive ? keepingAlive : timeToLive;
    const refusal = await this.#leases.refusal(limited, lease, use).catch(refusalByEtcd);
    // The stream has other leases as well.
    if (refusal !== undefined) return isKeepAlive ? this.#notKeptAlive(lease) : refusal;
    const answer = answered(await this.#ask(path, metadata, request));
    // The leader answers, and the header is that of the member that was asked, which may be behind.
    return Buffer.isBuffer(answer) ? raisedTo(answer, this.#deps.newestHeader.floor) : answer;
  }

  #notKeptAlive(lease: bigint): Buffer {
    const { header, floor } = this.#deps.newestHeader;
    const ofMember = header === undefined ? Buffer.alloc(0) : headerField(header, floor);
    return Buffer.concat([ofMember, notKeptAlive(lease)]);
  }

  #authenticate(limited: LimitedCall, request: Buffer): Promise<Buffer | WireStatus> {
    return this.#passwords.inTurn(limited, async () =>
      answered(await this.#ask(authenticatePath, limited.metadata, request)),
    );
  }

  readonly #ask = async (
    path: string,
    metadata: IncomingHttpHeaders,
    request: Buffer,
    maxBytes?: number,
  ): Promise<UpstreamAnswer> => {
    const { upstream, clock, newestHeader } = this.#deps;
    const answer = await askUpstream(upstream, path, metadata, request, clock, maxBytes);
    const { message, source } = answer;
    if (message !== undefined && source !== undefined) newestHeader.observeMessage(source, message);
    return answer;
  };
}

/** Whether its requests are answered here, each with a question to etcd. */
function isAnswered(path: LeaseMethod): boolean {
  return path.endsWith("/LeaseKeepAlive") || path.endsWith("/LeaseTimeToLive");
}

/** The status if etcd does not allow its user to read the keys of the lease. Throws all else. */
function refusalByEtcd(error: unknown): WireStatus {
  if (error instanceof RefusedRequest && error.status.code === status.PERMISSION_DENIED)
    return error.status;
  throw error;
}

function answered(answer: UpstreamAnswer): Buffer | WireStatus {
  return answer.message ?? statusOfAnswer(answer);
}
