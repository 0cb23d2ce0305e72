/**
 * Clients that resume their streams at another server when their connection is lost, in their own process. Started by
 * relay-failover.ts, which sends it messages by IPC.
 */
import { setTimeout as delay } from "node:timers/promises";
import { answerParent } from "./child.ts";
import { Http2Connection } from "./http2-connection.ts";
import type { MessageScanner } from "./message-scanner.ts";
import { monotonicMs } from "./monotonic-clock.ts";
import { watchRequest } from "./requests.ts";

/** The messages of the parent: first to open streams, evenly spread over the servers. */
export type ResumingQuestion =
  | {
      readonly do: "open";
      readonly urls: readonly string[];
      readonly streams: number;
      readonly connections: number;
    }
  /** To wait until every stream has the revision. The response is when the last one had it, in monotonicMs. */
  | { readonly do: "await revision"; readonly revision: number }
  | { readonly do: "count" };

/** What has happened to the streams so far. */
export interface ResumingCounts {
  /** Streams whose connection was lost, and that have been opened again from their resume point. */
  readonly resumed: number;
  /** Streams that a server has ended, such as because their resume point is too old: their client would relist. */
  readonly ended: number;
}

/** Pause before a lost connection is replaced, at most, in milliseconds: gRPC clients have a jitter as well. */
const maxPauseMs = 100;
const openingAtOnce = 1_000;

/** All streams of this process. */
class ResumingLoad {
  #urls: readonly string[] = [];
  /** The last revision that each stream has received. */
  #revisions = new Float64Array();
  #connections = 0;
  #resumed = 0;
  #ended = 0;
  /** Number of streams that are not at the awaited revision yet. */
  #missing = 0;
  #awaited = Number.POSITIVE_INFINITY;
  #reached = Promise.withResolvers<number>();

  async answer(question: ResumingQuestion): Promise<unknown> {
    if (question.do === "open") return this.#open(question);
    if (question.do === "count") {
      return { resumed: this.#resumed, ended: this.#ended } satisfies ResumingCounts;
    }
    return this.#through(question.revision);
  }

  async #open(task: ResumingQuestion & { do: "open" }): Promise<void> {
    this.#urls = task.urls;
    this.#revisions = new Float64Array(task.streams);
    this.#connections = Math.min(task.connections, task.streams);
    const opening = Array.from({ length: this.#connections }, (_, i) => this.#connect(i, i));
    await Promise.all(opening);
  }

  #through(revision: number): Promise<number> {
    this.#awaited = revision;
    this.#missing = this.#revisions.filter((reached) => reached < revision).length;
    this.#reached = Promise.withResolvers();
    if (this.#missing === 0) this.#reached.resolve(monotonicMs());
    return this.#reached.promise;
  }

  /** Opens the streams of a connection at a server, by its index. Resolves to whether all have begun. */
  async #connect(index: number, server: number): Promise<boolean> {
    const url = this.#urls[server % this.#urls.length] ?? "";
    let isConnected = false;
    let isLost = false;
    const onLost = (): void => {
      isLost = true;
      if (isConnected) void this.#reconnect(index, server + 1);
    };
    const connection = await Http2Connection.to(url, onLost);
    isConnected = true;
    const streams = Array.from(this.#streamsOf(index));
    for (let from = 0; from < streams.length && !isLost; from += openingAtOnce) {
      const some = streams.slice(from, from + openingAtOnce);
      await Promise.all(some.map((stream) => this.#watch(connection, stream, () => isLost)));
    }
    return !isLost;
  }

  async #reconnect(index: number, server: number): Promise<void> {
    await delay(Math.random() * maxPauseMs);
    try {
      const isOpen = await this.#connect(index, server);
      if (isOpen) this.#resumed += [...this.#streamsOf(index)].length;
    } catch {
      // The server does not run any more.
      await this.#reconnect(index, server + 1);
    }
  }

  *#streamsOf(index: number): Generator<number, void, void> {
    for (let i = index; i < this.#revisions.length; i += this.#connections) yield i;
  }

  /** Opens a stream after the last revision that it has received. Resolves with its first message, or its end. */
  #watch(connection: Http2Connection, stream: number, isLost: () => boolean): Promise<void> {
    const after = this.#revisions[stream] ?? 0;
    const request = watchRequest("watch-fanout", after === 0 ? {} : { afterRevision: after });
    return new Promise((resolve) => {
      const onMessage = ({ number1: revision }: MessageScanner): void => {
        resolve();
        // Without a revision more of the same batch follows.
        if (revision > 0) this.#take(stream, revision);
      };
      const onEnd = (): void => {
        resolve();
        if (!isLost()) this.#ended++;
      };
      connection.open(request, onMessage, onEnd);
    });
  }

  #take(stream: number, revision: number): void {
    const before = this.#revisions[stream] ?? 0;
    this.#revisions[stream] = revision;
    if (before >= this.#awaited || revision < this.#awaited) return;
    this.#missing--;
    if (this.#missing === 0) this.#reached.resolve(monotonicMs());
  }
}

const load = new ResumingLoad();
answerParent<ResumingQuestion>((question) => load.answer(question));
