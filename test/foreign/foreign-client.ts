import { BareGrpc } from "./bare-grpc.ts";
import { encode, type FieldValue, Message } from "./protobuf.ts";

/** An object in watch-fanout's responses. The field numbers are those of the contract. */
export interface ForeignObject {
  readonly key: string;
  /** In base64, so that it can be compared and printed. */
  readonly value: string;
  readonly createRevision: number;
  readonly modRevision: number;
  readonly version: number;
  readonly lease: bigint;
}

export interface ForeignEvent {
  readonly type: "ADDED" | "MODIFIED" | "DELETED";
  readonly object: ForeignObject;
}

/** Responses up to and including one with a revision. */
export interface ForeignUnit {
  readonly revision: number;
  readonly events: readonly ForeignEvent[];
  readonly initial: boolean;
}

export interface ForeignWatch {
  readonly key?: string;
  readonly prefix?: string;
  readonly afterRevision?: number;
  readonly sendInitialEvents?: boolean;
}

const service = "/watchfanout.v1.ListWatchService";

/** A client of watch-fanout that shares no code with it. */
export class ForeignClient {
  readonly #grpc: BareGrpc;

  /** `url` is http://HOST:PORT. */
  constructor(url: string) {
    this.#grpc = new BareGrpc(url);
  }

  async get(resource: string, key: string): Promise<ForeignObject> {
    const response = await this.#grpc.unary(`${service}/Get`, encode({ 1: resource, 2: key }));
    return objectOf(response.message(2));
  }

  /** Requests all pages. Returns the objects and their revision. */
  async list(
    resource: string,
    options: { readonly prefix?: string; readonly pageSize?: number } = {},
  ): Promise<{ readonly revision: number; readonly items: ForeignObject[]; pages: number }> {
    const items: ForeignObject[] = [];
    for (let token = "", pages = 1; ; pages++) {
      const request = encode({ 1: resource, 2: options.prefix, 7: options.pageSize, 8: token });
      const response = await this.#grpc.unary(`${service}/List`, request);
      items.push(...response.messages(2).map(objectOf));
      token = response.text(3);
      if (token === "") return { revision: response.number(1), items, pages };
    }
  }

  /** Yields atomic batches until the loop is left or the stream ends; then it throws a BareStatus. */
  async *watch(resource: string, watch: ForeignWatch): AsyncGenerator<ForeignUnit, void, void> {
    const request = encode({
      1: resource,
      2: watch.key,
      3: watch.prefix,
      6: watch.afterRevision,
      7: presentIfTrue(watch.sendInitialEvents),
    });
    let open: ForeignEvent[] = [];
    for await (const bytes of this.#grpc.call(`${service}/Watch`, request)) {
      const response = new Message(bytes);
      open.push(...response.messages(2).map(eventOf));
      if (!response.has(1)) continue;
      const unit = {
        revision: response.number(1),
        events: open,
        initial: response.number(3) === 1,
      };
      open = [];
      yield unit;
    }
  }

  close(): void {
    this.#grpc.close();
  }
}

function presentIfTrue(value: boolean | undefined): FieldValue | undefined {
  return value === true ? true : undefined;
}

const types = ["ADDED", "MODIFIED", "DELETED"] as const;

function eventOf(event: Message): ForeignEvent {
  const type = types[event.number(1) - 1];
  if (type === undefined) throw new Error(`An event has the type ${event.number(1)}.`);
  return { type, object: objectOf(event.message(2)) };
}

function objectOf(object: Message | undefined): ForeignObject {
  if (object === undefined) throw new Error("An object is missing.");
  return {
    key: object.text(1),
    value: object.bytes(2).toString("base64"),
    createRevision: object.number(3),
    modRevision: object.number(4),
    version: object.number(5),
    lease: object.integer(6),
  };
}
