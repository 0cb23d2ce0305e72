import type { IncomingHttpHeaders } from "node:http2";
import { status } from "@grpc/grpc-js";
import { hasReason, WatchFanoutError } from "../../base/errors.ts";
import type { TimeSlicedWork } from "../../base/event-loop-turns.ts";
import type { Task } from "../../base/turns.ts";
import type { CachedState } from "../../cacher/request/request.ts";
import { timedOut } from "../../etcd/wire/error-texts.ts";
import { type RangeRequest, readRangeRequest } from "../../etcd/wire/range-request.ts";
import { objectSize } from "../../etcd/wire/range-response.ts";
import { headerField } from "../../etcd/wire/response-header.ts";
import type { Access } from "../../policy/access.ts";
import { CallAdmission, expectedObjectBytes } from "../../server/calls/call-admission.ts";
import { inSpanOf } from "../../server/calls/call-span.ts";
import type { RawCall } from "../../server/calls/methods.ts";
import { refused } from "../../server/calls/refusals.ts";
import type { ServiceContext } from "../../server/calls/service-context.ts";
import type { RevisionRequirement } from "../../storage/storage.ts";
import { type FrameParts, prefixSize } from "../../wire/encode.ts";
import type { WireStatus } from "../../wire/errors.ts";
import { type CachedRange, hasCredential, isRefused } from "../cached/cached-resources.ts";
import { asUnavailable } from "../calls/etcd-call.ts";
import { RequestCall } from "../calls/request-call.ts";
import { pieceBytes, RangeResponse } from "./range-response.ts";
import { isInKeyOrder, type SelectedObjects, selectRange } from "./range-selection.ts";
import type { RangePath, RangeService } from "./range-service.ts";

/** Maximum size of a request that is read, in bytes; larger ones are forwarded. etcd's keys are rarely above a kilobyte. */
const maxRequestBytes = 64 * 1024;

/** Maximum number of objects of a response that is encoded at once, in the time of its call. */
const maxAtOnce = 512;

/** What a response is sent by. */
export type Pieces = Pick<RangeResponse, "maxPieceBytes" | "isDone" | "isMidMessage" | "take">;

/** Passes a call to etcd, with what was read of its request. */
type Forward = (received: Buffer) => void;

/** A request, and the cached resource that has all of its keys. */
interface ServedRange extends CachedRange {
  readonly request: RangeRequest;
}

/** A response that is ready to be sent. */
interface Answer {
  readonly response: RangeResponse;
  readonly selected: SelectedObjects;
  readonly revision: number;
  /** Counts the state as retained until the returned function is called. */
  readonly retain: CachedState["retain"];
}

/**
 * One call of etcd's Range or RangeStream. Its request is read; if a cached resource has all of its keys, it is served
 * from the cache, otherwise forwarded, and so is everything that the cache does not answer exactly as etcd does.
 */
export class RangeCall extends RequestCall implements Task {
  readonly #path: RangePath;
  readonly #metadata: IncomingHttpHeaders;
  readonly #service: RangeService;
  readonly #forward: Forward;
  /** The state of the response is no longer retained. */
  #releaseState: (() => void) | undefined;
  /** A response that is sent in pieces. */
  #pieces: Pieces | undefined;
  /** Whether it is its turn to encode a piece, which has room. */
  #hasTurn = false;

  constructor(
    path: RangePath,
    call: RawCall,
    metadata: IncomingHttpHeaders,
    context: ServiceContext,
    service: RangeService,
    forward: Forward,
    access?: readonly Access[],
  ) {
    super(call, context, service.calls, "etcd call", path.slice(1), access);
    this.#path = path;
    this.#metadata = metadata;
    this.#service = service;
    this.#forward = forward;
  }

  /** Begins with a whole request that has been read, behind which nothing follows. */
  startWith(request: Buffer): void {
    if (!this.open()) return;
    this.received.add(request);
    this.#handleRequest();
  }

