import { status } from "@grpc/grpc-js";
import type { WatchFanoutError } from "../../base/errors.ts";
import type { Identity } from "../../identity/identity.ts";
import type { Access } from "../../policy/access.ts";
import { fullAccess } from "../../policy/access.ts";
import type { CallContext } from "../../server/calls/call-context.ts";
import { outOfRequestRoom, refused, tookTooLong } from "../../server/calls/refusals.ts";
import type { RelayedCall } from "../../server/calls/relayed-methods.ts";
import type { Reservation } from "../../server/kernel/ledger.ts";
import {
  nextStreamId,
  type OpenStream,
  type StreamKind,
} from "../../server/kernel/open-streams.ts";
import type { CallOwner } from "../../server/limits/callers.ts";
import { statusOf, type WireStatus } from "../../wire/errors.ts";
import type { Rounds } from "./rounds.ts";

/**
 * What all calls of etcd's API have in common. Until it has ended, a call counts as an open stream, and is checked once a
 * second.
 */
export abstract class EtcdCall implements OpenStream {
  readonly id = nextStreamId();
  readonly streamKind: StreamKind;
  readonly connection: object;
  readonly owner: CallOwner;
  readonly identity: Identity;
  readonly access: readonly Access[] | undefined;
  protected readonly call: RelayedCall;
  protected readonly context: CallContext;
  readonly #calls: Rounds<EtcdCall>;
  readonly #openedAt: number;
  /** The charge for what is held of its requests, while it is open. */
  protected requestCharge: Reservation | undefined;
  #isOver = false;

  constructor(
    call: RelayedCall,
    context: CallContext,
    calls: Rounds<EtcdCall>,
    streamKind: StreamKind,
  ) {
    this.streamKind = streamKind;
    this.connection = call.connection;
    this.owner = call.owner;
    this.identity = call.identity;
    this.access = context.authorizer.hasPolicy ? fullAccess : undefined;
    this.call = call;
    this.context = context;
    this.#calls = calls;
    this.#openedAt = context.clock.now();
  }

  /** Called about once a second while the call is open, with the clock's time in milliseconds. */
  abstract check(now: number): void;

  /** The server shuts down: ends the call if it might not end by itself. Its client resumes elsewhere. */
  abstract drain(): void;

  /** Releases what the call has beside what this class knows of. Called once. */
  protected abstract onReleased(): void;

  /** For the bounds of open streams, and when a credential or right is lost. */
  evict(error: WatchFanoutError): void {
    this.end(resumable(error));
  }

  /** Ends the call behind what was sent. Idempotent. */
  end(why: WireStatus): void {
    if (this.#isOver) return;
    this.call.end(why);
    this.release();
  }

  /** Whether it has ended. */
  protected get isOver(): boolean {
    return this.#isOver;
  }

  /** Counts the call. Returns false if it was refused, or has ended already. */
  protected open(): boolean {
    const { streams, requestPool, maxUnreadBytesPerConnection } = this.context;
    if (this.call.isOver) return false;
    const refusal = streams.makeRoom(this.owner);
    if (refusal !== undefined) {
      this.call.end(resumable(refusal));
      return false;
    }
    streams.add(this);
    this.#calls.add(this);
    this.requestCharge = requestPool.reserve(this.connection, 0, () =>
      this.end(outOfRequestRoom(maxUnreadBytesPerConnection)),
    );
    this.call.onOver(() => this.release());
    return true;
  }

  /** Ends the call if its request has not arrived in time. */
  protected endIfLate(now: number): void {
    const { requestMs, defences } = this.context;
    if (now - this.#openedAt < requestMs) return;
    defences?.count("slow_request", this.connection);
    this.end(tookTooLong(requestMs));
  }

  /** Idempotent. */
  protected release(): void {
    if (this.#isOver) return;
    this.#isOver = true;
    this.context.streams.delete(this);
    this.#calls.delete(this);
    this.requestCharge?.release();
    this.onReleased();
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
