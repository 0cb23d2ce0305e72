import type { Delivery } from "../../src/cacher/request/request.ts";
import { type BareCall, BareGrpc, BareStatus } from "../foreign/bare-grpc.ts";
import { deliveries } from "../foreign/deliveries.ts";
import { encode, Message } from "../foreign/protobuf.ts";
import type { SeenObject, SeenResponse, View } from "../guarantees/recording.ts";
import { seenEvent, seenObject } from "../guarantees/wire-objects.ts";

/** The name of the resource. */
export const resource = "things";

/** The request of a watch or a list. */
export interface Wish {
  readonly key?: string;
  readonly prefix?: string;
  readonly labelSelector?: string;
  readonly fieldSelector?: string;
  readonly includePrevious?: boolean;
  readonly sendInitialEvents?: boolean;
  readonly delivery?: Delivery;
}

/** Where a stream begins. */
export interface From {
  readonly afterRevision?: number | undefined;
  readonly historyId?: string | undefined;
}

/** A response, with the history that it names. */
export interface Delivered extends SeenResponse {
  readonly historyId: string;
}

const listWatch = "/watchfanout.v1.ListWatchService";
const write = "/watchfanout.v1.WriteService";

/** How long any call but a watch may take, in milliseconds, and as gRPC writes it. */
const deadlineMs = 8_000;
const deadline = { "grpc-timeout": `${deadlineMs}m` };

/** One connection to one replica, over bare HTTP/2. The field numbers are those of the contract. */
export class Connection {
  readonly #grpc: BareGrpc;

  /** `window`: how many bytes one call may have on its way. */
  constructor(url: string, window?: number) {
    this.#grpc = new BareGrpc(url, window);
  }

  watch(wish: Wish, { afterRevision, historyId }: From): BareCall {
    const request = encode({
      1: resource,
      2: wish.key,
      3: wish.prefix,
      4: wish.labelSelector,
      5: wish.fieldSelector,
      6: afterRevision,
      7: wish.sendInitialEvents === true ? true : undefined,
      8: wish.delivery && deliveries[wish.delivery],
      9: wish.includePrevious === true ? true : undefined,
      // One second, the shortest.
      10: encode({ 1: 1 }),
      11: historyId,
    });
    return this.#grpc.call(`${listWatch}/Watch`, request);
  }

  /** `match` and `revision` are those of RevisionMatch. All pages. */
  async list(
    wish: Wish,
    match: number,
    revision: number,
  ): Promise<{ revision: number; objects: SeenObject[]; historyId: string }> {
    const objects: SeenObject[] = [];
    for (let token = ""; ; ) {
      const response = await this.#unary(`${listWatch}/List`, {
        1: resource,
        2: wish.prefix,
        3: wish.labelSelector,
        4: wish.fieldSelector,
        5: match,
        6: revision === 0 ? undefined : revision,
        8: token === "" ? undefined : token,
      });
      objects.push(...response.messages(2).map(seenObject));
      token = response.text(3);
      if (token === "") {
        return { revision: response.number(1), objects, historyId: response.text(5) };
      }
    }
  }

  async get(
    key: string,
    match: number,
    revision: number,
  ): Promise<{ revision: number; objects: SeenObject[]; historyId: string }> {
    try {
      const response = await this.#unary(`${listWatch}/Get`, {
        1: resource,
        2: key,
        3: match,
        4: revision === 0 ? undefined : revision,
      });
      const objects = response.messages(2).map(seenObject);
      return { revision: response.number(1), objects, historyId: response.text(3) };
    } catch (error) {
      // A response too: the object does not exist at that revision.
      if (!(error instanceof BareStatus) || error.reason !== "OBJECT_NOT_FOUND") throw error;
      return { revision: Number(error.metadata["revision"]), objects: [], historyId: "" };
    }
  }

  /** The revision of the write, and its history. `expected`: the mod_revision that it expects. */
  async put(
    key: string,
    value: string,
    expected?: number,
  ): Promise<{ readonly revision: number; readonly historyId: string }> {
    const response = await this.#unary(`${write}/Put`, {
      1: resource,
      2: key,
      3: Buffer.from(value, "latin1"),
      4: expected,
    });
    return { revision: response.number(1), historyId: response.text(3) };
  }

  async delete(key: string): Promise<number> {
    return (await this.#unary(`${write}/Delete`, { 1: resource, 2: key })).number(1);
  }

  /** Ends all calls at once, without a word to the server. */
  close(): void {
    this.#grpc.close();
  }

  async #unary(path: string, fields: Parameters<typeof encode>[0]): Promise<Message> {
    const call = this.#grpc.open(path, deadline);
    // A paused process can't observe the deadline.
    const late = setTimeout(() => this.close(), deadlineMs + 1_000);
    call.send(encode(fields));
    call.endRequest();
    let response: Buffer | undefined;
    try {
      for await (const received of call) response = received;
    } finally {
      clearTimeout(late);
    }
    if (response === undefined) throw new BareStatus(-1, "The call was OK and had no response.");
    return new Message(response);
  }
}

export function deliveredBy(bytes: Buffer): Delivered {
  const response = new Message(bytes);
  return {
    revision: response.has(1) ? response.number(1) : undefined,
    events: response.messages(2).map(seenEvent),
    initialEventsEnd: response.number(3) === 1,
    historyId: response.text(4),
  };
}

/** The selection of a request, for selectors of the forms `app=VALUE` and `spec.node=VALUE`. */
export function viewOf(wish: Wish): View {
  const { key, prefix = "", labelSelector, fieldSelector } = wish;
  const app = labelSelector?.split("=")[1];
  const node = fieldSelector?.split("=")[1];
  return {
    includes: (other) => (key === undefined ? other.startsWith(prefix) : other === key),
    matches: ({ value }) => {
      if (app === undefined && node === undefined) return true;
      const thing = JSON.parse(value) as Thing;
      const isApp = app === undefined || thing.metadata.labels.app === app;
      return isApp && (node === undefined || thing.spec.node === node);
    },
    includePrevious: wish.includePrevious ?? false,
  };
}

/** The values of objects, in JSON. */
export interface Thing {
  readonly metadata: { readonly labels: { readonly app: string } };
  readonly spec: { readonly node: string };
  /** Which write it comes from. */
  readonly write: string;
  readonly filling: string;
}
