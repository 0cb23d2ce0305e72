import type { OutgoingHttpHeaders } from "node:http2";
import { status } from "@grpc/grpc-js";
import type { Clock } from "../../base/clock.ts";
import { requestHeaders } from "../../etcd/client/call-headers.ts";
import type { Upstream } from "../../etcd/client/upstream.ts";
import { UpstreamCall } from "../../etcd/client/upstream-call.ts";
import { noLeader } from "../../etcd/wire/error-texts.ts";
import { refused } from "../../server/calls/refusals.ts";
import type { WireStatus } from "../../wire/errors.ts";
import type { NewestHeader, ResponseSource } from "../cached/newest-header.ts";

/** The path of etcd's Watch. */
export const watchPath = "/etcdserverpb.Watch/Watch";

/** How long etcd may be away until streams that need a leader end, in milliseconds: as etcd, three election timeouts. */
const leaderlessMs = 3_000;

/** A stream that needs a leader. */
export interface LeaderDependent {
  /** Ends it: the member has no leader, or can't be reached. */
  end(status: WireStatus): void;
}

/**
 * One idle Watch stream to the member that calls go to, with `hasleader`. It is for all streams that are served from caches:
 * it brings the ids for their headers, and ends when the member has lost its leader.
 */
export class MemberMonitor {
  readonly #upstream: Upstream;
  readonly #clock: Clock;
  readonly #newestHeader: NewestHeader;
  readonly #dependents = new Set<LeaderDependent>();
  #call: UpstreamCall | undefined;
  /** The connection that it is open on; undefined while it is not. */
  #source: ResponseSource | undefined;
  #waiting: ((failure: WireStatus | undefined) => void)[] = [];
  /** When it ended; undefined while it is open, and before it was. */
  #endedAt: number | undefined;

  constructor(upstream: Upstream, clock: Clock, newestHeader: NewestHeader) {
    this.#upstream = upstream;
    this.#clock = clock;
    this.#newestHeader = newestHeader;
  }

  /**
   * Calls `listener`, now or later, when the member has answered, or with the reason why it has not. With `needsLeader` it
   * must have a leader now; otherwise its earlier answer will do.
   */
  whenKnown(needsLeader: boolean, listener: (failure: WireStatus | undefined) => void): void {
    if (this.#isOpen || (!needsLeader && this.#newestHeader.header !== undefined)) {
      listener(undefined);
    } else {
      this.#waiting.push(listener);
      this.#open();
    }
  }

  /** Informs the stream of a lost leader, until `delete`. */
  add(stream: LeaderDependent): void {
    this.#dependents.add(stream);
  }

  /** Idempotent. */
  delete(stream: LeaderDependent): void {
    this.#dependents.delete(stream);
  }

  /** Called about once a second: reopens it for the streams that need a leader. */
  check(): void {
    if (this.#isOpen || this.#dependents.size === 0) return;
    const now = this.#clock.now();
    if (now - (this.#endedAt ?? now) >= leaderlessMs) {
      this.#endDependents(refused(status.UNAVAILABLE, noLeader));
    } else {
      this.#open();
    }
  }

  close(): void {
    this.#call?.close();
    this.#call = undefined;
    this.#source = undefined;
  }

  /** Whether it is open, to the member in use: that of another one, which was left, says nothing of this one. */
  get #isOpen(): boolean {
    return this.#source?.isInUse === true;
  }

  #open(): void {
    if (this.#source !== undefined) this.close();
    if (this.#call !== undefined) return;
    const call = new UpstreamCall(this.#upstream, monitorHeaders(), {
      onMessage: (message, source) => this.#onMessage(message, source),
      onEnd: (why) => this.#onEnd(why),
    });
    this.#call = call;
    call.send(probe);
  }

  #onMessage(message: Buffer, source: ResponseSource): void {
    if (this.#source !== undefined) return;
    this.#newestHeader.observeMessage(source, message);
    this.#source = source;
    if (!this.#isOpen) {
      this.#open();
      return;
    }
    this.#endedAt = undefined;
    // The stream stays, without a watch.
    this.#call?.send(cancelProbe);
    this.#settle(undefined);
  }

  #onEnd(why: WireStatus): void {
    const wasLeft = this.#source?.isInUse === false;
    this.#call = undefined;
    this.#source = undefined;
    // The next check opens it to the member in use.
    if (wasLeft) return;
    this.#endedAt ??= this.#clock.now();
    this.#settle(why);
    if (why.details === noLeader) this.#endDependents(why);
  }

  #settle(failure: WireStatus | undefined): void {
    const waiting = this.#waiting;
    this.#waiting = [];
    for (const listener of waiting) listener(failure);
  }

  #endDependents(why: WireStatus): void {
    for (const stream of this.#dependents) stream.end(why);
  }
}

/** A create request of a watch of the key 0 that delivers nothing, and the request to cancel it. */
const probe = Buffer.from("0a090a01002a0200013801", "hex");
const cancelProbe = Buffer.from("12020801", "hex");

function monitorHeaders(): OutgoingHttpHeaders {
  return requestHeaders(watchPath, { "content-type": "application/grpc", hasleader: "true" });
}
