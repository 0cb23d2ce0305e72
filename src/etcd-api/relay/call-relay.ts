import { constants, type OutgoingHttpHeaders } from "node:http2";
import { status } from "@grpc/grpc-js";
import { beginRelayedSpan, type ClientSpan } from "../../base/client-span.ts";
import type { WatchFanoutError } from "../../base/errors.ts";
import type { Identity } from "../../identity/identity.ts";
import type { Access } from "../../policy/access.ts";
import { fullAccess } from "../../policy/full-access.ts";
import type { CallContext } from "../../server/calls/call-context.ts";
import { inSpanOf } from "../../server/calls/call-span.ts";
import { outOfRequestRoom, refused, tookTooLong } from "../../server/calls/refusals.ts";
import type { RelayedCall } from "../../server/calls/relayed-methods.ts";
import type { CallOwner } from "../../server/limits/callers.ts";
import { nextStreamId, type OpenStream } from "../../server/limits/open-streams.ts";
import type { SendReservation } from "../../server/limits/send-reservation.ts";
import { statusOf, type WireStatus } from "../../wire/errors.ts";
import type { MethodKind } from "../contract/methods.ts";
import type { Upstream } from "../upstream/upstream.ts";
import type { UpstreamConnection } from "../upstream/upstream-connection.ts";
import type { CallMaintenance, RelayedOrCached } from "./call-maintenance.ts";
import { RequestRelay } from "./request-relay.ts";
import { ResponseRelay, type Rewrite } from "./response-relay.ts";

/** The text after which etcd's clientv3 repeats even a write: nothing of the call has reached etcd. */
export const noConnection = "there is no connection available";

/** etcd's own text for calls that it ends when it shuts down. */
export const stopped = "etcdserver: server stopped";

/** What the relay of a call is made of. */
export interface CallRelayDeps {
  /** `package.Service/Method`, one of a fixed number of names. */
  readonly method: string;
  readonly upstream: Upstream;
  readonly maintenance: CallMaintenance<RelayedOrCached>;
  readonly context: CallContext;
  readonly kind: MethodKind;
  /** Gets the first bytes of the response. */
  readonly onFirstBytes: ((bytes: Buffer) => void) | undefined;
  readonly rewrite: Rewrite | undefined;
  /** The beginning of the request, if that has been read. The rest is paused. */
  readonly received?: Buffer | undefined;
}

/**
 * One call, passed to etcd on a stream of its own: what the client sends goes to etcd, what etcd sends goes to the
 * client, and when one of them ends or cancels the call, so does the other. Nothing is parsed or repeated.
 */
export class CallRelay implements OpenStream, RelayedOrCached {
  readonly id = nextStreamId();
  readonly streamKind = "etcd call";
  readonly connection: object;
  readonly owner: CallOwner;
  readonly identity: Identity;
  readonly access: readonly Access[] | undefined;
  readonly #call: RelayedCall;
  readonly #headers: OutgoingHttpHeaders;
  readonly #deps: CallRelayDeps;
  readonly #openedAt: number;
  #request: RequestRelay | undefined;
  #response: ResponseRelay | undefined;
  #upstreamConnection: UpstreamConnection | undefined;
  /** Of the call at etcd; undefined: it is not recorded, or has ended. */
  #span: ClientSpan | undefined;
  #isOver = false;
  /** The responses sent at the last check at which that had changed, and when that was. */
  #seenSent = 0;
  #seenAt = 0;
  /** The charge for what a slow client has not accepted. */
  #unsent: SendReservation | undefined;

  constructor(call: RelayedCall, headers: OutgoingHttpHeaders, deps: CallRelayDeps) {
    const { authorizer, clock } = deps.context;
    this.connection = call.connection;
    this.owner = call.owner;
    this.identity = call.identity;
    this.access = authorizer.hasPolicy ? fullAccess : undefined;
    this.#call = call;
    this.#headers = headers;
    this.#deps = deps;
    this.#openedAt = clock.now();
  }

  /** How its method answers. */
  get kind(): MethodKind {
    return this.#deps.kind;
  }

  get sent(): number {
    return this.#response?.sent ?? 0;
  }

  get heldBytes(): number {
    return this.#response?.heldBytes ?? 0;
  }

  /** Starts the call at etcd, or ends it. */
  start(): void {
    const { context, maintenance, upstream } = this.#deps;
    const { streams, requestPool, maxUnreadBytesPerConnection } = context;
    if (this.#call.isOver) return;
    const refusal = streams.makeRoom(this.owner);
    if (refusal !== undefined) {
      this.#call.end(resumable(refusal));
      return;
    }
    streams.add(this);
    maintenance.add(this);
    this.#call.onOver(() => this.#release());
    this.#request = new RequestRelay(this.#call.request, requestPool, this.connection, () =>
      this.#end(outOfRequestRoom(maxUnreadBytesPerConnection)),
    );
    this.#request.start(this.#deps.received);
    const connection = upstream.available();
    if (connection === undefined) this.#connect();
    else this.#open(connection);
  }

  /** For the bounds of open streams, and when a credential or right is lost. */
  evict(error: WatchFanoutError): void {
    this.#end(resumable(error));
  }

