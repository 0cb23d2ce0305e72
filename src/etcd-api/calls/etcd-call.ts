import { status } from "@grpc/grpc-js";
import type { Clock } from "../../base/clock.ts";
import type { WatchFanoutError } from "../../base/errors.ts";
import type { Askable } from "../../etcd/client/upstream-call.ts";
import { type Access, fullAccess } from "../../policy/access.ts";
import { MessageSender } from "../../server/calls/message-sender.ts";
import type { RawCall } from "../../server/calls/methods.ts";
import { endingOf, outOfRequestRoom, refused, tookTooLong } from "../../server/calls/refusals.ts";
import type { ServiceContext } from "../../server/calls/service-context.ts";
import type { Reservation } from "../../server/kernel/ledger.ts";
import {
  nextStreamId,
  type OpenStream,
  type StreamKind,
} from "../../server/kernel/open-streams.ts";
import type { Rounds } from "../../server/kernel/rounds.ts";
import { statusOf, type WireStatus } from "../../wire/errors.ts";
import type { CachedResources } from "../cached/cached-resources.ts";
import type { NewestHeader } from "../cached/newest-header.ts";

/** What the services of etcd's API share. */
export interface EtcdServiceDeps {
  readonly upstream: Askable;
  /** The open calls. */
  readonly calls: Rounds<EtcdCall>;
  readonly cached: CachedResources;
  readonly newestHeader: NewestHeader;
  readonly clock: Clock;
}

/**
 * What all calls of etcd's API have in common. Until it has ended, a call counts as an open stream, and is checked once a
 * second. A client that accepts too little is reset as the call says: after UNAVAILABLE etcd's clients resume a watch, while
 * any other end is final for them.
 */
export abstract class EtcdCall extends MessageSender<RawCall> implements OpenStream {
  readonly id = nextStreamId();
  readonly streamKind: StreamKind;
  protected override readonly isOneMessage = true;
  /** The charge for what is held of its requests, while it is open. */
  protected requestCharge: Reservation | undefined;
  readonly #calls: Rounds<EtcdCall>;
  readonly #method: string;
  readonly #access: readonly Access[] | undefined;
  readonly #openedAt: number;

  /** `method`: its name, for logs. `access`: the rights that it needs while it is open. Default: all. */
  constructor(
    call: RawCall,
    context: ServiceContext,
    calls: Rounds<EtcdCall>,
    streamKind: StreamKind,
    method: string,
    access: readonly Access[] = fullAccess,
  ) {
    super(call, context);
    this.streamKind = streamKind;
    this.#access = context.authorizer.hasPolicy ? access : undefined;
    this.#calls = calls;
    this.#method = method;
    this.#openedAt = context.clock.now();
  }

  get access(): readonly Access[] | undefined {
    return this.#access;
  }

  /** Called about once a second while the call is open, with the clock's time in milliseconds. */
  abstract check(now: number): void;

  /** The server or the connection ends: ends the call if it might not end by itself. Its client resumes elsewhere. */
  abstract drain(): void;

  /** For the bounds of open streams, and when a credential or right is lost. */
  evict(error: WatchFanoutError): void {
    this.end(resumable(error));
  }

  /** Counts the call. Returns false if it was refused, or has ended already. */
  protected open(): boolean {
    const { streams, requestPool } = this.context;
    if (this.call.isOver) return false;
    const refusal = streams.makeRoom(this.owner);
    if (refusal !== undefined) {
      this.call.end(resumable(refusal));
      return false;
    }
    streams.add(this);
    this.#calls.add(this);
    this.requestCharge = requestPool.reserve(this.connection, 0, () =>
      this.end(outOfRequestRoom(requestPool)),
    );
    this.call.onOver(() => this.close());
    return true;
  }

  /** Ends the call if its request has not arrived in time. */
  protected endIfLate(now: number): void {
    const { defences, limits } = this.context;
    if (now - this.#openedAt < limits.requestMs) return;
    defences?.count("slow_request", this.connection);
    this.end(tookTooLong(limits.requestMs));
  }

  protected override onFailed(error: unknown): void {
    this.end(endingOf(error, this.#method, this.context.logger, this.call));
  }

  protected override onClosed(): void {
    this.context.streams.delete(this);
    this.#calls.delete(this);
    this.requestCharge?.release();
  }
}

/**
 * The status of a call that was refused or ended for lack of something here. RESOURCE_EXHAUSTED would be final for a watch
 * of etcd's clients, while after UNAVAILABLE they resume it.
 */
export function resumable(error: WatchFanoutError): WireStatus {
  return asUnavailable(statusOf(error));
}

/** The same for a status. Its metadata would still name the other code, of which gRPC for Go makes INTERNAL. */
export function asUnavailable(why: WireStatus): WireStatus {
  return why.code === status.RESOURCE_EXHAUSTED ? refused(status.UNAVAILABLE, why.details) : why;
}
