import type { ServerHttp2Session } from "node:http2";
import type { Clock, Timer } from "../../base/clock.ts";
import { FairQueue, groupOf } from "../../base/fair-queue.ts";
import type { FramedConnection } from "./frames/framed-connection.ts";

/**
 * Maximum number of streams that a caller may open per turn of the event loop, on all of its connections, before reading
 * from them pauses: while it is alone, and while there are several callers.
 */
const streamsPerTurn = { alone: 128, shared: 32 };

/** Maximum number of a connection's streams that may wait to be opened before reading from it pauses. */
const maxWaiting = 128;

/**
 * A caller that opens many streams in one turn of the event loop makes all others wait for the rest of that turn. While
 * there are several callers, its connections are not read from for some time after that, for the hold:
 *
 *     milliseconds = streams of the turn ** 2 / holdDivisor, at most maxHoldMs
 *
 * For example 10 ms after 64 streams, which is what one connection opens in a turn at most, and 900 ms after 600. The number
 * is squared so that long turns become rare: a turn of 64 streams takes about 2 ms, so others wait for some 15 % of the
 * time; one of 600 takes about 20 ms, which is 2 %.
 */
const holdDivisor = 400;
const maxHoldMs = 10_000;

/** What is paused: the connection of a session. */
type Reading = Pick<FramedConnection, "hold" | "release">;

/** A connection that has opened streams in this turn, or is paused. */
interface Pace {
  readonly session: ServerHttp2Session;
  readonly owner: object;
  /** Streams that it has opened in this turn. */
  burst: number;
}

/**
 * Pauses the connections of callers that open streams so fast that other callers would be delayed.
 *
 * Node.js spends about 30 us on a stream that is opened and reset at once, before any code of the service runs, so a limit
 * on calls comes too late. The only way to slow such a client down is not to read from its sockets: then TCP makes it wait,
 * and no stream is refused.
 *
 * Reading stops for one of three reasons:
 *
 * - The caller has opened more than `streamsPerTurn` streams in this turn, on all of its connections. Each later turn
 *   subtracts `streamsPerTurn` from that number, and reading resumes once it is not above `streamsPerTurn`. A caller that
 *   opens 1,000 streams in one turn, where 128 are allowed, is not read from for seven turns.
 * - More than `maxWaiting` streams of the connection wait to be opened.
 * - The caller is held, after a turn in which one of its connections opened very many (`holdDivisor`). Its other connections
 *   are paused when they are next read: it may have thousands, of which most send nothing meanwhile.
 *
 * Connections are resumed a few per turn, so that all of them together do not bring as many streams as before: callers in
 * rotation, until the resumed connections have opened `streamsPerTurn` in their last burst, and at least one.
 */
export class StreamPacing {
  readonly #clock: Clock;
  readonly #readingOf: (session: ServerHttp2Session) => Reading;
  readonly #waiting: (session: ServerHttp2Session) => number;
  readonly #ownerOf: (session: ServerHttp2Session) => object;
  /** Connections that have opened streams in this turn, and are not paused. */
  readonly #paces = new Map<ServerHttp2Session, Pace>();
  /** Connections that are paused, and the order in which they are resumed. */
  readonly #paused = new Map<ServerHttp2Session, Pace>();
  readonly #waitingToRead = new FairQueue<Pace>();
  /** Streams opened by caller, less `streamsPerTurn` for each turn since; callers without any are absent. */
  readonly #opened = new Map<object, number>();
  /** Callers that are held, and until when. */
  readonly #held = new Map<object, number>();
  /** Connections that have opened a stream: of another the caller is not known, only that of its host. */
  readonly #known = new WeakSet<ServerHttp2Session>();
  readonly #hasSeveral: () => boolean;
  /** For the next turn, and for the end of the first hold. */
  #turn: Timer | undefined;
  #timer: Timer | undefined;

  /**
   * `readingOf` returns what pauses a connection. `waiting` returns the number of a connection's streams that wait to be
   * opened. `ownerOf` returns whose turns a connection takes. Default: its own. `hasSeveral`: whether there are several
   * callers now. Default: no.
   */
  constructor(
    clock: Clock,
    readingOf: (session: ServerHttp2Session) => Reading,
    waiting: (session: ServerHttp2Session) => number,
    ownerOf: (session: ServerHttp2Session) => object = (session) => session,
    hasSeveral: () => boolean = () => false,
  ) {
    this.#clock = clock;
    this.#readingOf = readingOf;
    this.#waiting = waiting;
    this.#ownerOf = ownerOf;
    this.#hasSeveral = hasSeveral;
  }

