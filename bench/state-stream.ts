import { setTimeout as delay } from "node:timers/promises";
import { MessageCursor } from "../src/protobuf/message-cursor.ts";
import { type BareCall, BareGrpc } from "../test/foreign/bare-grpc.ts";
import { encode } from "../test/foreign/protobuf.ts";

const watch = "/watchfanout.v1.ListWatchService/Watch";

/** The pace of a client: the time per message, until it is set to full speed. */
export interface Pace {
  perMessageMs: number;
}

/** A watch that begins with the state, with a client that shares no code with the service. */
export class StateStream {
  readonly #call: BareCall;
  readonly #complete = Promise.withResolvers<void>();
  readonly #level: { readonly revision: number; readonly resolve: () => void }[] = [];
  /** Objects of the initial state so far. */
  objects = 0;
  /** Events after the initial state. */
  events = 0;
  /** The revision of the initial state, when it is complete. */
  stateRevision = 0;
  #revision = 0;

  constructor(client: BareGrpc, labelSelector: string = "") {
    this.#call = client.open(watch);
    // resource = 1, label_selector = 4, send_initial_events = 7.
    this.#call.send(encode({ 1: "bench", 4: labelSelector || undefined, 7: true }));
    this.#call.endRequest();
    this.#complete.promise.catch(() => {});
  }

  /** Resolves when the initial state is complete. */
  get complete(): Promise<void> {
    return this.#complete.promise;
  }

  /** Reads as fast as messages arrive. */
  consume(): this {
    this.#call.consume(
      (message) => this.#take(message),
      (failure) => this.#complete.reject(failure ?? new Error("A stream ended.")),
    );
    return this;
  }

  /** Reads at a pace; unread messages stay in the server. */
  async consumeSlowly(pace: Pace): Promise<void> {
    try {
      for await (const message of this.#call) {
        this.#take(message);
        if (pace.perMessageMs > 0) await delay(pace.perMessageMs);
      }
    } catch (error) {
      this.#complete.reject(error);
    }
  }

  /** Resolves when everything up to `revision` has arrived. */
  async reaches(revision: number): Promise<void> {
    if (this.#revision >= revision) return;
    await new Promise<void>((resolve) => this.#level.push({ revision, resolve }));
  }

  #take(message: Buffer): void {
    const { events, revision, isEndOfState } = summaryOf(message);
    if (this.stateRevision > 0) this.events += events;
    else this.objects += events;
    if (isEndOfState) {
      this.stateRevision = revision;
      this.#complete.resolve();
    }
    this.#revision = Math.max(this.#revision, revision);
    for (const level of this.#level) if (this.#revision >= level.revision) level.resolve();
  }
}

/** The fields of a WatchResponse, without its events. */
function summaryOf(message: Buffer): { events: number; revision: number; isEndOfState: boolean } {
  let events = 0;
  let revision = 0;
  let isEndOfState = false;
  const cursor = new MessageCursor(message);
  for (let tag = cursor.next(); tag !== 0; tag = cursor.next()) {
    if (tag === 0x08) revision = cursor.number();
    else if (tag === 0x18) isEndOfState = cursor.number() === 1;
    else {
      if (tag === 0x12) events++;
      cursor.skip(tag);
    }
  }
  return { events, revision, isEndOfState };
}

/** Opens connections to the service on this port, calls `use` with them, and closes them. */
export async function withConnections<T>(
  port: number,
  count: number,
  use: (connections: readonly BareGrpc[]) => Promise<T>,
): Promise<T> {
  const connections = Array.from({ length: count }, () => new BareGrpc(`http://127.0.0.1:${port}`));
  try {
    return await use(connections);
  } finally {
    for (const connection of connections) connection.close();
  }
}
