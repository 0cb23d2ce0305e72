/**
 * The load, in a process of its own: opens the streams, writes, and counts what comes. Started by
 * fanout.ts and spoken to over IPC. Its client is the same for both servers: bare HTTP/2 and messages by
 * hand, of which it looks only at what it counts.
 */
import { randomBytes } from "node:crypto";
import { BareGrpc } from "../test/foreign/bare-grpc.ts";
import { encode } from "../test/foreign/protobuf.ts";
import { answerParent } from "./child.ts";
import { countField } from "./message-fields.ts";

/** What the parent asks for first. */
export interface LoadTask {
  readonly target: "etcd" | "watch-fanout";
  readonly etcdUrl: string;
  /** Of the service; unused where the target is etcd. */
  readonly serviceUrl: string;
  readonly streams: number;
  readonly connections: number;
  readonly valueBytes: number;
}

/** What the load has done so far. */
export interface LoadCounts {
  /** Events delivered, over all streams. */
  readonly delivered: number;
  readonly written: number;
}

/** How far the writer gets ahead of the slowest stream. */
const aheadOfSlowest = 1_000;
const writesInFlight = 64;
const keyCount = 1_000;
const prefix = "/bench/";

class Load {
  readonly #task: LoadTask;
  readonly #store: BareGrpc;
  readonly #perStream: number[];
  readonly #values: Buffer[];
  #delivered = 0;
  #written = 0;
  #inFlight = 0;
  #allowed = aheadOfSlowest;

  constructor(task: LoadTask) {
    this.#task = task;
    this.#store = new BareGrpc(task.etcdUrl);
    this.#perStream = Array.from({ length: task.streams }, () => 0);
    this.#values = Array.from({ length: 16 }, () => randomBytes(task.valueBytes));
  }

  get counts(): LoadCounts {
    return { delivered: this.#delivered, written: this.#written };
  }

  /** Resolves when every stream has said that it is open. */
  async openStreams(): Promise<void> {
    const { target, etcdUrl, serviceUrl, streams, connections } = this.#task;
    const url = target === "etcd" ? etcdUrl : serviceUrl;
    const clients = Array.from({ length: Math.min(connections, streams) }, () => new BareGrpc(url));
    await Promise.all(
      this.#perStream.map((_, i) => {
        const client = clients[i % clients.length];
        if (client === undefined) throw new Error("There is no connection.");
        return this.#openStream(client, i);
      }),
    );
  }

  #openStream(client: BareGrpc, index: number): Promise<void> {
    const { target } = this.#task;
    const { promise, resolve } = Promise.withResolvers<void>();
    const eventsField = target === "etcd" ? 11 : 2;
    const call = client.open(
      target === "etcd" ? "/etcdserverpb.Watch/Watch" : "/watchfanout.v1.ListWatchService/Watch",
    );
    call.consume(
      (message) => {
        const events = countField(message, eventsField);
        // The first word of both: created, or the bookmark.
        if (events === 0) resolve();
        this.#delivered += events;
        this.#perStream[index] = (this.#perStream[index] ?? 0) + events;
      },
      // A stream that is lost in between would make the rest look faster.
      (failure) => void Promise.reject(failure ?? new Error("A stream ended.")),
    );
    if (target === "etcd") {
      // WatchRequest: create_request = 1; in it: key = 1, range_end = 2.
      call.send(encode({ 1: encode({ 1: prefix, 2: rangeEnd(prefix) }) }));
    } else {
      call.send(encode({ 1: "bench" }));
      call.endRequest();
    }
    return promise;
  }

  /** Writes from now on, as fast as etcd takes it and the slowest stream follows. */
  write(): void {
    while (this.#inFlight < writesInFlight) {
      if (this.#written + this.#inFlight >= this.#allowed) {
        this.#allowed = Math.min(...this.#perStream) + aheadOfSlowest;
        if (this.#written + this.#inFlight >= this.#allowed) {
          if (this.#inFlight === 0) setTimeout(() => this.write(), 1);
          return;
        }
      }
      this.#inFlight++;
      void this.#put();
    }
  }

  async #put(): Promise<void> {
    const i = this.#written + this.#inFlight;
    const key = `${prefix}${i % keyCount}`;
    await this.#store.unary(
      "/etcdserverpb.KV/Put",
      encode({ 1: key, 2: this.#values[i % this.#values.length] }),
    );
    this.#inFlight--;
    this.#written++;
    this.write();
  }
}

function rangeEnd(start: string): Buffer {
  const end = Buffer.from(start);
  end.writeUInt8(end.readUInt8(end.length - 1) + 1, end.length - 1);
  return end;
}

let load: Load | undefined;

answerParent<LoadTask | "write" | "count">(async (message) => {
  if (message === "count") return load?.counts;
  if (message === "write") {
    load?.write();
  } else {
    load = new Load(message);
    await load.openStreams();
  }
  return undefined;
});
