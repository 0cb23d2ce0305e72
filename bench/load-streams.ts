import { Http2Connection } from "./http2-connection.ts";
import type { MessageScanner } from "./message-scanner.ts";
import { isOpening, watchRequest } from "./requests.ts";
import type { Target } from "./servers.ts";

/** Which streams to open. */
export interface StreamsTask {
  readonly target: Target;
  readonly url: string;
  readonly streams: number;
  /** The streams are spread evenly over so many. */
  readonly connections: number;
  /** Every second stream takes what fits its window and nothing more. */
  readonly halfShut?: boolean;
  readonly latestState?: boolean;
}

/** The window of streams where some are shut: what HTTP/2 has as a default. */
const smallWindow = 65_535;
/** How many streams may be about to open. */
const openingAtOnce = 1_000;

/** The machine's own clock, in milliseconds: the same for every process. */
export function monotonicMs(): number {
  return Number(process.hrtime.bigint()) / 1e6;
}

/**
 * Watches over all keys, and what came on them. The n-th event of a stream is the n-th that was written
 * since all streams were open: each gets every one, or the load fails.
 */
export class LoadStreams {
  readonly #task: StreamsTask;
  /** How many events each stream has had. */
  readonly #seen: Uint32Array;
  readonly #readers: number;
  /** How many reading streams have had the n-th event, and when the last of them did. */
  #had = new Uint32Array(1_024);
  readonly #completedAt: number[] = [];
  readonly #waiting: { readonly events: number; readonly resolve: () => void }[] = [];
  #connections: Http2Connection[] = [];
  #delivered = 0;
  #shutEnded = 0;

  constructor(task: StreamsTask) {
    this.#task = task;
    this.#seen = new Uint32Array(task.streams);
    this.#readers = task.halfShut ? Math.ceil(task.streams / 2) : task.streams;
  }

  /** Events that came to streams that read, all together. */
  get delivered(): number {
    return this.#delivered;
  }

  /** How many streams that took nothing were ended by the server. */
  get shutEnded(): number {
    return this.#shutEnded;
  }

  /** How many events every reading stream has had. */
  get completed(): number {
    return this.#completedAt.length;
  }

  /** When the last reading stream had the events from `from` up to and without `to`. */
  async completedBetween(from: number, to: number): Promise<number[]> {
    if (this.completed < to) {
      await new Promise<void>((resolve) => this.#waiting.push({ events: to, resolve }));
    }
    return this.#completedAt.slice(from, to);
  }

  /** Resolves when every stream has said that it is open. */
  async open(): Promise<void> {
    const { url, streams, connections, halfShut } = this.#task;
    const window = halfShut ? smallWindow : undefined;
    this.#connections = await Promise.all(
      Array.from({ length: Math.min(connections, streams) }, () =>
        Http2Connection.to(url, fail, window),
      ),
    );
    for (let from = 0; from < streams; from += openingAtOnce) {
      const to = Math.min(streams, from + openingAtOnce);
      await Promise.all(Array.from({ length: to - from }, (_, i) => this.#openStream(from + i)));
    }
  }

  close(): void {
    for (const connection of this.#connections) connection.close();
  }

  #openStream(index: number): Promise<void> {
    const { target, latestState = false, halfShut = false } = this.#task;
    const connection = this.#connections[index % this.#connections.length];
    if (connection === undefined) throw new Error("There is no connection.");
    // Both kinds are on every connection, however many there are.
    const isShut = halfShut && Math.floor(index / this.#connections.length) % 2 === 1;
    const request = watchRequest(target, { latestState });
    return new Promise((resolve) => {
      const onMessage = (scanner: MessageScanner): void => {
        if (isOpening(target, scanner)) resolve();
        else if (!isShut) this.#take(index, scanner.count);
      };
      const onEnd = (): void => {
        if (isShut) this.#shutEnded++;
        // One that is lost in between would make the rest look faster.
        else fail(new Error(`${target} ended a stream.`));
      };
      connection.open(request, onMessage, onEnd, isShut);
    });
  }

  #take(index: number, events: number): void {
    const from = this.#seen[index] ?? 0;
    const to = from + events;
    this.#seen[index] = to;
    this.#delivered += events;
    if (to > this.#had.length) {
      const larger = new Uint32Array(to * 2);
      larger.set(this.#had);
      this.#had = larger;
    }
    for (let n = from; n < to; n++) {
      const had = (this.#had[n] ?? 0) + 1;
      this.#had[n] = had;
      if (had === this.#readers) this.#completedAt[n] = monotonicMs();
    }
    if (this.#waiting.length > 0) this.#tellWaiting();
  }

  #tellWaiting(): void {
    const [first] = this.#waiting;
    if (first === undefined || first.events > this.completed) return;
    this.#waiting.shift();
    first.resolve();
  }
}

/** Ends the load and with it the benchmark. */
function fail(error: Error): void {
  void Promise.reject(error);
}
