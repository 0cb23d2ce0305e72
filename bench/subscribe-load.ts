/**
 * A load in its own process: many watches of all keys, on one Subscribe stream or on a stream each, on one connection. Its
 * client shares no code with the service but the reader of messages.
 */
import { setTimeout as delay } from "node:timers/promises";
import { MessageCursor } from "../src/protobuf/message-cursor.ts";
import { BareGrpc } from "../test/foreign/bare-grpc.ts";
import { encode } from "../test/foreign/protobuf.ts";
import { answerParent } from "./child.ts";
import { LoadWriter } from "./load-writer.ts";
import { monotonicMs } from "./monotonic-clock.ts";
import { resource } from "./servers.ts";

/** How the watches are opened. */
export interface SubscribeTask {
  readonly url: string;
  readonly etcdUrl: string;
  readonly watches: number;
  readonly isOneStream: boolean;
  /** Whether there is one more, which never gets credit. Only on one stream. */
  readonly hasStalled: boolean;
}

export type SubscribeQuestion =
  | { readonly do: "open"; readonly task: SubscribeTask }
  | { readonly do: "write"; readonly perSecond: number; readonly count: number };

const service = "/watchfanout.v1.ListWatchService";
const eventTag = 0x12;
const watchTag = 0x12;
const idTag = 0x08;

/** Counts the events of each watch. The n-th event of a watch is the n-th write. */
class SubscribeLoad {
  #seen = new Uint32Array(0);
  #had: number[] = [];
  #completedAt: number[] = [];
  #opened = 0;
  #writer: LoadWriter | undefined;

  async open({ url, etcdUrl, watches, isOneStream, hasStalled }: SubscribeTask): Promise<void> {
    const grpc = new BareGrpc(url);
    this.#seen = new Uint32Array(watches + 2);
    const ended = (failure: Error | undefined): void =>
      void Promise.reject(failure ?? new Error("A stream ended."));
    const request = encode({ 1: resource });
    if (isOneStream) {
      const call = grpc.open(`${service}/Subscribe`);
      call.consume((message) => this.#takeResponse(new MessageCursor(message), watches), ended);
      if (hasStalled) call.send(encode({ 1: encode({ 1: watches + 1, 2: request, 3: 0 }) }));
      for (let id = 1; id <= watches; id++) call.send(encode({ 1: encode({ 1: id, 2: request }) }));
    } else {
      for (let id = 1; id <= watches; id++) {
        const call = grpc.call(`${service}/Watch`, request);
        call.consume((message) => this.#take(id, eventsIn(new MessageCursor(message))), ended);
      }
    }
    while (this.#opened < watches) await delay(10);
    this.#writer ??= await LoadWriter.to(etcdUrl, 256);
  }

  /** Returns how long each write took to reach the last watch, in milliseconds. */
  async write(perSecond: number, count: number): Promise<number[]> {
    const written = await this.#writer?.writePaced(perSecond, count);
    if (written === undefined) return [];
    const { first, sentAt } = written;
    while (this.#completedAt[first + count - 1] === undefined) await delay(5);
    return sentAt.map((at, i) => (this.#completedAt[first + i] ?? Number.NaN) - at);
  }

  #takeResponse(cursor: MessageCursor, watches: number): void {
    let id = 0;
    for (let tag = cursor.next(); tag !== 0; tag = cursor.next()) {
      if (tag === idTag) id = cursor.number();
      else if (tag === watchTag) {
        const outer = cursor.enter();
        if (id <= watches) this.#take(id, eventsIn(cursor));
        cursor.leave(outer);
      } else throw new Error(`The watch ${id} has ended.`);
    }
  }

  #take(id: number, events: number): void {
    if (events === 0) {
      this.#opened++;
      return;
    }
    const watches = this.#opened;
    for (let i = 0; i < events; i++) {
      const n = this.#seen[id] ?? 0;
      this.#seen[id] = n + 1;
      const had = (this.#had[n] ?? 0) + 1;
      this.#had[n] = had;
      if (had === watches) this.#completedAt[n] = monotonicMs();
    }
  }
}

/** Number of events of a WatchResponse. */
function eventsIn(cursor: MessageCursor): number {
  let events = 0;
  for (let tag = cursor.next(); tag !== 0; tag = cursor.next()) {
    if (tag === eventTag) events++;
    cursor.skip(tag);
  }
  return events;
}

if (import.meta.main) {
  const load = new SubscribeLoad();
  answerParent<SubscribeQuestion>((question) =>
    question.do === "open"
      ? load.open(question.task)
      : load.write(question.perSecond, question.count),
  );
}
