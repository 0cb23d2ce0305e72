import type { RevisionRequirement } from "../../src/storage/storage.ts";
import { type BareCall, BareGrpc, BareStatus } from "../foreign/bare-grpc.ts";
import { deliveries } from "../foreign/deliveries.ts";
import { encode, type Fields, Message } from "../foreign/protobuf.ts";
import type { SeenResponse } from "../guarantees/recording.ts";
import { seenEvent, seenObject } from "../guarantees/wire-objects.ts";
import { fieldText, labelText, type ReadWish, type WatchWish } from "./arbitraries.ts";
import type { Page } from "./listing.ts";
import type { Source, StreamError } from "./watched-stream.ts";

/*
 * Encodes requests for gRPC and decodes the responses by the field numbers of the contract, without code of the
 * service.
 */

const service = "/watchfanout.v1.ListWatchService";
const matches = ["", "LINEARIZABLE", "ANY", "NOT_OLDER_THAN", "EXACT"];

/** A client of one replica. */
export class WireClient {
  readonly #grpc: BareGrpc;
  readonly #resource: string;

  /** `url` is http://HOST:PORT. */
  constructor(url: string, resource: string) {
    this.#grpc = new BareGrpc(url);
    this.#resource = resource;
  }

  async historyId(): Promise<string> {
    return (await this.#unary("List", { 7: 1 })).text(5);
  }

  /** Requests the page after `previous`, by the token of that page. */
  async page(
    { scope, unusable, selector, pageSize }: ReadWish,
    at: RevisionRequirement,
    previous: Page | undefined,
  ): Promise<Page> {
    const match = matches.indexOf(at.match);
    const revision = "revision" in at ? at.revision : undefined;
    if ("key" in scope) return this.#get({ 2: scope.key, 3: match, 4: revision });
    const [labels, fields] = unusable ?? [labelText(selector), fieldText(selector)];
    const response = await this.#unary("List", {
      ...{ 2: scope.prefix, 3: labels, 4: fields, 5: match, 6: revision },
      ...{ 7: pageSize, 8: previous?.next },
    });
    const token = response.text(3);
    return {
      revision: response.number(1),
      items: response.messages(2).map(seenObject),
      next: token === "" ? undefined : token,
      remaining: response.has(4) ? response.number(4) : undefined,
    };
  }

  watch(wish: WatchWish, afterRevision: number | undefined, historyId: string): WireStream {
    const { scope, unusable, selector, includePrevious } = wish;
    const [labels, fields] = unusable ?? [labelText(selector), fieldText(selector)];
    const request = encode({
      ...{ 1: this.#resource, 4: labels, 5: fields, 6: afterRevision, 11: historyId },
      ...("key" in scope ? { 2: scope.key } : { 3: scope.prefix }),
      ...{ 7: wish.sendInitialEvents, 8: deliveries[wish.delivery] },
      ...{ 9: includePrevious, 12: true },
      10: encode({ 1: Math.ceil(wish.bookmarkIntervalMs / 1_000) }),
    });
    return new WireStream(this.#grpc.call(`${service}/Watch`, request));
  }

  close(): void {
    this.#grpc.close();
  }

  async #get(fields: Fields): Promise<Page> {
    try {
      const response = await this.#unary("Get", fields);
      const items = response.messages(2).map(seenObject);
      return { revision: response.number(1), items, next: undefined, remaining: 0 };
    } catch (error) {
      if (!(error instanceof BareStatus) || error.reason !== "OBJECT_NOT_FOUND") throw error;
      const revision = Number(error.metadata["revision"]);
      return { revision, items: [], next: undefined, remaining: 0 };
    }
  }

  #unary(method: string, fields: Fields): Promise<Message> {
    return this.#grpc.unary(`${service}/${method}`, encode({ 1: this.#resource, ...fields }));
  }
}

/** The responses of one Watch call that have not been read yet. */
export class WireStream implements Source {
  readonly #call: BareCall;
  readonly #queue: SeenResponse[] = [];
  #status: StreamError | undefined;
  #begun = false;
  #closed = false;
  #wake = Promise.withResolvers<void>();

  constructor(call: BareCall) {
    this.#call = call;
    void this.#receive();
  }

  get ended(): StreamError | undefined {
    return this.#status;
  }

  read(): SeenResponse | undefined {
    return this.#queue.shift();
  }

  /** Resolves when a response can be read, or the stream has ended. */
  async readable(): Promise<void> {
    while (this.#queue.length === 0 && this.#status === undefined) await this.#wake.promise;
  }

  /** Resolves when the first resume point has arrived, which fixes where the stream begins, or when it has ended. */
  async begun(): Promise<void> {
    while (!this.#begun && this.#status === undefined) await this.#wake.promise;
  }

  close(): void {
    this.#closed = true;
    this.#queue.length = 0;
    this.#call.cancel();
  }

  async #receive(): Promise<void> {
    try {
      for await (const bytes of this.#call) {
        // Responses in flight when it was closed.
        if (this.#closed) continue;
        const response = responseOf(new Message(bytes));
        this.#queue.push(response);
        this.#begun ||= response.revision !== undefined;
        this.#tell();
      }
      this.#status = { reason: "OK", metadata: {} };
    } catch (error) {
      const known = error instanceof BareStatus && error.reason !== "";
      this.#status = known ? error : { reason: String(error), metadata: {} };
    }
    this.#tell();
  }

  #tell(): void {
    this.#wake.resolve();
    this.#wake = Promise.withResolvers<void>();
  }
}

/** A WatchResponse, decoded. */
export function responseOf(response: Message): SeenResponse {
  return {
    revision: response.has(1) ? response.number(1) : undefined,
    events: response.messages(2).map(seenEvent),
    initialEventsEnd: response.number(3) === 1,
  };
}
