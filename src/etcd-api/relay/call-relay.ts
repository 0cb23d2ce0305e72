import { constants, type OutgoingHttpHeaders } from "node:http2";
import { status } from "@grpc/grpc-js";
import { beginRelayedSpan, type ClientSpan } from "../../base/client-span.ts";
import type { Upstream } from "../../etcd/client/upstream.ts";
import type { UpstreamConnection } from "../../etcd/client/upstream-connection.ts";
import { noConnection, stopped } from "../../etcd/wire/error-texts.ts";
import type { MethodKind } from "../../etcd/wire/methods.ts";
import type { CallContext } from "../../server/calls/call-context.ts";
import { inSpanOf } from "../../server/calls/call-span.ts";
import { refused } from "../../server/calls/refusals.ts";
import type { RelayedCall } from "../../server/calls/relayed-methods.ts";
import { EtcdCall } from "./etcd-call.ts";
import { RequestRelay } from "./request-relay.ts";
import { ResponseRelay, type Rewrite } from "./response-relay.ts";
import type { Rounds } from "./rounds.ts";

/** What the relay of a call is made of. */
export interface CallRelayDeps {
  /** `package.Service/Method`, one of a fixed number of names. */
  readonly method: string;
  readonly upstream: Upstream;
  readonly calls: Rounds<EtcdCall>;
  readonly context: CallContext;
  readonly kind: MethodKind;
  /** Gets the beginning of each message of the response, and the connection that it comes from. */
  readonly observe: (start: Buffer, source: UpstreamConnection) => void;
  readonly rewrite: Rewrite | undefined;
  /** The beginning of the request, if that has been read. The rest is paused. */
  readonly received?: Buffer | undefined;
}

/**
 * One call, passed to etcd on a stream of its own: what the client sends goes to etcd, what etcd sends goes to the
 * client, and when one of them ends or cancels the call, so does the other. Nothing is parsed or repeated.
 */
export class CallRelay extends EtcdCall {
  readonly #headers: OutgoingHttpHeaders;
  readonly #deps: CallRelayDeps;
  #request: RequestRelay | undefined;
  #response: ResponseRelay | undefined;
  #upstreamConnection: UpstreamConnection | undefined;
  /** Of the call at etcd; undefined: it is not recorded, or has ended. */
  #span: ClientSpan | undefined;

  constructor(call: RelayedCall, headers: OutgoingHttpHeaders, deps: CallRelayDeps) {
    super(call, deps.context, deps.calls, "etcd call");
    this.#headers = headers;
    this.#deps = deps;
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
    const { upstream } = this.#deps;
    if (!this.open()) return;
    this.#request = new RequestRelay(this.call.request, (bytes) =>
      this.requestCharge?.resize(bytes),
    );
    this.#request.start(this.#deps.received);
    upstream.whenAvailable({
      isOver: () => this.isOver || this.call.isOver,
      open: (connection) => this.#open(connection),
      fail: () => this.end(refused(status.UNAVAILABLE, noConnection)),
    });
  }

  drain(): void {
    if (this.kind !== "unary") this.end(refused(status.UNAVAILABLE, stopped));
  }

  check(now: number): void {
    const response = this.#response;
    if (this.kind === "unary" && this.#request?.hasEnded === false) this.endIfLate(now);
    else response?.chargeIfStuck(response.heldBytes);
  }

  protected onReleased(): void {
    this.#endSpan(status.CANCELLED);
    this.#request?.stop();
    this.#response?.stop();
  }

  #open(connection: UpstreamConnection): void {
    const { observe, rewrite } = this.#deps;
    if (this.call.span !== undefined) this.#beginSpan();
    const stream = connection.request(this.#headers);
    this.#upstreamConnection = connection;
    this.#response = new ResponseRelay(this.call, stream, this.context, {
      onStart: (start) => observe(start, connection),
      rewrite,
      onEnd: (trailers) => {
        this.#reportIfFull(trailers);
        this.#endSpan(Number(trailers["grpc-status"] ?? status.UNKNOWN));
        this.#request?.stop();
      },
      onCut: (rstCode) => this.#onCut(rstCode),
    });
    this.#request?.attach(stream);
  }

  #beginSpan(): void {
    const { method, upstream } = this.#deps;
    this.#span = inSpanOf(this.call, () =>
      beginRelayedSpan(method, upstream.endpoint, this.#headers),
    );
  }

  #endSpan(code: number): void {
    this.#span?.ended(code === status.OK ? null : { code });
    this.#span = undefined;
  }

  /** etcd refuses what it has no room for with RESOURCE_EXHAUSTED, as it does other things. */
  #reportIfFull(trailers: OutgoingHttpHeaders): void {
    if (Number(trailers["grpc-status"]) !== status.RESOURCE_EXHAUSTED) return;
    const details = String(trailers["grpc-message"] ?? "");
    if (!details.includes("database space exceeded")) return;
    this.context.fullStore?.report(this.#deps.method, details);
  }

  /** etcd has ended its stream without a status. */
  #onCut(rstCode: number): void {
    this.#endSpan(status.UNAVAILABLE);
    const lost = this.#upstreamConnection?.lost;
    if (rstCode === constants.NGHTTP2_REFUSED_STREAM) {
      // Without a response etcd has not looked at it. Otherwise a write may have been done.
      const hasBegun = this.#response?.hasBegun === true;
      const details = hasBegun ? "etcd refused the stream within its response" : noConnection;
      this.end(refused(status.UNAVAILABLE, details));
    } else if (lost !== undefined) {
      this.end(refused(status.UNAVAILABLE, `the connection to etcd was lost: ${lost}`));
    } else if (rstCode === constants.NGHTTP2_NO_ERROR) {
      const details = "etcd closed the stream without sending trailers";
      this.end(refused(status.INTERNAL, details));
    } else {
      this.#request?.stop();
      this.call.resetWith(rstCode);
    }
  }
}