  /** Counts a stream of the connection. Call it within the "stream" event. */
  opened(session: ServerHttp2Session): void {
    const pace = this.#paused.get(session) ?? this.#paceOf(session);
    pace.burst++;
    const caller = groupOf(pace.owner);
    this.#opened.set(caller, (this.#opened.get(caller) ?? 0) + 1);
    if (!this.#mayRead(caller) || this.#waiting(session) > maxWaiting) {
      this.#pause(pace);
      this.#hold(caller, pace);
    }
    this.#schedule();
  }

  /** Bytes of the connection have arrived: pauses it if its caller is held. Call it before they are passed on. */
  received(session: ServerHttp2Session): void {
    if (this.#held.size === 0 || this.#paused.has(session) || !this.#known.has(session)) return;
    if (!this.#held.has(groupOf(this.#ownerOf(session)))) return;
    const pace = this.#paceOf(session);
    // One of them at a time is resumed.
    pace.burst = Math.max(pace.burst, this.#perTurn);
    this.#pause(pace);
  }

  /** The pace of a connection that is not paused. Its owner is another one once its first call is authenticated. */
  #paceOf(session: ServerHttp2Session): Pace {
    const known = this.#paces.get(session);
    const owner = this.#ownerOf(session);
    if (known?.owner === owner) return known;
    const pace = { session, owner, burst: known?.burst ?? 0 };
    this.#paces.set(session, pace);
    this.#known.add(session);
    return pace;
  }

  readonly #mayRead = (caller: object): boolean =>
    !this.#held.has(caller) && (this.#opened.get(caller) ?? 0) <= this.#perTurn;

  /** Not of a connection without a caller of its own: others may share it. */
  #hold(caller: object, { owner, burst }: Pace): void {
    if (caller === owner || burst <= this.#perTurn || !this.#hasSeveral()) return;
    const until = this.#clock.now() + Math.min(maxHoldMs, burst ** 2 / holdDivisor);
    this.#held.set(caller, Math.max(until, this.#held.get(caller) ?? 0));
  }

  #pause(pace: Pace): void {
    const { session, owner } = pace;
    if (this.#paused.has(session)) return;
    this.#paces.delete(session);
    this.#paused.set(session, pace);
    this.#waitingToRead.push(owner, pace);
    this.#readingOf(session).hold();
  }

  get #perTurn(): number {
    return this.#hasSeveral() ? streamsPerTurn.shared : streamsPerTurn.alone;
  }

  #schedule(): void {
    this.#turn ??= this.#clock.setImmediate(this.#nextTurn);
  }

  /** Whether a connection waits for something other than the end of its caller's hold. */
  #isAnyWaiting(): boolean {
    return this.#waitingToRead.next((caller) => !this.#held.has(caller)) !== undefined;
  }

  readonly #nextTurn = (): void => {
    this.#turn = undefined;
    this.#timer?.cancel();
    this.#timer = undefined;
    const perTurn = this.#perTurn;
    const now = this.#clock.now();
    for (const [caller, until] of this.#held) if (now >= until) this.#held.delete(caller);
    for (const [caller, opened] of this.#opened) {
      if (opened > perTurn) this.#opened.set(caller, opened - perTurn);
      else this.#opened.delete(caller);
    }
    this.#paces.clear();
    this.#resumeSome();
    if (this.#opened.size > 0 || this.#isAnyWaiting()) this.#schedule();
    else if (this.#held.size > 0) {
      const first = Math.min(...this.#held.values());
      this.#timer = this.#clock.setTimeout(this.#nextTurn, Math.ceil(first - now));
    }
  };

  /** Each may bring as many streams as before. */
  #resumeSome(): void {
    for (let expected = 0; expected < this.#perTurn; ) {
      const next = this.#waitingToRead.shift(this.#mayRead, this.#mayResume);
      if (next === undefined) return;
      const [, { session, burst }] = next;
      this.#paused.delete(session);
      expected += session.destroyed ? 1 : burst;
      if (!session.destroyed) this.#readingOf(session).release();
    }
  }

  readonly #mayResume = (_owner: object, { session }: Pace): boolean =>
    session.destroyed || this.#waiting(session) <= maxWaiting;
}
