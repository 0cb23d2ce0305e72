import {
  ServerInterceptingCall,
  type ServerInterceptingCallInterface,
  type ServerInterceptor,
} from "@grpc/grpc-js";
import type { Clock, Timer } from "../../base/clock.ts";
import type { WireStatus } from "../../wire/errors.ts";
import { outOfRequestRoom, tookTooLong } from "../calls/refusals.ts";
import { http2StreamOf, resetUnlessClosed } from "../http2/http2-stream.ts";
import type { Ledger, Reservation } from "../kernel/ledger.ts";
import type { ServerLimits } from "../limits/server-limits.ts";

/** The calls of one connection, which the public API of grpc-js identifies by its address alone. */
interface Peer {
  calls: number;
}

/**
 * Bounds the incomplete requests of calls that grpc-js serves: the time of each, and the bytes of all in the pool. grpc-js
 * does not say how much of a request has arrived, so each counts as the largest request. A stream of requests counts for
 * as long as it is open, since a part of the next request may have arrived.
 */
export class IncompleteRequests {
  readonly #clock: Clock;
  readonly #limits: ServerLimits;
  readonly #pool: Ledger;
  readonly #peers = new Map<string, Peer>();

  constructor(clock: Clock, limits: ServerLimits, pool: Ledger) {
    this.#clock = clock;
    this.#limits = limits;
    this.#pool = pool;
  }

  readonly interceptor: ServerInterceptor = (method, call) => {
    const { requestMs, maxUnreadBytesPerConnection } = this.#limits;
    let release: () => void = () => {};
    let timer: Timer | undefined;
    const done = (): void => {
      timer?.cancel();
      release();
    };
    const refuse = (why: WireStatus): void => {
      done();
      this.#refuse(call, why);
    };
    return new ServerInterceptingCall(call, {
      start: (next) => {
        timer = this.#clock.setTimeout(() => refuse(tookTooLong(requestMs)), requestMs);
        release = this.#charge(call.getPeer(), () =>
          refuse(outOfRequestRoom(maxUnreadBytesPerConnection)),
        );
        next({
          onReceiveMessage: (message, passOn) => {
            if (method.requestStream) timer?.cancel();
            passOn(message);
          },
          onReceiveHalfClose: (passOn) => {
            done();
            passOn();
          },
          onCancel: done,
        });
      },
    });
  };

  /** Charges a request that is not complete by the end of this turn. Returns what releases the charge. */
  #charge(address: string, evict: () => void): () => void {
    let reservation: Reservation | undefined;
    let peer: Peer | undefined;
    const later = this.#clock.setImmediate(() => {
      peer = this.#peers.get(address) ?? { calls: 0 };
      peer.calls++;
      this.#peers.set(address, peer);
      reservation = this.#pool.reserve(peer, 0, evict);
      reservation.resize(this.#limits.maxRequestBytes);
    });
    return () => {
      later.cancel();
      reservation?.release();
      reservation = undefined;
      if (peer !== undefined && --peer.calls === 0) this.#peers.delete(address);
      peer = undefined;
    };
  }

  /** What has arrived is held until the stream is closed, so it is reset if its client does not close it. */
  #refuse(call: ServerInterceptingCallInterface, why: WireStatus): void {
    call.sendStatus(why);
    resetUnlessClosed(http2StreamOf({ call }), this.#limits.endFlushMs, this.#clock);
  }
}
