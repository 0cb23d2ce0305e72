import { defaultWindows, Http2Connection, openWindows, type Windows } from "./http2-connection.ts";
import type { MessageScanner } from "./message-scanner.ts";
import { monotonicMs } from "./monotonic-clock.ts";
import { type BenchView, isOpening, keyWatchesRequest, watchRequest } from "./requests.ts";
import type { Target } from "./servers.ts";

/** The streams to open. */
export interface StreamsTask {
  readonly target: Target;
  readonly url: string;
  readonly streams: number;
  /** The number of connections that the streams are spread over evenly. */
  readonly connections: number;
  /** Every second stream receives its flow control window and never extends it. */
  readonly halfShut?: boolean;
  readonly latestState?: boolean;
  readonly view?: BenchView;
  /** Whether the streams share the keys, so that each event goes to one of them. */
  readonly isSharded?: boolean;
  /** Each stream has so many watches, of a key each, by etcd's API. Default: one, of all keys. */
  readonly watchesPerStream?: number;
}

/** If some streams do not read. They must not stop the others of their connection. */
const smallWindows: Windows = { ...openWindows, stream: defaultWindows.stream };
/** Maximum number of connections and of streams that are opened at the same time. */
const connectingAtOnce = 200;
const openingAtOnce = 1_000;

/**
 * Watches over all keys, and the events on them. The n-th event of a stream is the n-th write after all streams were
 * open: each stream must receive every event, or the load fails.
 */
export class LoadStreams {
  readonly #task: StreamsTask;
  /** Number of events of each stream. */
  readonly #seen: Uint32Array;
  readonly #readers: number;
  /** How many reading streams have received the n-th event, and when the last of them did. */
  #had = new Uint32Array(1_024);
  readonly #completedAt: number[] = [];
  readonly #waiting: { readonly events: number; readonly resolve: () => void }[] = [];
  #connections: Http2Connection[] = [];
  #delivered = 0;
  #messages = 0;
  #shutEnded = 0;

  constructor(task: StreamsTask) {
    this.#task = task;
    this.#seen = new Uint32Array(task.streams);
    this.#readers = task.halfShut ? Math.ceil(task.streams / 2) : task.streams;
  }

  /** Events received by reading streams, all together. */
  get delivered(): number {
    return this.#delivered;
  }

  /** Messages with events received by reading streams, all together. */
  get messages(): number {
    return this.#messages;
  }

  /** Bytes received on all connections. */
  get receivedBytes(): number {
    return this.#connections.reduce((sum, { receivedBytes }) => sum + receivedBytes, 0);
  }

  /** Number of non-reading streams that the server ended. */
  get shutEnded(): number {
    return this.#shutEnded;
  }

  /** Number of events that every reading stream has received. */
  get completed(): number {
    return this.#completedAt.length;
  }

  /** When the last reading stream received each event from `from` up to but not including `to`. */
  async completedBetween(from: number, to: number): Promise<number[]> {
    if (this.completed < to) {
      await new Promise<void>((resolve) => this.#waiting.push({ events: to, resolve }));
    }
    return this.#completedAt.slice(from, to);
  }

  /** Resolves when every stream is open. */
  async open(): Promise<void> {
    const { url, streams, connections, halfShut } = this.#task;
    const windows = halfShut ? smallWindows : openWindows;
    const count = Math.min(connections, streams);
    while (this.#connections.length < count) {
      const length = Math.min(connectingAtOnce, count - this.#connections.length);
      const opened = Array.from({ length }, () => Http2Connection.to(url, fail, windows));
      this.#connections.push(...(await Promise.all(opened)));
    }
    for (let from = 0; from < streams; from += openingAtOnce) {
      const to = Math.min(streams, from + openingAtOnce);
      await Promise.all(Array.from({ length: to - from }, (_, i) => this.#openStream(from + i)));
    }
  }

  close(): void {
    for (const connection of this.#connections) connection.close();
  }

  #openStream(index: number): Promise<void> {
    const { target, latestState = false, halfShut = false, watchesPerStream } = this.#task;
    const { view, isSharded = false } = this.#task;
    const shard = { index, of: this.#task.streams };
    const connection = this.#connections[index % this.#connections.length];
    if (connection === undefined) throw new Error("There is no connection.");
    // Reading and non-reading streams are on every connection, whatever their number.
    const isShut = halfShut && Math.floor(index / this.#connections.length) % 2 === 1;
    const request =
      watchesPerStream === undefined
        ? watchRequest(target, { latestState, view, ...(isSharded && { shard }) })
        : keyWatchesRequest(watchesPerStream);
    let unopened = watchesPerStream ?? 1;
    return new Promise((resolve) => {
      const onMessage = (scanner: MessageScanner): void => {
        if (isOpening(target, scanner)) {
          unopened--;
          if (unopened === 0) resolve();
        } else if (!isShut) this.#take(index, scanner.count);
      };
      const onEnd = (): void => {
        if (isShut) this.#shutEnded++;
        // A lost stream would make the others look faster.
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
    if (events > 0) this.#messages++;
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

/** Ends the load, and with it the benchmark. */
function fail(error: Error): void {
  void Promise.reject(error);
}
