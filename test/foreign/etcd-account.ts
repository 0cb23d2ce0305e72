import { BareGrpc } from "./bare-grpc.ts";
import type { ForeignEvent, ForeignObject, ForeignWatch } from "./foreign-client.ts";
import { encode, Message } from "./protobuf.ts";

/**
 * Etcd's own history: every event from its first revision on, read by etcd's watch. The field numbers are those of
 * etcd's rpc.proto and kv.proto.
 */
export async function etcdAccount(url: string, upTo: number): Promise<EtcdAccount> {
  const grpc = new BareGrpc(url);
  const call = grpc.open("/etcdserverpb.Watch/Watch");
  // All keys, from revision 1, with their previous values.
  const create = encode({ 1: "\0", 2: "\0", 3: 1, 6: true });
  call.send(encode({ 1: create }));
  const events: ForeignEvent[] = [];
  try {
    for await (const bytes of call) {
      const response = new Message(bytes);
      if (response.number(4) === 1) throw new Error(`etcd ended the watch: ${response.text(6)}`);
      events.push(...response.messages(11).map(eventOf));
      if ((events.at(-1)?.object.modRevision ?? 0) >= upTo) break;
    }
  } finally {
    grpc.close();
  }
  return new EtcdAccount(events.filter(({ object }) => object.modRevision <= upTo));
}

export class EtcdAccount {
  readonly #events: readonly ForeignEvent[];

  constructor(events: readonly ForeignEvent[]) {
    this.#events = events;
  }

  /** The expected events of a stream after a revision, for the keys below `resourcePrefix`. */
  after(revision: number, resourcePrefix: string, watch: ForeignWatch): ForeignEvent[] {
    return this.#below(resourcePrefix, watch).filter(({ object }) => object.modRevision > revision);
  }

  /** The state at a revision, in the order of the keys' bytes. */
  stateAt(revision: number, resourcePrefix: string, watch: ForeignWatch): ForeignObject[] {
    const state = new Map<string, ForeignObject>();
    for (const { type, object } of this.#below(resourcePrefix, watch)) {
      if (object.modRevision > revision) break;
      if (type === "DELETED") state.delete(object.key);
      else state.set(object.key, object);
    }
    return [...state.values()].sort((a, b) =>
      Buffer.compare(Buffer.from(a.key), Buffer.from(b.key)),
    );
  }

  #below(resourcePrefix: string, { key, prefix = "" }: ForeignWatch): ForeignEvent[] {
    return this.#events.flatMap(({ type, object }) => {
      if (!object.key.startsWith(resourcePrefix)) return [];
      const relative = object.key.slice(resourcePrefix.length);
      if (relative === "" || (key !== undefined && relative !== key)) return [];
      return relative.startsWith(prefix) ? [{ type, object: { ...object, key: relative } }] : [];
    });
  }
}

function eventOf(event: Message): ForeignEvent {
  const object = objectOf(event.message(2));
  if (event.number(1) === 1) {
    const before = objectOf(event.message(3));
    return { type: "DELETED", object: { ...before, modRevision: object.modRevision } };
  }
  const type = object.createRevision === object.modRevision ? "ADDED" : "MODIFIED";
  return { type, object };
}

function objectOf(kv: Message | undefined): ForeignObject {
  if (kv === undefined) throw new Error("etcd left out a key and value.");
  return {
    key: kv.text(1),
    value: kv.bytes(5).toString("base64"),
    createRevision: kv.number(2),
    modRevision: kv.number(3),
    version: kv.number(4),
    lease: kv.integer(6),
  };
}
