import { isUtf8 } from "node:buffer";
import { setTimeout as delay } from "node:timers/promises";
import { BareGrpc } from "../foreign/bare-grpc.ts";
import { encode, Message } from "../foreign/protobuf.ts";
import type { Change, SeenObject } from "../guarantees/recording.ts";
import type { EtcdCluster } from "./etcd-cluster.ts";
import type { EtcdMember } from "./etcd-member.ts";
import { Changing, inTime } from "./patience.ts";

/** How long until the watch is opened again after it broke, in milliseconds. */
const reopenMs = 20;

/** The events of one history of etcd. A restore begins another. */
export class Era {
  readonly index: number;
  /** In order. */
  changes: Change[];
  /** Everything up to this revision has been taken down. */
  revision: number;
  readonly #state = new Map<string, SeenObject>();

  constructor(index: number, revision: number, changes: readonly Change[]) {
    this.index = index;
    this.revision = revision;
    this.changes = [...changes];
    for (const change of changes) this.#apply(change);
  }

  add(revision: number, key: string, after: SeenObject | undefined): void {
    const change = { revision, key, before: this.#state.get(key), after };
    this.changes.push(change);
    this.#apply(change);
  }

  /** The events up to a revision, before another history began there. */
  upTo(revision: number): readonly Change[] {
    return this.changes.filter((change) => change.revision <= revision);
  }

  /** Forgets the events before `revision`, except the state at it. */
  forgetBefore(revision: number): void {
    const state = new Map<string, Change>();
    const later: Change[] = [];
    for (const change of this.changes) {
      const { key, after } = change;
      if (change.revision > revision) later.push(change);
      else if (after === undefined) state.delete(key);
      else state.set(key, { revision: after.modRevision, key, before: undefined, after });
    }
    const stood = [...state.values()].sort((a, b) => a.revision - b.revision);
    this.changes = [...stood, ...later];
  }

  #apply({ key, after }: Change): void {
    if (after === undefined) this.#state.delete(key);
    else this.#state.set(key, after);
  }
}

/**
 * The true history: etcd's own account, read from its watch directly at its members, by none of the
 * code that is judged by it. The numbers of the fields are those of etcd's rpc.proto and kv.proto.
 */
export class Truth {
  readonly eras: Era[];
  readonly #cluster: EtcdCluster;
  readonly #prefix: string;
  readonly #changing = new Changing();
  #following: Promise<void> | undefined;
  #grpc: BareGrpc | undefined;
  #member: EtcdMember | undefined;
  #isStopped = false;

  /** `prefix` is the resource's: what is below it is taken down, by relative keys. */
  constructor(cluster: EtcdCluster, prefix: string) {
    this.#cluster = cluster;
    this.#prefix = prefix;
    this.eras = [new Era(0, 0, [])];
    cluster.onDisturbed = (member) => {
      if (member === this.#member) this.#grpc?.close();
    };
  }

  get era(): Era {
    const era = this.eras.at(-1);
    if (era === undefined) throw new Error("There is no history.");
    return era;
  }

  start(): void {
    this.#isStopped = false;
    this.#following = this.#follow();
  }

  async stop(): Promise<void> {
    this.#isStopped = true;
    this.#grpc?.close();
    await this.#following;
  }

  /** Resolves when everything up to the revision has been taken down. */
  async through(revision: number): Promise<void> {
    const reached = this.#changing.until(() => this.era.revision >= revision);
    await inTime(() => `etcd's account of ${revision}, it is at ${this.era.revision}`, reached);
  }

  /** etcd has been restored to what it was at `revision`. To be called while this is stopped. */
  beginEra(revision: number): void {
    this.eras.push(new Era(this.eras.length, revision, this.era.upTo(revision)));
  }

  async #follow(): Promise<void> {
    while (!this.#isStopped) {
      try {
        await this.#read();
      } catch (error) {
        if (error instanceof TypeError || error instanceof RangeError) throw error;
      }
      if (!this.#isStopped) await delay(reopenMs);
    }
  }

  async #read(): Promise<void> {
    const { healthy } = this.#cluster;
    const member = healthy[Math.floor(Math.random() * healthy.length)];
    if (member === undefined) return;
    const token = await member.token();
    const grpc = new BareGrpc(member.url);
    this.#grpc = grpc;
    this.#member = member;
    try {
      // Without a leader the stream ends, where it would be silent otherwise.
      const metadata = { hasleader: "true", ...(token === undefined ? {} : { token }) };
      const call = grpc.open("/etcdserverpb.Watch/Watch", metadata);
      call.send(encode({ 1: encode({ 1: "\0", 2: "\0", 3: this.era.revision + 1 }) }));
      for await (const bytes of call) {
        if (this.#isStopped) return;
        this.#take(new Message(bytes));
      }
    } finally {
      grpc.close();
    }
  }

  #take(response: Message): void {
    if (response.number(4) === 1) throw new Error(`etcd ended the watch: ${response.text(6)}`);
    const { era } = this;
    for (const event of response.messages(11)) {
      const kv = event.message(2);
      if (kv === undefined) throw new RangeError("etcd left out a key and value.");
      const revision = kv.number(3);
      if (revision < era.revision) throw new RangeError(`etcd delivered ${revision} twice.`);
      era.revision = revision;
      const key = kv.text(1);
      if (!key.startsWith(this.#prefix) || key === this.#prefix) continue;
      if (!isUtf8(kv.bytes(1))) continue;
      const isDelete = event.number(1) === 1;
      era.add(
        revision,
        key.slice(this.#prefix.length),
        isDelete ? undefined : seen(kv, this.#prefix),
      );
    }
    this.#changing.changed();
  }
}

function seen(kv: Message, prefix: string): SeenObject {
  return {
    key: kv.text(1).slice(prefix.length),
    value: kv.bytes(5).toString("latin1"),
    createRevision: kv.number(2),
    modRevision: kv.number(3),
    version: kv.number(4),
  };
}
