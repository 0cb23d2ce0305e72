import { upstreamUnavailable } from "../../base/errors.ts";
import { Gate } from "../../base/gate.ts";
import { waitFor } from "../../base/wait.ts";
import type { Authenticators } from "../../identity/authenticators.ts";
import type { Identity } from "../../identity/identity.ts";
import { KeysAwaited } from "../../identity/key-set.ts";
import type { Peer, PeerFacts } from "../../identity/peer.ts";
import { statusOf } from "../../wire/errors.ts";
import { byteLowWaterMark, Ledger, type Reservation } from "../kernel/ledger.ts";
import type { Callers, CallOwner } from "../limits/callers.ts";
import { auditDenied } from "./audit.ts";
import { outOfRequestRoom, outOfTokenRoom, toClientError } from "./refusals.ts";
import { RefusedRequest, type ServerCall } from "./server-call.ts";
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
    const pending = new PendingAuthentication(call, requestPool);
    const verified = waitFor<Identity>(
      (resolve, reject) => this.#verify(call, verify, resolve, reject),
      {
        signal: pending.signal,
        deadline: {
          ...{ clock, ms: maxWaitMs },
          expire: () => {
            throw upstreamUnavailable(tooLate);
          },
        },
        charge: (evict) =>
          this.#tokens.reserve(call.connection, pendingBytes + tokenBytes, () =>
            evict(new RefusedRequest(outOfTokenRoom(maxTokenBytesPerConnection))),
          ),
      },
    );
    // Also of a bug in what serves the call then, which must end no other call.
    const refuse = (error: unknown): void => {
      pending.cancel();
      if (error instanceof RefusedRequest) call.end(error.status);
      else this.#refuse(call, method, error);
    };
    verified.then((identity) => pending.finish(identity)).catch(refuse);
    return pending;
  }

  /**
   * Verifies the credential of a call at the turn of its connection. One that needs keys which are being requested leaves the
   * turn to others, and is verified again then. Returns what ends the wait.
   */
  #verify(
    call: UnauthenticatedCall,
    verify: () => Promise<Identity>,
    resolve: (identity: Identity) => void,
    reject: (error: unknown) => void,
  ): () => void {
    const { connection } = call;
    let isOver = false;
    let leaveQueue = (): void => {};
    const queue = (): void => {
      if (!isOver) leaveQueue = this.#gate.queue(connection, { bytes: 0, enter });
    };
    const verifyNow = async (): Promise<void> => {
      try {
        if (!call.isOver) resolve(await verify());
      } catch (error) {
        if (error instanceof KeysAwaited) void error.requested.then(queue);
        else reject(error);
      } finally {
        this.#gate.leave(connection);
      }
    };
    const enter = (): void => void verifyNow();
    // Not before its token is charged: without room for that, it is not verified.
    queueMicrotask(queue);
    return () => {
      isOver = true;
      leaveQueue();
    };
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
  readonly #call: UnauthenticatedCall;
  readonly #pool: Ledger;
  /** Aborted when the call does not wait any more. */
  readonly #waiting = new AbortController();
  #isDone = false;
  #reservation: Reservation | undefined;
  #next: (() => void) | undefined;

  constructor(call: UnauthenticatedCall, pool: Ledger) {
    this.#call = call;
    this.#pool = pool;
  }

  get signal(): AbortSignal {
    return this.#waiting.signal;
  }

  /**
   * Calls `next` when the call has its identity, at once if it has it already, and never if it ends before. `bytes` is the
   * size of the request that waits, which is charged to the connection.
   */
  whenDone(bytes: number, next: () => void): void {
    if (this.#call.isOver) {
      this.cancel();
      return;
    }
    if (this.#isDone) {
      next();
      return;
    }
    this.#next = next;
    this.#call.onOver(() => this.cancel());
    this.#reservation = this.#pool.reserve(this.#call.connection, bytes, () => {
      this.cancel();
      this.#call.end(outOfRequestRoom(this.#pool));
    });
  }

  /** For `Authentication`. */
  finish(identity: Identity): void {
    const next = this.#next;
    this.cancel();
    this.#isDone = true;
    this.#call.identity = identity;
    if (!this.#call.isOver) next?.();
  }

  /** Releases what is held while the call waits. Idempotent. */
  cancel(): void {
    this.#waiting.abort();
    this.#next = undefined;
    this.#reservation?.release();
    this.#reservation = undefined;
  }
}
