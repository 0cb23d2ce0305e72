import type { IncomingHttpHeaders } from "node:http2";
import { status } from "@grpc/grpc-js";
import { hasReason, WatchFanoutError } from "../../base/errors.ts";
import type { TimeSlicedWork } from "../../base/event-loop-turns.ts";
import { GrowingBuffer } from "../../base/growing-buffer.ts";
import type { CachedState } from "../../cacher/request/request.ts";
import { timedOut } from "../../etcd/wire/error-texts.ts";
import { type RangeRequest, readRangeRequest } from "../../etcd/wire/range-request.ts";
import { objectSize } from "../../etcd/wire/range-response.ts";
import { headerField } from "../../etcd/wire/response-header.ts";
import { CallAdmission, expectedObjectBytes } from "../../server/calls/call-admission.ts";
import { type CallContext, toClientError } from "../../server/calls/call-context.ts";
import { inSpanOf } from "../../server/calls/call-span.ts";
import { outOfRequestRoom, refused } from "../../server/calls/refusals.ts";
import type { RelayedCall } from "../../server/calls/relayed-methods.ts";
import { RefusedRequest } from "../../server/calls/server-call.ts";
import type { Reservation } from "../../server/kernel/ledger.ts";
import type { RevisionRequirement } from "../../storage/storage.ts";
import { prefixSize } from "../../wire/encode.ts";
import { statusOf, type WireStatus } from "../../wire/errors.ts";
import type { CachedRange } from "../cached/cached-resources.ts";
import { asUnavailable, EtcdCall } from "../relay/etcd-call.ts";
import { pieceBytes, RangeResponse } from "./range-response.ts";
import { isInKeyOrder, type SelectedObjects, selectRange } from "./range-selection.ts";
import { RangeSender } from "./range-sender.ts";
import type { RangePath, RangeService } from "./range-service.ts";

/** Maximum size of a request that is read, in bytes; larger ones are relayed. etcd's keys are rarely above a kilobyte. */
const maxRequestBytes = 64 * 1024;

/** Maximum number of objects of a response that is encoded at once, in the time of its call. */
const maxAtOnce = 512;

/** Why a call's signal is aborted. One for all, since its identity is all that is read of it. */
const clientGone = new Error("The client no longer waits for the response.");

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
 * from the cache, otherwise relayed, and so is everything that the cache does not answer exactly as etcd does.
 */
export class RangeCall extends EtcdCall {
  readonly #path: RangePath;
  readonly #metadata: IncomingHttpHeaders;
  readonly #service: RangeService;
  readonly #gone = new AbortController();
  readonly #received = new GrowingBuffer();
  /** Size of the request, with its prefix; 0 until its prefix has arrived. */
  #expected = 0;
  #isRead = false;
  /** Undefined until it has been read, and if it is etcd's to read. */
  #request: RangeRequest | undefined;
  #reservation: Reservation | undefined;
  #sender: RangeSender | undefined;

  constructor(
    path: RangePath,
    call: RelayedCall,
    metadata: IncomingHttpHeaders,
    context: CallContext,
    service: RangeService,
  ) {
    super(call, context, service.calls, "etcd call");
    this.#path = path;
    this.#metadata = metadata;
    this.#service = service;
  }

  /** Reads the request. */
  start(): void {
    const { requestPool, maxUnreadBytesPerConnection } = this.context;
    if (!this.open()) return;
    this.#reservation = requestPool.reserve(this.connection, 0, () =>
      this.end(outOfRequestRoom(maxUnreadBytesPerConnection)),
    );
    const { request } = this.call;
    request.on("data", this.#take);
    request.on("end", this.#finish);
  }

  get #isStream(): boolean {
    return this.#path === "/etcdserverpb.KV/RangeStream";
  }

  /** It ends by itself, though not before its client has read the response. */
  drain(): void {}

