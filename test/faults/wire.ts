import type { Delivery } from "../../src/cacher/request/request.ts";
import { type BareCall, BareGrpc, BareStatus } from "../foreign/bare-grpc.ts";
import type { Accepted } from "../foreign/decompressed.ts";
import { deliveries } from "../foreign/deliveries.ts";
import { encode, type Fields, Message } from "../foreign/protobuf.ts";
import { keyHash } from "../guarantees/key-hash.ts";
import type { HistoryPage } from "../guarantees/key-history.ts";
import { isAtLeast, type Order, orders } from "../guarantees/orders.ts";
import {
  type SeenEvent,
  type SeenObject,
  type SeenResponse,
  type View,
  withoutValue,
} from "../guarantees/recording.ts";
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
  /** Whether values are left out: VIEW_KEYS. */
  readonly isKeysOnly?: boolean;
  /** Whether attributes are sent in place of values: VIEW_ATTRIBUTES. */
  readonly isOfAttributes?: boolean;
  /** What of values is sent: the paths of a read_mask. */
  readonly mask?: readonly string[];
  /** From this key up to another, which is not included; empty: no bound. */
  readonly range?: KeyRange;
  readonly types?: readonly SeenEvent["type"][];
  readonly shard?: readonly HashRange[];
}

/** Hashes from the first to the last, both included. */
export interface HashRange {
  readonly first: bigint;
  readonly last: bigint;
}

export interface KeyRange {
  readonly start: string;
  readonly end: string;
}

/** How the pages of a List are divided. */
export interface Paging {
  readonly order: Order;
  /** Of a page; 0: as many as fit. */
  readonly size: number;
}

export interface HistoryWish {
  /** Of the newest change at most; 0: the store's. */
  readonly revision: number;
  /** Maximum number of changes of a page; 0: as many as fit. */
  readonly size: number;
  readonly isKeysOnly: boolean;
}

/** A page of a List. `remaining`: how many follow it; undefined: it is not known. */
export interface ListPage {
  readonly revision: number;
  readonly objects: readonly SeenObject[];
  readonly token: string;
  readonly remaining: number | undefined;
  readonly historyId: string;
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

/** View and EventType, by number. */
const views = { KEYS: 2, COUNT: 3, ATTRIBUTES: 4 } as const;
const eventTypes = ["ADDED", "MODIFIED", "DELETED"] as const;

const listWatch = "/watchfanout.v1.ListWatchService";
const write = "/watchfanout.v1.WriteService";

/** HistoryEnd, by number. */
const historyEnds = [undefined, "CREATION", "COMPACTION", "LIMIT"] as const;

/** How long any call but a watch may take, in milliseconds, and as gRPC writes it. */
const deadlineMs = 8_000;
const deadline = { "grpc-timeout": `${deadlineMs}m` };

/** One connection to one replica, over bare HTTP/2. The field numbers are those of the contract. */
export class Connection {
  readonly #grpc: BareGrpc;
  readonly #metadata: Readonly<Record<string, string>>;

  /** `window`: how many bytes one call may have on its way. `accepts`: the encoding of compressed responses. */
  constructor(url: string, window?: number, accepts?: Accepted) {
    this.#grpc = new BareGrpc(url, window);
    this.#metadata = accepts === undefined ? {} : { "grpc-accept-encoding": accepts };
  }

  watch(wish: Wish, from: From): BareCall {
    return this.#grpc.call(`${listWatch}/Watch`, watchRequest(wish, from), this.#metadata);
  }

  /** Opens a stream of many watches. */
  subscribe(): BareCall {
    return this.#grpc.open(`${listWatch}/Subscribe`, this.#metadata);
  }

  /** Without an object: how many a List would have. */
  async count(
    wish: Wish,
    match: number,
    revision: number,
  ): Promise<{ revision: number; objects: number; historyId: string }> {
    const response = await this.#unary(`${listWatch}/List`, {
      ...listFields(wish, match, revision),
      10: views.COUNT,
    });
    const items = response.messages(2).length;
    if (items > 0 || !response.has(4) || response.text(3) !== "") {
      throw new RangeError(`A count came with ${items} objects, or without a number.`);
    }
    const [at, objects] = [response.number(1), response.number(4)];
    return { revision: at, objects, historyId: response.text(5) };
  }

  /** `match` and `revision` are those of RevisionMatch. All pages. */
  async list(
    wish: Wish,
    match: number,
    revision: number,
  ): Promise<{ revision: number; objects: SeenObject[]; historyId: string }> {
    const objects: SeenObject[] = [];
    for (let token = ""; ; ) {
      const page = await this.listPage(wish, match, revision, token);
      objects.push(...page.objects);
      token = page.token;
      if (token === "") return { revision: page.revision, objects, historyId: page.historyId };
    }
  }

  /** One page: the first one, or the one of a token. */
  async listPage(
    wish: Wish,
    match: number,
    revision: number,
    token: string,
    { order, size }: Paging = { order: "KEY_ASCENDING", size: 0 },
  ): Promise<ListPage> {
    const response = await this.#unary(`${listWatch}/List`, {
      ...listFields(wish, match, revision),
      7: size === 0 ? undefined : size,
      8: token === "" ? undefined : token,
      15: order === "KEY_ASCENDING" ? undefined : orders.indexOf(order) + 1,
    });
    return {
      revision: response.number(1),
      objects: response.messages(2).map(seenObject),
      token: response.text(3),
      remaining: response.has(4) ? response.number(4) : undefined,
      historyId: response.text(5),
    };
  }

  /** A page of the history of a key. `revision`: of its newest change at most; 0: none is asked for. */
  async history(
    key: string,
    { revision, size, isKeysOnly }: HistoryWish,
    token: string,
  ): Promise<HistoryPage> {
    const response = await this.#unary(`${listWatch}/History`, {
      ...{ 1: resource, 2: key, 3: revision === 0 ? undefined : revision },
      ...{ 4: size === 0 ? undefined : size, 5: token === "" ? undefined : token },
      7: isKeysOnly ? views.KEYS : undefined,
    });
    return {
      ...{ revision: response.number(1), events: response.messages(2).map(seenEvent) },
      ...{ token: response.text(3), historyId: response.text(4) },
      ...{ end: historyEnds[response.number(5)], oldestRevision: response.number(6) },
    };
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
    const call = this.#grpc.open(path, { ...deadline, ...this.#metadata });
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

