import { constants, type ServerHttp2Session } from "node:http2";
import { type Clock, maxTimerMs, type Timer } from "../../base/clock.ts";

export interface UpkeepOptions {
  readonly clock: Clock;
  /** Random numbers in [0, 1). */
  readonly random: () => number;
  readonly limits: {
    /** How long after the last answer a connection is pinged again, in milliseconds. */
    readonly keepaliveTimeMs: number;
    /** How long its client may take to answer, in milliseconds. */
    readonly keepaliveTimeoutMs: number;
    /** Age at which a connection gets a GOAWAY, in milliseconds, 10 % more or less; 0: never. */
    readonly maxStreamAgeMs: number;
  };
  /** Called when a client has not answered a ping in time, before its connection is closed. */
  readonly onUnanswered: (session: ServerHttp2Session) => void;
}

/** The part of the timeout of a ping that begins only once what has arrived by then has been read. */
const graceShare = 0.1;

const maxAge = Buffer.from("max_age");

/** Pings a connection until it is closed, and ends it at its maximum age: its calls finish, and no more are accepted. */
export class SessionUpkeep {
  readonly #session: ServerHttp2Session;
  readonly #options: UpkeepOptions;
  /** For the next ping, or for the answer to the last one. */
  #pingTimer: Timer | undefined;
  #ageTimer: Timer | undefined;

  constructor(session: ServerHttp2Session, options: UpkeepOptions) {
    this.#session = session;
    this.#options = options;
    const { clock, random, limits } = options;
    if (limits.maxStreamAgeMs > 0) {
      const ageMs = limits.maxStreamAgeMs * (0.9 + 0.2 * random());
      this.#ageTimer = clock.setTimeout(this.#end, Math.min(ageMs, maxTimerMs));
    }
    this.#pingLater();
    session.once("close", () => {
      this.#pingTimer?.cancel();
      this.#ageTimer?.cancel();
    });
  }

  readonly #end = (): void => {
    const session = this.#session;
    if (session.closed || session.destroyed) return;
    session.goaway(constants.NGHTTP2_NO_ERROR, 2 ** 31 - 1, maxAge);
    session.close();
  };

  #pingLater(): void {
    const { clock, limits } = this.#options;
    this.#pingTimer = clock.setTimeout(this.#ping, limits.keepaliveTimeMs);
  }

  readonly #ping = (): void => {
    const session = this.#session;
    // Node.js can't ping a session that ends gracefully. Streams of etcd's API and of health may last for longer: whether
    // their client is gone the operating system finds out (`bind`).
    if (session.closed || session.destroyed) return;
    const { clock, limits } = this.#options;
    const graceMs = limits.keepaliveTimeoutMs * graceShare;
    // A process that was stopped for longer than the timeout finds the timer and the answers at once. So the answers are
    // read first.
    const afterReads = (): void => {
      this.#pingTimer = clock.setTimeout(this.#unanswered, graceMs);
    };
    const onTimeout = (): void => {
      this.#pingTimer = clock.setImmediate(afterReads);
    };
    const isSent = session.ping((error) => {
      this.#pingTimer?.cancel();
      if (error === null) this.#pingLater();
    });
    if (isSent) this.#pingTimer = clock.setTimeout(onTimeout, limits.keepaliveTimeoutMs - graceMs);
    else session.destroy();
  };

  readonly #unanswered = (): void => {
    this.#options.onUnanswered(this.#session);
    this.#session.destroy();
  };
}
