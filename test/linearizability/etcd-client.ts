import { BareStatus } from "../foreign/bare-grpc.ts";
import { encode, type Message } from "../foreign/protobuf.ts";
import type { SeenObject } from "../guarantees/recording.ts";
import type { Input, Outcome, Output } from "./history.ts";
import { type Caller, unary } from "./service-client.ts";

const invalidArgument = 3;

/** Calls etcd's API. `prefix` is the resource's. The numbers of the fields are those of etcd's rpc.proto and kv.proto. */
export function etcdCaller(prefix: string): Caller {
  const etcd = new EtcdCalls(prefix);
  return async (url, input): Promise<Outcome> => {
    try {
      return await etcd.call(url, input);
    } catch (error) {
      if (!(error instanceof BareStatus) || error.code === invalidArgument) throw error;
      return "unknown";
    }
  };
}

class EtcdCalls {
  readonly #prefix: string;

  constructor(prefix: string) {
    this.#prefix = prefix;
  }

  async call(url: string, input: Input): Promise<Output> {
    const { condition, puts = [], deletes = [] } = input;
    const isSingle = condition === undefined && puts.length + deletes.length === 1;
    const [put] = puts;
    const [deleted] = deletes;
    if (isSingle && put !== undefined) {
      const response = await unary(url, "/etcdserverpb.KV/Put", { ...this.#put(put), 4: true });
      return {
        succeeded: true,
        revision: revisionOf(response),
        before: this.#objects(response, 2),
      };
    }
    if (isSingle && deleted !== undefined) {
      const fields = { 1: this.#prefix + deleted, 3: true };
      const response = await unary(url, "/etcdserverpb.KV/DeleteRange", fields);
      return {
        succeeded: true,
        revision: revisionOf(response),
        before: this.#objects(response, 3),
      };
    }
    if (puts.length + deletes.length > 0) return this.#transact(url, input);
    const response = await unary(url, "/etcdserverpb.KV/Range", this.#range(input));
    return { succeeded: true, revision: revisionOf(response), after: this.#objects(response, 2) };
  }

  /** Both branches end with a read of the range. */
  async #transact(url: string, input: Input): Promise<Output> {
    const { condition, puts = [], deletes = [] } = input;
    const read = encode({ 1: encode(this.#range(input)) });
    // Target 2: mod_revision. The result 0, equal, is the default.
    const compare =
      condition && encode({ 2: 2, 3: this.#prefix + condition.key, 6: condition.modRevision });
    const response = await unary(url, "/etcdserverpb.KV/Txn", {
      1: compare,
      2: [
        ...puts.map((put) => encode({ 2: encode(this.#put(put)) })),
        ...deletes.map((key) => encode({ 3: encode({ 1: this.#prefix + key }) })),
        read,
      ],
      3: [read],
    });
    const last = response.messages(3).at(-1)?.message(1);
    if (last === undefined) throw new RangeError("A transaction has no response to its range.");
    const succeeded = response.number(2) === 1;
    return { succeeded, revision: revisionOf(response), after: this.#objects(last, 2) };
  }

  #put({ key, value }: { readonly key: string; readonly value: string }) {
    return { 1: this.#prefix + key, 2: Buffer.from(value, "latin1") };
  }

  #range({ range }: Input) {
    const start = this.#prefix + range.key;
    return { 1: start, 2: range.isPrefix ? afterPrefix(start) : undefined };
  }

  #objects(response: Message, field: number): SeenObject[] {
    return response.messages(field).map((kv) => ({
      key: kv.text(1).slice(this.#prefix.length),
      value: kv.bytes(5).toString("latin1"),
      createRevision: kv.number(2),
      modRevision: kv.number(3),
      version: kv.number(4),
    }));
  }
}

function revisionOf(response: Message): number {
  return response.message(1)?.number(3) ?? 0;
}

/** The end of the range of all keys with an ASCII prefix. */
function afterPrefix(prefix: string): string {
  return prefix.slice(0, -1) + String.fromCharCode(prefix.charCodeAt(prefix.length - 1) + 1);
}
