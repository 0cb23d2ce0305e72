import type { Clock, Timer } from "../../base/clock.ts";
import { upstreamUnavailable, type WatchFanoutError } from "../../base/errors.ts";
import type { EtcdClient } from "../../etcd/client/etcd-client.ts";
import type { KeyRange } from "../../etcd/client/key-range.ts";
import type { CallLimits, Member } from "../../etcd/client/member.ts";
import type { WatchCall } from "../../etcd/client/requests.ts";
import type { DecodedWatch } from "../../etcd/wire/watch-response.ts";

/** Maximum time that etcd may take to confirm that it has created a watch, in milliseconds. */
const createTimeoutMs = 5_000;

interface WatchConnectionDeps {
  readonly client: EtcdClient;
  /** The range in etcd of the watch's scope. */
  readonly range: KeyRange;
  readonly withPrevious: boolean;
  readonly onlyDeletions: boolean;
  /**
   * The number of watches of past events that are read at the same time, if this is one of them: their responses are large
   * and decoded when they are taken. Undefined for other watches.
   */
  readonly past: number | undefined;
  /**
   * Whether etcd splits large responses. For each event it sums up all events of the part so far, so that is quadratic, and
   * watches that are read at the same time do without.
   */
  readonly fragment: boolean;
  /** Called when etcd has created the watch, with etcd's revision at that moment. */
  readonly onCreated: (revision: number) => void;
  /** Called with each later response: events, progress or a cancellation. */
  readonly onResponse: (response: DecodedWatch) => void;
  readonly onError: (error: unknown) => void;
}

/**
 * The gRPC stream that one watch has to etcd: its creation, progress requests and flow control. After `reset` another
 * stream can be opened.
 */
export class WatchConnection {
  readonly #deps: WatchConnectionDeps;
  readonly #progress: ProgressRequester;
  /** The member that the stream is on; undefined before one is chosen. */
  member: Member | undefined;
  #call: WatchCall | undefined;
  #attempt = 0;
  #creating: Timer | undefined;
  #isCreated = false;
  #isPaused = false;
  #isClosed = false;

  constructor(deps: WatchConnectionDeps) {
    this.#deps = deps;
    this.#progress = new ProgressRequester(
      deps.client.clock,
      () => this.#call?.write({ progress_request: {} }),
      () => deps.onError(this.failure("no longer responds on a watch")),
    );
  }

  /** Counts the streams: what came on an earlier one is dropped. */
  get attempt(): number {
    return this.#attempt;
  }

  get isPaused(): boolean {
    return this.#isPaused;
  }

  get isClosed(): boolean {
    return this.#isClosed;
  }

  /** Opens a stream on the member and creates the watch, which begins at this revision. */
  async open(member: Member, limits: CallLimits, startRevision: number): Promise<void> {
    const { client, range, withPrevious, onlyDeletions, past, fragment, onError } = this.#deps;
    const call = await client.openWatch(member, limits, past);
    this.#call = call;
    this.#listen(call);
    if (this.#isClosed) return call.cancel();
    call.write({
      create_request: {
        ...range,
        start_revision: startRevision,
        progress_notify: true,
        prev_kv: withPrevious,
        filters: onlyDeletions ? ["NOPUT"] : [],
        fragment,
      },
    });
    this.#creating = client.clock.setTimeout(
      () => onError(this.failure("did not create a watch in time")),
      createTimeoutMs,
    );
  }

  /** Ends the stream. Progress requests are sent again on the next one. */
  reset(): void {
    this.#attempt++;
    this.#call?.cancel();
    this.#call = undefined;
    this.#isCreated = false;
    this.#progress.lost();
    if (this.#isPaused) this.resume();
  }

  /** Ends the stream once everything asked for of it has come; the last response may still be decoded. */
  complete(): void {
    this.#progress.lost();
    this.#call?.cancel();
    this.#call = undefined;
  }

  /** Ends the stream for good. Idempotent. */
  close(): void {
    this.#isClosed = true;
    this.#creating?.cancel();
    this.#progress.stop();
    this.#call?.cancel();
  }

  /** Stops reading from etcd. Idempotent. */
  pause(): void {
    if (this.#isPaused) return;
    this.#isPaused = true;
    this.#progress.pause();
    this.#call?.pause();
  }

  resume(): void {
    this.#isPaused = false;
    this.#progress.resume();
    this.#call?.resume();
  }

  requestProgress(): void {
    this.#progress.request();
  }

  /** The response to a progress request has come. */
  progressReceived(): void {
    this.#progress.received();
  }

  /** An UPSTREAM_UNAVAILABLE error that says what the member did. */
  failure(what: string): WatchFanoutError {
    const endpoint = this.member?.endpoint ?? "";
    return upstreamUnavailable(
      `The etcd at ${endpoint} ${what}. Watch again from the last revision.`,
    );
  }

  #listen(call: WatchCall): void {
    const { onError } = this.#deps;
    const isOver = (): boolean => this.#isClosed || this.#call !== call;
    call.on("error", (error: Error) => {
      if (!isOver()) onError(error);
    });
    call.on("end", () => {
      if (!isOver()) onError(this.failure("ended a watch without a reason"));
    });
    call.on("data", (response: DecodedWatch) => {
      if (!isOver()) this.#take(response);
    });
  }

  #take(response: DecodedWatch): void {
    const { onCreated, onResponse } = this.#deps;
    this.#progress.heard();
    if (response.created && !response.canceled) {
      this.#creating?.cancel();
      this.#isCreated = true;
      onCreated(response.revision);
      this.#progress.ready();
      return;
    }
    // Progress that came before `created` may have come before events, too, which etcd sends after `created`.
    if (this.#isCreated || response.canceled) onResponse(response);
  }
}