  get #isStream(): boolean {
    return this.#path === "/etcdserverpb.KV/RangeStream";
  }

  /** What is refused for lack of room here may be tried again. */
  override end(why: WireStatus): void {
    super.end(asUnavailable(why));
  }

  protected override onClosed(): void {
    super.onClosed();
    this.#service.turns.delete(this.owner, this);
    this.#releaseState?.();
  }

  protected override onArrived(): void {
    const { isWhole, size } = this.received;
    if (isWhole || size > maxRequestBytes) this.#handleRequest();
  }

  protected override onRequestEnd(): void {
    this.#handleRequest();
  }

  /** The request is complete, or so large that it is etcd's to read. */
  #handleRequest(): void {
    // If it is etcd's to read, it is passed on at once, before more arrives.
    this.stopReading();
    const range = this.#cachedRange();
    if (range === undefined) this.#leaveToEtcd(false);
    // The events of a request's stream do not occur in the trace of its call.
    else void inSpanOf(this.call, () => this.#handle(range));
  }

  /** Reads the request. Undefined: etcd has to answer it. */
  #cachedRange(): ServedRange | undefined {
    const { bytes, size, received, isCompressed } = this.received;
    // One message that is not compressed, and nothing else.
    if (isCompressed || received !== size) return undefined;
    const request = readRangeRequest(bytes.subarray(prefixSize));
    // etcd refuses a stream of objects that it would have to sort or to filter.
    if (request === undefined || (this.#isStream && !isInKeyOrder(request))) return undefined;
    const range = this.#service.cachedRange(request, this.#metadata);
    return range?.resource.cacher.ready === true ? { request, ...range } : undefined;
  }

  #handle(range: ServedRange): Promise<void> {
    const signal = this.gone;
    const requestBytes = this.received.bytes.length;
    const options = { kind: "reads", requestBytes, signal } as const;
    const admission = new CallAdmission(this.context, this.call, options);
    return admission.handle<Answer>({
      perform: async () => {
        const answer = await this.#perform(range, admission);
        if (this.isOver) return undefined;
        if (answer !== undefined && answer !== "late") return this.#retain(answer);
        this.#leaveToEtcd(answer === "late");
        return undefined;
      },
      respond: (answer) => this.#respond(answer, admission),
      failed: (error) => this.#failed(error),
    });
  }

  /** Undefined: etcd has to answer; "late": it has to, since the cache was not new enough in time. */
  async #perform(
    range: ServedRange,
    admission: CallAdmission,
  ): Promise<Answer | "late" | undefined> {
    const { request, resource, scope } = range;
    const { cached, newestHeader, permissions } = this.#service;
    const { revision } = request;
    const { cacher, storage } = resource;
    const { accessChanges } = cached;
    if (revision > cacher.revision) return undefined;
    const hasOwnRights = hasCredential(this.#metadata);
    // It is answered while the cache reaches the revision of the read.
    const asked = hasOwnRights ? permissions.confirm(request, this.#metadata) : undefined;
    // A linearizable read asks etcd for its revision, which shows that etcd allows reads, and what siblings have said.
    if (request.serializable && (!hasOwnRights || cached.hasSiblings)) {
      await cached.confirmAccess(resource);
    }
    const { floor } = newestHeader;
    // A cache that has lost its source does not come to what was said before. A member that has it may answer alone.
    const isBehind = cacher.revision < floor && cacher.staleForMs !== undefined;
    if (request.serializable && isBehind) return undefined;
    const signal = this.gone;
    let newest = Infinity;
    if (revision > 0) {
      // The cache may have a revision that etcd has compacted.
      const current = await storage.currentRevisionWith(revision, signal);
      if (current === undefined) return undefined;
      newest = current;
    }
    const at = requirementOf(request.serializable, floor);
    const newestState = { scope, at, signal, owner: this.owner };
    const read = revision > 0 ? { ...newestState, revision } : newestState;
    const reached = await cacher.reach(read);
    const wait = admission.admit(expectedObjectBytes);
    if (wait !== undefined) await wait;
    if (hasOwnRights && !(await this.#isPermitted(range, asked))) return undefined;
    // It may have been confirmed long ago that etcd allows the read.
    if (cached.accessChanges !== accessChanges) return undefined;
    const answer = await cacher.readState(
      read,
      (state) => this.#answerOf(state, request, resource.keys.prefix, newest),
      reached,
    );
    if (answer === undefined || answer === "late" || answer.revision >= floor) return answer;
    // The cache has etcd's current revision, and a higher one was sent before this call: etcd was restored.
    newestHeader.historyChanged();
    return answer;
  }

  /** Whether etcd permits the client with a token to read the range, now or a moment ago. `asked`: since the call began. */
  async #isPermitted(
    { request, resource }: ServedRange,
    asked: Promise<boolean> | undefined,
  ): Promise<boolean> {
    if ((await asked) === false) return false;
    // It may have been asked long ago.
    const again = await this.#service.permissions.confirm(request, this.#metadata);
    return again !== false && !isRefused(resource);
  }

  /**
   * `newest`: maximum revision of the header, at which etcd had not compacted the revision of the request. At a later one it
   * may have, and would refuse the request.
   */
  *#answerOf(
    state: CachedState,
    request: RangeRequest,
    prefix: Buffer,
    newest: number,
  ): TimeSlicedWork<Answer | undefined> {
    const { header } = this.#service.newestHeader;
    if (header === undefined) return undefined;
    const { retain } = state;
    const revision = Math.min(state.newest, newest);
    const { keysOnly } = request;
    const options = { prefix, keysOnly, header: headerField(header, revision) };
    const selected = yield* selectRange(state, request, (object) => objectSize(object, options));
    if (selected === undefined) return undefined;
    const response = new RangeResponse(selected, options, this.#isStream);
    return { response, selected, revision, retain };
  }

  /** Charges what is held until the response is sent. Undefined: that has ended the call. */
  #retain(answer: Answer): Answer | undefined {
    this.requestCharge?.resize(this.received.heldBytes + answer.selected.listBytes);
    if (this.isOver) return undefined;
    // The state must not take too much memory while the response waits for room.
    this.#releaseState = answer.retain(() => this.end(outdated));
    return answer;
  }

  #respond({ response, selected, revision }: Answer, admission: CallAdmission): void {
    const { sendPacing } = this.context.callerLimits;
    this.#service.counts.cached++;
    this.#service.newestHeader.raise(revision);
    const isSmall = response.size <= pieceBytes && selected.length <= maxAtOnce;
    if (isSmall && sendPacing.exceededBy(this.owner.caller) === undefined) {
      const parts = response.take();
      this.close();
      admission.respond(parts);
      sendPacing.charge(this.owner, prefixSize + response.size);
      return;
    }
    this.send(response);
  }

  /**
   * Sends a large response: the next piece is encoded when the client has accepted the one before, in the time slices of the
   * event loop. So a slow client holds one piece. The responses of all connections share one queue of these slices, in which
   * callers and their connections take turns, so many of them delay neither each other nor other work.
   */
  send(response: Pieces): void {
    this.#pieces = response;
    this.pump();
  }

  /** For `Turns`: encodes and sends a piece. */
  step(): boolean {
    this.#hasTurn = true;
    this.pump();
    return false;
  }

  protected override get waitsFor(): "nothing" | "room" {
    return this.#hasTurn || this.#pieces?.isDone === true ? "nothing" : "room";
  }

  protected override next(): FrameParts | undefined {
    const { call } = this;
    const pieces = this.#pieces;
    if (pieces === undefined) return undefined;
    if (pieces.isDone) {
      call.sendTrailers({ "grpc-status": "0" });
      this.close();
      return undefined;
    }
    if (!this.#hasTurn) {
      this.claim(pieces.maxPieceBytes);
      this.#service.turns.add(call.owner, this);
      return undefined;
    }
    this.#hasTurn = false;
    const parts = pieces.take();
    call.isMidMessage = pieces.isMidMessage;
    return parts;
  }

  /** Nothing has been sent. */
  #failed(error: unknown): void {
    // What this process has too much of to do, etcd must not get on top.
    const isOverloaded = hasReason(error, "OVERLOADED") || hasReason(error, "TOO_MANY_STREAMS");
    if (isOverloaded || !(error instanceof WatchFanoutError)) {
      this.onFailed(error);
    } else {
      if (hasReason(error, "HISTORY_CHANGED")) this.#service.newestHeader.historyChanged();
      const isEtcdAtFault = !hasReason(error, "UPSTREAM_DENIED") && !hasReason(error, "NOT_READY");
      this.#leaveToEtcd(isEtcdAtFault);
    }
  }

  /** Passes the call to etcd. `isLate`: it has waited for the cache. */
  #leaveToEtcd(isLate: boolean): void {
    const request = this.received.bytes;
    this.close();
    if (this.#service.mayForward(this.call, isLate)) this.#forward(request);
    else this.call.end(refused(status.UNAVAILABLE, timedOut));
  }
}

/** The state of the response is no longer kept. */
const outdated = refused(status.UNAVAILABLE, "the response took too long: try again");

/** How new the cache has to be for a request that came when clients knew of the revision `floor`. */
function requirementOf(serializable: boolean, floor: number): RevisionRequirement {
  if (!serializable) return { match: "LINEARIZABLE" };
  return floor === 0 ? { match: "ANY" } : { match: "NOT_OLDER_THAN", revision: floor };
}
