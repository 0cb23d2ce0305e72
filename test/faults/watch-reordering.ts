import { Message } from "../foreign/protobuf.ts";
import type { Seeded } from "./seeded.ts";

/**
 * The two kinds of responses on a Watch stream of etcd. Control responses: a watch was created, refused, or cancelled as its
 * client asked. All others come through the channel of the store: events, progress, and compactions. etcd keeps the order
 * within a kind, and its send loop (server/etcdserver/api/v3rpc/watch.go) takes from either.
 */
export type ResponseKind = "control" | "channel";

const kinds: readonly ResponseKind[] = ["control", "channel"];

/** The id of responses that are of no watch, or of all. */
const noWatchId = -1n;

/** Sends the responses of one Watch stream in another order that etcd might have chosen. */
export class WatchReordering {
  /** The responses that wait. The fragments of one are together. */
  readonly #waiting: Readonly<Record<ResponseKind, Response[]>> = { control: [], channel: [] };
  readonly #send: (frame: Buffer) => void;
  /** The watches whose `created` was sent. */
  readonly #announced = new Set<bigint>();
  /** Responses of others, as etcd keeps them until `created` is sent. */
  readonly #pending = new Map<bigint, Response[]>();
  #fragments: Buffer[] = [];

  /** `send` gets messages with gRPC's prefix. */
  constructor(send: (frame: Buffer) => void) {
    this.#send = send;
  }

  /** Number of responses of a kind that wait. */
  waiting(kind: ResponseKind): number {
    return this.#waiting[kind].length;
  }

  /** Adds a message of etcd, with gRPC's prefix. */
  add(frame: Buffer): void {
    const message = new Message(frame.subarray(5));
    this.#fragments.push(frame);
    if (message.integer(7) === 1n) return;
    const [created, canceled] = [message.integer(3) === 1n, message.integer(4) === 1n];
    const isControl = created || (canceled && message.integer(5) === 0n);
    const response = { id: message.integer(2), created, canceled, frames: this.#fragments };
    this.#fragments = [];
    this.#waiting[isControl ? "control" : "channel"].push(response);
  }

  /** Sends the next response of a kind. */
  sendNext(kind: ResponseKind): void {
    const response = this.#waiting[kind].shift();
    if (response === undefined) return;
    const { id, created, canceled } = response;
    if (kind === "channel") {
      if (id === noWatchId || this.#announced.has(id)) this.#sendAll(response);
      else this.#pending.set(id, [...(this.#pending.get(id) ?? []), response]);
      return;
    }
    this.#sendAll(response);
    if (canceled) this.#announced.delete(id);
    if (!created || id === noWatchId) return;
    this.#announced.add(id);
    for (const each of this.#pending.get(id) ?? []) this.#sendAll(each);
    this.#pending.delete(id);
  }

  /** Sends some or all of the responses, in an order left to chance. Returns whether any wait. */
  sendSome(random: Seeded): boolean {
    for (;;) {
      const some = kinds.filter((kind) => this.#waiting[kind].length > 0);
      if (some.length === 0) return false;
      if (random.chance(0.2)) return true;
      this.sendNext(random.pick(some));
    }
  }

  #sendAll({ frames }: Response): void {
    for (const frame of frames) this.#send(frame);
  }
}

interface Response {
  readonly id: bigint;
  readonly created: boolean;
  readonly canceled: boolean;
  readonly frames: readonly Buffer[];
}