/** The request of a watch. */
export function watchRequest(wish: Wish, { afterRevision, historyId }: From): Buffer {
  return encode({
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
    13: viewNumber(wish),
    14: wish.types?.map((type) => eventTypes.indexOf(type) + 1),
    15: wish.shard && encodedShard(wish.shard),
    16: wish.mask && encode({ 1: wish.mask }),
    17: wish.range && encode({ 1: wish.range.start || undefined, 2: wish.range.end || undefined }),
  });
}

function listFields(wish: Wish, match: number, revision: number): Fields {
  return {
    1: resource,
    2: wish.prefix,
    3: wish.labelSelector,
    4: wish.fieldSelector,
    5: match,
    6: revision === 0 ? undefined : revision,
    10: viewNumber(wish),
    11: wish.shard && encodedShard(wish.shard),
    12: wish.mask && encode({ 1: wish.mask }),
    13: wish.range?.start || undefined,
    14: wish.range?.end || undefined,
  };
}

function viewNumber({ isKeysOnly, isOfAttributes }: Wish): number | undefined {
  if (isKeysOnly === true) return views.KEYS;
  return isOfAttributes === true ? views.ATTRIBUTES : undefined;
}

/** `encode` has no fixed64. */
function encodedShard(ranges: readonly HashRange[]): Buffer {
  const encoded = ranges.map(({ first, last }) => {
    const range = Buffer.alloc(18);
    range.writeUInt8((1 << 3) | 1, 0);
    range.writeBigUInt64LE(first, 1);
    range.writeUInt8((2 << 3) | 1, 9);
    range.writeBigUInt64LE(last, 10);
    return range;
  });
  return encode({ 1: encoded });
}

export function deliveredBy(bytes: Buffer): Delivered {
  return deliveredIn(new Message(bytes));
}

export function deliveredIn(response: Message): Delivered {
  return {
    revision: response.has(1) ? response.number(1) : undefined,
    events: response.messages(2).map(seenEvent),
    initialEventsEnd: response.number(3) === 1,
    historyId: response.text(4),
  };
}

/** The selection of a request, for selectors of the forms `app=VALUE` and `spec.node=VALUE`. */
export function viewOf(wish: Wish): View {
  const { key, prefix = "", labelSelector, fieldSelector, types, shard, range } = wish;
  const app = labelSelector?.split("=")[1];
  const node = fieldSelector?.split("=")[1];
  return {
    includes: (other) => {
      if (key === undefined ? !other.startsWith(prefix) : other !== key) return false;
      if (range !== undefined && !isInRange(other, range)) return false;
      return shard === undefined || isInShard(other, shard);
    },
    matches: ({ value }) => {
      if (app === undefined && node === undefined) return true;
      const thing = JSON.parse(value) as Thing;
      const isApp = app === undefined || thing.metadata.labels.app === app;
      return isApp && (node === undefined || thing.spec.node === node);
    },
    includePrevious: wish.includePrevious ?? false,
    ...shownBy(wish),
    ...(types && { types: new Set(types) }),
  };
}

function isInRange(key: string, { start, end }: KeyRange): boolean {
  return isAtLeast(key, start) && (end === "" || !isAtLeast(key, end));
}

function shownBy({ isKeysOnly, isOfAttributes, mask }: Wish): Pick<View, "shows"> {
  if (isKeysOnly === true) return { shows: withoutValue };
  if (isOfAttributes === true) return { shows: withAttributes };
  if (mask === undefined) return {};
  return { shows: (object) => ({ ...object, value: maskedJson(object.value, mask) }) };
}

function withAttributes(object: SeenObject): SeenObject {
  const { metadata, spec } = JSON.parse(object.value) as Thing;
  const attributes = { labels: { ...metadata.labels }, fields: { "spec.node": spec.node } };
  return { ...object, value: "", attributes };
}

/** What the paths lead to, of a value whose members have these names only where the paths have them. */
export function maskedJson(value: string, paths: readonly string[]): string {
  const isShown = (path: string): boolean =>
    paths.some((one) => one === path || one.startsWith(`${path}.`) || path.startsWith(`${one}.`));
  const cut = (part: unknown, path: string): unknown => {
    if (typeof part !== "object" || part === null) return part;
    const members = Object.entries(part).map(
      ([name, member]) => [path === "" ? name : `${path}.${name}`, name, member] as const,
    );
    return Object.fromEntries(
      members
        .filter(([at]) => isShown(at))
        .map(([at, name, member]) => [name, cut(member, at)] as const),
    );
  };
  return JSON.stringify(cut(JSON.parse(value), ""));
}

function isInShard(key: string, ranges: readonly HashRange[]): boolean {
  const hash = keyHash(key);
  return ranges.some(({ first, last }) => first <= hash && hash <= last);
}

/** The values of objects, in JSON. */
export interface Thing {
  readonly metadata: { readonly labels: { readonly app: string } };
  readonly spec: { readonly node: string };
  /** Which write it comes from. */
  readonly write: string;
  readonly filling: string;
}