  /** The server shuts down: ends a call that might not end by itself. Its client resumes elsewhere. */
  drain(): void {
    if (this.kind !== "unary") this.#end(refused(status.UNAVAILABLE, stopped));
  }

  check(now: number): void {
    const { context, kind } = this.#deps;
    const response = this.#response;
    const { requestMs, responseFlushMs, defences } = context;
    if (kind === "unary" && this.#request?.hasEnded === false) {
      if (now - this.#openedAt < requestMs) return;
      defences?.count("slow_request", this.connection);
      this.#end(tookTooLong(requestMs));
    } else if (response?.isPaced === true) {
      this.#seenAt = now;
      this.#chargeUnsent(response.heldBytes);
    } else if (response?.isSending !== true || response.sent !== this.#seenSent) {
      this.#seenSent = response?.sent ?? 0;
      this.#seenAt = now;
      this.#releaseUnsent();
    } else if (now - this.#seenAt >= responseFlushMs) {
      defences?.count("slow_response", this.connection);
      this.#cut();
    } else {
      this.#chargeUnsent(response.heldBytes);
    }
  }

  #connect(): void {
    const { upstream } = this.#deps;
    upstream.connect().then(
      () => {
        if (this.#isOver || this.#call.isOver) return;
        const connection = upstream.available();
        if (connection === undefined) this.#connect();
        else this.#open(connection);
      },
      () => this.#end(refused(status.UNAVAILABLE, noConnection)),
    );
  }

  #open(connection: UpstreamConnection): void {
    const { context, onFirstBytes, rewrite } = this.#deps;
    if (this.#call.span !== undefined) this.#beginSpan();
    const stream = connection.request(this.#headers);
    this.#upstreamConnection = connection;
    this.#response = new ResponseRelay(this.#call, stream, {
      onFirstBytes,
      rewrite,
      pacing: context.callerLimits.sendPacing,
      onEnd: (trailers) => {
        this.#endSpan(Number(trailers["grpc-status"] ?? status.UNKNOWN));
        this.#request?.stop();
      },
      onCut: (rstCode) => this.#onCut(rstCode),
    });
    this.#request?.attach(stream);
  }

  #beginSpan(): void {
    const { method, upstream } = this.#deps;
    this.#span = inSpanOf(this.#call, () =>
      beginRelayedSpan(method, upstream.endpoint, this.#headers),
    );
  }

  #endSpan(code: number): void {
    this.#span?.ended(code === status.OK ? null : { code });
    this.#span = undefined;
  }

  /** etcd has ended its stream without a status. */
  #onCut(rstCode: number): void {
    this.#endSpan(status.UNAVAILABLE);
    const lost = this.#upstreamConnection?.lost;
    if (rstCode === constants.NGHTTP2_REFUSED_STREAM) {
      // etcd has not looked at it.
      this.#end(refused(status.UNAVAILABLE, noConnection));
    } else if (lost !== undefined) {
      this.#end(refused(status.UNAVAILABLE, `the connection to etcd was lost: ${lost}`));
    } else if (rstCode === constants.NGHTTP2_NO_ERROR) {
      const details = "etcd closed the stream without sending trailers";
      this.#end(refused(status.INTERNAL, details));
    } else {
      this.#request?.stop();
      this.#call.resetWith(rstCode);
    }
  }

  /** Ends the call at both ends. */
  #end(why: WireStatus): void {
    if (this.#isOver) return;
    this.#call.end(why);
    this.#release();
  }

  /**
   * Ends a call whose client accepts nothing: no status could be sent. Clients of gRPC see REFUSED_STREAM as UNAVAILABLE,
   * after which etcd's clients resume a watch; any other end of a watch is final for them.
   */
  #cut(): void {
    this.#call.resetWith(constants.NGHTTP2_REFUSED_STREAM);
    this.#release();
  }

  /** Idempotent. */
  #release(): void {
    if (this.#isOver) return;
    this.#isOver = true;
    this.#endSpan(status.CANCELLED);
    const { context, maintenance } = this.#deps;
    context.streams.delete(this);
    maintenance.delete(this);
    this.#releaseUnsent();
    this.#request?.stop();
    this.#response?.stop();
  }

  /** Charges what the client has not accepted for a while. On eviction the call is cut. */
  #chargeUnsent(bytes: number): void {
    if (this.#unsent?.bytes === bytes) return;
    this.#releaseUnsent();
    this.#unsent = this.#deps.context.sendBudget.force(this.connection);
    this.#unsent.send([], () => this.#cut(), bytes);
  }

  #releaseUnsent(): void {
    this.#unsent?.release();
    this.#unsent = undefined;
  }
}

/**
 * The status of a call that was refused or ended for lack of something here. RESOURCE_EXHAUSTED would be final for a watch
 * of etcd's clients, while after UNAVAILABLE they resume it.
 */
export function resumable(error: WatchFanoutError): WireStatus {
  const { code, details, metadata } = statusOf(error);
  return {
    code: code === status.RESOURCE_EXHAUSTED ? status.UNAVAILABLE : code,
    details,
    metadata,
  };
}
