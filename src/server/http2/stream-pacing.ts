import type { ServerHttp2Session } from "node:http2";
import type { Clock } from "../../base/clock.ts";
import { groupOf, Rotation } from "../../base/rotation.ts";
import { pauseReading, resumeReading } from "./http2-stream.ts";

/**
 * Maximum number of streams that a caller may open per turn of the event loop, on all of its connections, before reading
 * from them pauses: while it is alone, and while there are several callers.
 */
const streamsPerTurn = { alone: 128, shared: 32 };

/** Maximum number of a connection's streams that may wait to be opened before reading from it pauses. */
const maxWaiting = 128;

/** A connection that has opened streams lately. */
interface Pace {
  readonly session: ServerHttp2Session;
  readonly owner: object;
  /** Streams that it has opened since it was last resumed, or in this turn. */
  burst: number;
  isPaused: boolean;
}

/**
 * Pauses connections of callers that open streams so fast that other callers would be delayed. Node.js itself spends about
 * 30 us on a stream that is opened and reset, and reads up to 2 MiB from a socket at once, which is tens of thousands of
 * streams. So if a caller has opened more than `streamsPerTurn`, its connections are not read from until later turns have
 * compensated for it, nor is a connection while more than `maxWaiting` of its streams wait to be opened. Per turn, paused
 * connections are resumed that had opened `streamsPerTurn` together, at least one, of callers in rotation. No stream is
 * refused: TCP makes the client wait.
 */
export class StreamPacing {
  readonly #clock: Clock;
  readonly #waiting: (session: ServerHttp2Session) => number;
  readonly #ownerOf: (session: ServerHttp2Session) => object;
  /** Connections that are paused, or have opened streams in this turn. */
  readonly #paces = new Map<ServerHttp2Session, Pace>();
  readonly #paused = new Rotation<Pace>();
  /** Streams opened by caller, less `streamsPerTurn` for each turn since; callers without any are absent. */
  readonly #opened = new Map<object, number>();
  readonly #areSeveral: () => boolean;
  #isScheduled = false;

  /**
   * `waiting` returns the number of a connection's streams that wait to be opened. `ownerOf` returns whose turns a
   * connection takes. Default: its own. `areSeveral`: whether there are several callers now. Default: no.
   */
  constructor(
    clock: Clock,
    waiting: (session: ServerHttp2Session) => number,
    ownerOf: (session: ServerHttp2Session) => object = (session) => session,
    areSeveral: () => boolean = () => false,
  ) {
    this.#clock = clock;
    this.#waiting = waiting;
    this.#ownerOf = ownerOf;
    this.#areSeveral = areSeveral;
  }

  /** Counts a stream of the connection. Call it within the "stream" event. */
  opened(session: ServerHttp2Session): void {
    let pace = this.#paces.get(session);
    if (pace === undefined) {
      pace = { session, owner: this.#ownerOf(session), burst: 0, isPaused: false };
      this.#paces.set(session, pace);
    }
    pace.burst++;
    const caller = groupOf(pace.owner);
    this.#opened.set(caller, (this.#opened.get(caller) ?? 0) + 1);
    if (!this.#mayRead(caller) || this.#waiting(session) > maxWaiting) {
      // Even if it is paused: Node.js resumes by itself once it has written pending data.
      pauseReading(session);
      if (!pace.isPaused) this.#paused.add(pace.owner, pace);
      pace.isPaused = true;
    }
    this.#schedule();
  }

  readonly #mayRead = (caller: object): boolean => (this.#opened.get(caller) ?? 0) <= this.#perTurn;

  get #perTurn(): number {
    return this.#areSeveral() ? streamsPerTurn.shared : streamsPerTurn.alone;
  }

  #schedule(): void {
    if (this.#isScheduled) return;
    this.#isScheduled = true;
    this.#clock.setImmediate(this.#nextTurn);
  }

  readonly #nextTurn = (): void => {
    this.#isScheduled = false;
    const perTurn = this.#perTurn;
    for (const [caller, opened] of this.#opened) {
      if (opened > perTurn) this.#opened.set(caller, opened - perTurn);
      else this.#opened.delete(caller);
    }
    for (const [session, { isPaused }] of this.#paces) if (!isPaused) this.#paces.delete(session);
    this.#resumeSome();
    if (this.#paces.size > 0 || this.#opened.size > 0) this.#schedule();
  };

  /** Each may bring as many streams as before. */
  #resumeSome(): void {
    for (let expected = 0; expected < this.#perTurn; ) {
      const next = this.#paused.nextOf(this.#mayRead, this.#mayResume);
      if (next === undefined) return;
      const [owner, pace] = next;
      this.#paused.served(owner);
      this.#paused.delete(owner);
      this.#paces.delete(pace.session);
      if (pace.session.destroyed) continue;
      expected += pace.burst;
      resumeReading(pace.session);
    }
  }

  readonly #mayResume = (_owner: object, { session }: Pace): boolean =>
    session.destroyed || this.#waiting(session) <= maxWaiting;
}