/** Interval between repeated progress requests, in milliseconds: etcd drops those that it can't respond to. */
const repeatMs = 100;

/** Maximum time without any response to progress requests, in milliseconds. */
const silenceMs = 10_000;

/**
 * Sends progress requests on one etcd stream until etcd responds.
 *
 * etcd responds only while the watch is synced, and not at all while its own buffer is full, so the request is repeated.
 * A response is for the callers before the request was sent; for later callers another request is sent.
 */
export class ProgressRequester {
  readonly #clock: Clock;
  readonly #send: () => void;
  readonly #onSilence: () => void;
  #isReady = false;
  /** Whether a caller waits for a request that has not been sent yet. */
  #isWanted = false;
  #timer: Timer | undefined;
  /** Since when the stream has been silent after a request, in the clock's milliseconds. */
  #silentSince = 0;
  #isRepeated = false;
  #isPaused = false;

  /** `onSilence` is called when etcd has sent nothing for 10 s after a request. */
  constructor(clock: Clock, send: () => void, onSilence: () => void) {
    this.#clock = clock;
    this.#send = send;
    this.#onSilence = onSilence;
  }

  request(): void {
    this.#isWanted = true;
    this.#next();
  }

  /** The watch exists now. Before, etcd would respond for a stream without watches. */
  ready(): void {
    this.#isReady = true;
    this.#next();
  }

  /** The stream has ended. Requests without a response are sent on the next one, once that is `ready`. */
  lost(): void {
    if (this.#timer !== undefined) this.#isWanted = true;
    this.stop();
    this.#isReady = false;
    this.#isRepeated = false;
  }

  /** Something was received. */
  heard(): void {
    this.#silentSince = this.#clock.now();
  }

  /** The response was received. */
  received(): void {
    if (this.#timer === undefined) return;
    this.stop();
    // Two requests have two responses, and the second would be taken for one to the next request.
    if (this.#isRepeated) this.#isWanted = true;
    this.#isRepeated = false;
    this.#next();
  }

  /** The reader takes nothing, so nothing is received, which is not etcd's fault. */
  pause(): void {
    this.#isPaused = true;
  }

  resume(): void {
    this.#isPaused = false;
    this.heard();
  }

  /** Sends no more requests until `request` is called. */
  stop(): void {
    this.#timer?.cancel();
    this.#timer = undefined;
  }

  #next(): void {
    if (!this.#isReady || !this.#isWanted || this.#timer !== undefined) return;
    this.#isWanted = false;
    this.heard();
    this.#send();
    this.#wait();
  }

  #wait(): void {
    this.#timer = this.#clock.setTimeout(() => {
      if (this.#isPaused) return this.#wait();
      if (this.#clock.now() - this.#silentSince >= silenceMs) return this.#onSilence();
      this.#isRepeated = true;
      this.#send();
      this.#wait();
    }, repeatMs);
  }
}
