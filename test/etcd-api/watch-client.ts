import type { IncomingHttpHeaders } from "node:http2";
import { encode, type Fields, Message } from "../foreign/protobuf.ts";
import type { RawCall, RawGrpc } from "./raw-grpc.ts";

/** A KeyValue, with everything that etcd says of it; numbers as text. */
export interface Kv {
  readonly key: string;
  readonly create: string;
  readonly mod: string;
  readonly version: string;
  readonly value: string;
  readonly lease: string;
}

export interface Event {
  readonly type: "PUT" | "DELETE";
  readonly kv: Kv;
  readonly previous: Kv | undefined;
}

/** A response of Watch, decoded. */
export interface WatchResponse {
  readonly id: string;
  readonly created: boolean;
  readonly canceled: boolean;
  readonly compactRevision: number;
  readonly reason: string;
  readonly fragment: boolean;
  readonly revision: number;
  /** Cluster, member and term. */
  readonly header: readonly string[];
  readonly events: readonly Event[];
}

/** One Watch stream, on the wire. */
export class WatchClient {
  readonly call: RawCall;
  readonly #parsed: WatchResponse[] = [];

  constructor(grpc: Pick<RawGrpc, "open">, metadata: IncomingHttpHeaders = {}) {
    this.call = grpc.open("/etcdserverpb.Watch/Watch", metadata);
  }

  /** Everything that was received. */
  get responses(): readonly WatchResponse[] {
    const { messages } = this.call;
    for (let i = this.#parsed.length; i < messages.length; i++) {
      this.#parsed.push(parse(messages[i] as Buffer));
    }
    return this.#parsed;
  }

  /** The events of a watch, in order. */
  eventsOf(id: string = "0"): readonly Event[] {
    return this.responses.filter((each) => each.id === id).flatMap(({ events }) => events);
  }

  /** Fields of a WatchCreateRequest: key 1, range_end 2, start_revision 3, progress 4, filters 5, prev_kv 6, id 7, fragment 8. */
  create(fields: Fields): void {
    this.call.send(encode({ 1: encode(fields) }));
  }

  cancel(id: number | bigint): void {
    this.call.send(encode({ 2: encode({ 1: id }) }));
  }

  requestProgress(): void {
    this.call.send(encode({ 3: Buffer.of() }));
  }

  /** Resolves when `condition` is true of the responses; rejects if the call ends before. */
  async until(condition: (responses: readonly WatchResponse[]) => boolean): Promise<void> {
    for (let count = 1; !condition(this.responses); count = this.responses.length + 1) {
      await this.call.untilMessages(count);
    }
  }

  /** Asks for progress until there is an answer of at least this revision. */
  async untilProgress(revision: number): Promise<void> {
    const isThere = (): boolean =>
      this.responses.some((each) => each.id === "-1" && !each.created && each.revision >= revision);
    while (!isThere()) {
      const before = this.responses.length;
      this.requestProgress();
      await Promise.race([
        this.call.untilMessages(before + 1),
        new Promise((resolve) => setTimeout(resolve, 50)),
      ]);
    }
  }

  close(): void {
    this.call.cancel();
  }
}

function parse(bytes: Buffer): WatchResponse {
  const message = new Message(bytes);
  const header = message.message(1);
  return {
    id: String(message.integer(2)),
    created: message.integer(3) === 1n,
    canceled: message.integer(4) === 1n,
    compactRevision: message.number(5),
    reason: message.text(6),
    fragment: message.integer(7) === 1n,
    revision: header?.number(3) ?? Number.NaN,
    header: [1, 2, 4].map((field) => String(header?.integer(field))),
    events: message.messages(11).map((event) => ({
      type: event.integer(1) === 1n ? "DELETE" : "PUT",
      kv: kvOf(event.message(2)),
      previous: event.has(3) ? kvOf(event.message(3)) : undefined,
    })),
  };
}

function kvOf(message: Message = new Message(Buffer.of())): Kv {
  return {
    key: message.bytes(1).toString("latin1"),
    create: String(message.integer(2)),
    mod: String(message.integer(3)),
    version: String(message.integer(4)),
    value: message.bytes(5).toString("latin1"),
    lease: String(message.integer(6)),
  };
}