  check(now: number): void {
    if (!this.#isRead) this.endIfLate(now);
  }

  /** What is refused for lack of room here may be tried again. */
  override end(why: WireStatus): void {
    super.end(asUnavailable(why));
  }

  protected onReleased(): void {
    this.#reservation?.release();
    this.#received.clear();
    this.#gone.abort(clientGone);
    this.#sender?.stop();
  }

  readonly #take = (chunk: Buffer): void => {
    const received = this.#received;
    received.append(chunk, this.#expected);
    const { length } = received;
    if (length >= prefixSize) this.#expected = prefixSize + received.bytes.readUInt32BE(1);
    received.own();
    this.#reservation?.resize(received.memoryBytes);
    if (this.isOver) return;
    const announced = this.#expected - prefixSize;
    const isWhole = this.#expected > 0 && length >= this.#expected;
    if (isWhole || announced > maxRequestBytes) this.#finish();
  };

  /** The request is complete, or so large that it is etcd's to read. */
  readonly #finish = (): void => {
    if (this.#isRead || this.isOver) return;
    this.#isRead = true;
    const { request } = this.call;
    request.off("data", this.#take);
    request.off("end", this.#finish);
    // A message that is not read to its end is relayed at once. What comes behind a whole one is read and dropped, so that
    // it takes no memory until the call ends.
    request.resume();
    // The events of a request's stream do not occur in the trace of its call.
    inSpanOf(this.call, () => this.#serve()).catch((error: unknown) => this.#failed(error));
  };

  async #serve(): Promise<void> {
    const request = this.#readRequest();
    this.#request = request;
    const range = request && this.#service.cachedRange(request, this.#metadata);
    if (request === undefined || range === undefined || !range.resource.cacher.ready) {
      this.#relay();
      return;
    }
    const { signal } = this.#gone;
    const admission = new CallAdmission(this.context, this.call, {
      ...{ kind: "reads", requestBytes: this.#received.length, signal },
    });
    try {
      const answer = await this.#answer(request, range, admission);
      admission.handled();
      if (this.isOver) return;
      if (answer === undefined || answer === "late") this.#relay(answer === "late");
      else await this.#respond(answer, admission);
    } finally {
      admission.release();
    }
  }

  /** Undefined: it is etcd's to read. */
  #readRequest(): RangeRequest | undefined {
    const received = this.#received.bytes;
    // One message that is not compressed, and nothing else.
    if (received.length < prefixSize || received[0] !== 0) return undefined;
    if (received.length !== prefixSize + received.readUInt32BE(1)) return undefined;
    const request = readRangeRequest(received.subarray(prefixSize));
    // etcd refuses a stream of objects that it would have to sort or to filter.
    return request !== undefined && this.#isStream && !isInKeyOrder(request) ? undefined : request;
  }

  /** Undefined: etcd has to answer; "late": it has to, since the cache was not new enough in time. */
  async #answer(
    request: RangeRequest,
    { resource, scope }: CachedRange,
    admission: CallAdmission,
  ): Promise<Answer | "late" | undefined> {
    const { cached, newestHeader } = this.#service;
    const { floor } = newestHeader;
    const { revision } = request;
    const { cacher, storage } = resource;
    const { accessChanges } = cached;
    // A linearizable read asks etcd for its revision, which shows that etcd allows reads.
    if (request.serializable) await cached.confirmAccess(resource);
    const { signal } = this.#gone;
    let newest = Infinity;
    if (revision > 0) {
      if (revision > cacher.revision) return undefined;
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

  async #respond(
    { response, selected, revision, retain }: Answer,
    admission: CallAdmission,
  ): Promise<void> {
    this.#reservation?.resize(this.#received.memoryBytes + selected.listBytes);
    if (this.isOver) return;
    // The state must not take too much memory while the response waits for room.
    let release = retain(() => this.end(outdated));
    try {
      const wait = admission.mayEncode();
      if (wait !== undefined) await wait;
      if (this.isOver || this.call.isOver) return;
      const { sendPacing } = this.context.callerLimits;
      this.#service.counts.cached++;
      this.#service.newestHeader.raise(revision);
      const isSmall = response.size <= pieceBytes && selected.length <= maxAtOnce;
      if (isSmall && sendPacing.exceededBy(this.owner.caller) === undefined) {
        const parts = response.take();
        this.release();
        admission.respond(parts);
        sendPacing.charge(this.owner, prefixSize + response.size);
        return;
      }
      const released = release;
      release = () => {};
      this.#sender = new RangeSender(this.call, response, this.context, {
        method: this.#path.slice(1),
        turns: this.#service.turns,
        onEnd: () => {
          released();
          this.release();
        },
      });
      this.#sender.start();
    } finally {
      release();
    }
  }

  /** Nothing has been sent. */
  #failed(error: unknown): void {
    if (this.isOver || this.call.isOver) return;
    if (error instanceof RefusedRequest) {
      this.end(error.status);
    } else if (!(error instanceof WatchFanoutError)) {
      const { logger } = this.context;
      this.end(statusOf(toClientError(error, this.#path.slice(1), logger, this.call)));
    } else if (this.#isOverloaded(error)) {
      this.end(statusOf(error));
    } else {
      if (hasReason(error, "HISTORY_CHANGED")) this.#service.newestHeader.historyChanged();
      const isEtcdAtFault = !hasReason(error, "UPSTREAM_DENIED") && !hasReason(error, "NOT_READY");
      this.#relay(isEtcdAtFault);
    }
  }

  /** Whether the call was refused for what this process has to do, which etcd must not get on top. */
  #isOverloaded(error: WatchFanoutError): boolean {
    return hasReason(error, "OVERLOADED") || hasReason(error, "TOO_MANY_STREAMS");
  }

  /** Passes the call to etcd. `isLate`: it has waited for the cache. */
  #relay(isLate: boolean = false): void {
    const received = this.#service.relayedRequest(this.#received.bytes, this.#request);
    this.release();
    const args = [this.#path, this.call, this.#metadata, this.context, received] as const;
    if (!isLate) this.#service.relay(...args);
    else if (!this.#service.relayLate(...args)) {
      this.call.end(refused(status.UNAVAILABLE, timedOut));
    }
  }
}

/** The state of the response is no longer kept. */
const outdated = refused(status.UNAVAILABLE, "the response took too long: try again");

/** How new the cache has to be for a request that came when clients knew of the revision `floor`. */
function requirementOf(serializable: boolean, floor: number): RevisionRequirement {
  if (!serializable) return { match: "LINEARIZABLE" };
  return floor === 0 ? { match: "ANY" } : { match: "NOT_OLDER_THAN", revision: floor };
}
