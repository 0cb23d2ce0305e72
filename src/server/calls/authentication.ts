import type { Timer } from "../../base/clock.ts";
import { upstreamUnavailable } from "../../base/errors.ts";
import { Gate } from "../../base/gate.ts";
import type { Authenticators } from "../../identity/authenticators.ts";
import type { Identity } from "../../identity/identity.ts";
import { KeysAwaited } from "../../identity/key-set.ts";
import type { Peer, PeerFacts } from "../../identity/peer.ts";
import { statusOf } from "../../wire/errors.ts";
import { byteLowWaterMark, Ledger, type Reservation } from "../kernel/ledger.ts";
import type { Callers, CallOwner } from "../limits/callers.ts";
import { auditDenied } from "./audit.ts";
import { outOfRequestRoom, outOfTokenRoom, toClientError } from "./refusals.ts";
import type { ServerCall } from "./server-call.ts";
import type { ServiceContext } from "./service-context.ts";

/** Maximum number of credentials that are verified at once. Each may occupy a thread. */
const maxVerifying = 16;

/** Maximum size of the tokens that wait until they are verified, in bytes, of a connection and of all. */
const maxTokenBytesPerConnection = 8 * 1024 ** 2;
const maxTokenBytes = 32 * 1024 ** 2;

/** What such a call holds beside its token, in bytes: this bounds their number as well. */
const pendingBytes = 1_024;

/** How long a call may wait until its credential is verified, in milliseconds. */
const maxWaitMs = 10_000;

const tooLate = `The credential of the call could not be verified within ${maxWaitMs / 1_000} s. Try again.`;

/** A call that gets its identity from `Authentication`. */
export interface UnauthenticatedCall extends ServerCall {
  identity: Identity;
}

/** What is known of a connection: what its peer is remembered by, and what it shows of it. */
type Connected = { readonly connection: object } & Pick<Presented, "peerFacts">;

/** What a call presents, and what its connection shows. */
export interface Presented {
  /** Its method's name in logs and metrics. */
  readonly method: string;
  /** Called once per connection. Undefined if the connection is closed. */
  readonly peerFacts: () => PeerFacts | undefined;
  /** The metadata `authorization`; undefined: absent. */
  readonly authorization: string | undefined;
  /** The metadata `x-forwarded-client-cert`; undefined: absent. */
  readonly forwardedCertificate: string | undefined;
}

/**
 * The stage that gives each call its identity, or ends it with UNAUTHENTICATED. Almost all calls have theirs at once: a
 * certificate is recognised once per connection, and a token that was verified is cached. A token that is new is verified
 * while the request is read; the call waits for both.
 *
 * Bounds: `maxVerifying` tokens are verified at once, of connections in rotation, and a call waits for `maxWaitMs`. A call
 * whose token needs keys that are being requested from the issuer waits apart from these, so a slow issuer delays no call
 * whose key is known. The tokens of all calls that wait are bounded in bytes.
 */
export class Authentication {
  readonly #authenticators: Authenticators;
  readonly #context: ServiceContext;
  readonly #callers: Callers;
  readonly #peers = new WeakMap<object, Peer>();
  /** Calls are inside while they are verified, and wait for their connection's turn before. */
  readonly #gate = new Gate({ concurrent: maxVerifying });
  /** Calls that wait for keys of the token issuer, in the order in which they came. */
  readonly #awaitingKeys = new Set<PendingAuthentication>();
  readonly #tokens = new Ledger({
    max: maxTokenBytes,
    maxPerOwner: maxTokenBytesPerConnection,
    lowWaterMark: byteLowWaterMark,
  });

  constructor(authenticators: Authenticators, context: ServiceContext) {
    this.#authenticators = authenticators;
    this.#context = context;
    this.#callers = context.callerLimits.callers;
  }

  /**
   * Begins to authenticate a call. Returns undefined if that is done: the call has its identity, or has ended. Otherwise
   * the call has to wait for what is returned.
   */
  begin(call: UnauthenticatedCall, presented: Presented): PendingAuthentication | undefined {
    const { method, peerFacts, authorization, forwardedCertificate } = presented;
    const peer = this.#peerOf({ connection: call.connection, peerFacts });
    if (peer === undefined) {
      // The connection is closed. Nothing must be done for a caller that is not known.
      call.reset();
      return undefined;
    }
    // The client connects again, with the certificate that it has by now.
    if (this.#authenticators.hasExpired(peer)) call.closeConnection();
    try {
      const found = this.#authenticators.authenticate({
        peer,
        authorization,
        forwardedCertificate,
      });
      if (typeof found === "function") {
        return this.#enqueue(call, method, found, authorization?.length ?? 0);
      }
      call.identity = found;
    } catch (error) {
      this.#refuse(call, method, error);
    }
    return undefined;
  }

  /** Whether any connection may be one of a proxy that is trusted to forward the identities of its clients. */
  get trustsForwarders(): boolean {
    return this.#authenticators.trustsForwarders;
  }

  /** Whether the client of a connection that begins is a proxy that is trusted to forward identities. */
  isForwarder(facts: PeerFacts): boolean {
    return this.#authenticators.mayForward(this.#authenticators.recognisePeer(facts));
  }

  /** Recognises the peer of a connection, and with it whether that is a trusted proxy. */
  recognise(connected: Connected): void {
    this.#peerOf(connected);
  }

  /**
   * Whose turns a call takes before it is authenticated, if a trusted proxy forwards its identity. Undefined: it is not
   * forwarded, or the call will be refused.
   */
  forwardedOwner({
    forwardedCertificate: header,
    ...connected
  }: Connected & Pick<Presented, "forwardedCertificate">): CallOwner | undefined {
    // Also for a call without the header: the connection is marked.
    const peer = this.#peerOf(connected);
    if (peer === undefined || header === undefined) return undefined;
    const name = this.#authenticators.forwardedName(peer, header);
    return name === undefined
      ? undefined
      : this.#callers.forwardedOwner(connected.connection, name);
  }

  #peerOf({ connection, peerFacts }: Connected): Peer | undefined {
    const isWithdrawn = this.#context.credentials.isWithdrawn(connection);
    const known = this.#peers.get(connection);
    if (known !== undefined && !isWithdrawn) return known;
    const facts = peerFacts();
    if (facts === undefined) return undefined;
    const isCertificateTrusted = facts.isCertificateTrusted && !isWithdrawn;
    const peer = this.#authenticators.recognisePeer({ ...facts, isCertificateTrusted });
    this.#peers.set(connection, peer);
    if (this.#authenticators.mayForward(peer)) this.#callers.markForwarder(connection);
    return peer;
  }

  #enqueue(
    call: UnauthenticatedCall,
    method: string,
    verify: () => Promise<Identity>,
    tokenBytes: number,
  ): PendingAuthentication {
    const { clock, requestPool } = this.#context;
    const pending: PendingAuthentication = new PendingAuthentication(call, method, verify, {
      ...{ clock, requestPool },
      late: () => this.#refuse(call, method, upstreamUnavailable(tooLate)),
      forget: () => {
        token.release();
        pending.leaveQueue?.();
        this.#awaitingKeys.delete(pending);
      },
    });
    const token = this.#tokens.reserve(call.connection, 0, () => {
      pending.cancel();
      call.end(outOfTokenRoom(maxTokenBytesPerConnection));
    });
    token.resize(pendingBytes + tokenBytes);
    if (pending.isWaiting) this.#queue(pending);
    return pending;
  }

  #queue(pending: PendingAuthentication): void {
    const { connection } = pending.call;
    const enter = (): void => {
      void this.#verify(pending).finally(() => this.#gate.leave(connection));
    };
    pending.leaveQueue = this.#gate.queue(connection, { bytes: 0, enter });
  }

  /** Never rejects. */
  async #verify(pending: PendingAuthentication): Promise<void> {
    if (pending.call.isOver) return;
    try {
      pending.finish(await pending.verify());
    } catch (error) {
      if (error instanceof KeysAwaited) {
        this.#awaitKeys(pending, error.requested);
        return;
      }
      pending.cancel();
      this.#refuse(pending.call, pending.method, error);
    }
  }

  /** Verifies a call again once the keys have been requested. */
  #awaitKeys(pending: PendingAuthentication, requested: Promise<void>): void {
    if (pending.call.isOver || !pending.isWaiting) return;
    this.#awaitingKeys.add(pending);
    void requested.then(() => this.#verifyAgain());
  }

  /** There is one request at a time, so none of these calls waits for another one. */
  #verifyAgain(): void {
    const awaiting = [...this.#awaitingKeys];
    this.#awaitingKeys.clear();
    for (const pending of awaiting) this.#queue(pending);
  }

  #refuse(call: ServerCall, method: string, error: unknown): void {
    if (call.isOver) return;
    const ending = statusOf(toClientError(error, "authentication", this.#context.logger, call));
    auditDenied(this.#context, method, call, undefined, ending.code);
    call.end(ending);
  }
}

/** A call whose credential is being verified. */
export class PendingAuthentication {
  readonly call: UnauthenticatedCall;
  readonly method: string;
  readonly verify: () => Promise<Identity>;
  readonly #pool: Ledger;
  readonly #timer: Timer;
  readonly #forget: () => void;
  #isDone = false;
  /** Whether the call still waits: it has no identity, and has neither ended nor waited too long. */
  isWaiting = true;
  /** Removes it from those that wait for their turn. Idempotent. */
  leaveQueue: (() => void) | undefined;
  #reservation: Reservation | undefined;
  #next: (() => void) | undefined;

  constructor(
    call: UnauthenticatedCall,
    method: string,
    verify: () => Promise<Identity>,
    context: Pick<ServiceContext, "clock" | "requestPool"> & {
      /** Ends a call that has waited too long. */
      readonly late: () => void;
      /** Releases what is held for a call that does not wait any more. Idempotent. */
      readonly forget: () => void;
    },
  ) {
    this.call = call;
    this.method = method;
    this.verify = verify;
    this.#pool = context.requestPool;
    this.#forget = context.forget;
    this.#timer = context.clock.setTimeout(() => {
      this.cancel();
      context.late();
    }, maxWaitMs);
  }

  /**
   * Calls `next` when the call has its identity, at once if it has it already, and never if it ends before. `bytes` is the
   * size of the request that waits, which is charged to the connection.
   */
  whenDone(bytes: number, next: () => void): void {
    if (this.call.isOver) {
      this.cancel();
      return;
    }
    if (this.#isDone) {
      next();
      return;
    }
    this.#next = next;
    this.call.onOver(() => this.cancel());
    this.#reservation = this.#pool.reserve(this.call.connection, bytes, () => {
      this.cancel();
      this.call.end(outOfRequestRoom(this.#pool));
    });
  }

  /** For `Authentication`. */
  finish(identity: Identity): void {
    const next = this.#next;
    this.cancel();
    this.#isDone = true;
    this.call.identity = identity;
    if (!this.call.isOver) next?.();
  }

  /** Releases what is held while the call waits. Idempotent. */
  cancel(): void {
    this.isWaiting = false;
    this.#forget();
    this.#timer.cancel();
    this.#next = undefined;
    this.#reservation?.release();
    this.#reservation = undefined;
  }
}
