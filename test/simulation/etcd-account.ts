import { isUtf8 } from "node:buffer";
import type { Seeded } from "../faults/seeded.ts";
import { Era } from "../faults/truth.ts";
import type { EtcdCluster } from "./etcd-cluster.ts";
import type { EtcdMember } from "./etcd-member.ts";
import type { EtcdStore, KeyValue, Operation } from "./etcd-store.ts";
import type { Agenda } from "./scheduler.ts";

/** The true history of the simulated etcd, below the prefix of the resource. */
export class EtcdAccount {
  readonly eras = [new Era(0, 0, [])];
  /** The index of the history that the present one was begun from. */
  origin = 0;
  readonly #cluster: EtcdCluster;
  readonly #prefix: string;

  constructor(cluster: EtcdCluster, prefix: string) {
    this.#cluster = cluster;
    this.#prefix = prefix;
    cluster.onCommitted = (store) => this.#committed(store);
  }

  get era(): Era {
    const era = this.eras.at(-1);
    if (era === undefined) throw new Error("There is no history.");
    return era;
  }

  /** etcd is put back to what it was at this revision of that history. */
  beginEra(revision: number, of: Era): void {
    this.eras.push(new Era(this.eras.length, revision, of.upTo(revision)));
    this.origin = of.index;
  }

  /** The mod_revision of each object, by its key. */
  stored(): ReadonlyMap<string, number> {
    const { kvs } = this.#cluster.state.range({ key: this.#prefix, end: endOf(this.#prefix) });
    const found = kvs.flatMap(({ key, modRevision }) => {
      const relative = this.#relative(key);
      return relative === undefined ? [] : [[relative, modRevision] as const];
    });
    return new Map(found);
  }

  #committed({ revision, eventsOf }: EtcdStore): void {
    const { era } = this;
    const range = { key: this.#prefix, end: endOf(this.#prefix) };
    for (const { key, kv } of eventsOf.call(this.#cluster.state, range, revision, revision)) {
      const relative = this.#relative(key);
      if (relative === undefined) continue;
      // Objects have no lease.
      const { lease: _, ...object } = kv ?? { lease: 0 };
      era.add(revision, relative, kv && { ...(object as Omit<KeyValue, "lease">), key: relative });
    }
    era.revision = revision;
  }

  /** Undefined for raw keys, which are no objects. */
  #relative(key: string): string | undefined {
    const bytes = Buffer.from(key, "latin1");
    if (key === this.#prefix || !isUtf8(bytes)) return undefined;
    return bytes.subarray(this.#prefix.length).toString("utf8");
  }
}

/** The first key behind all that begin with the prefix. */
export function endOf(prefix: string): string {
  const last = prefix.charCodeAt(prefix.length - 1);
  return prefix.slice(0, -1) + String.fromCharCode(last + 1);
}

interface JsonOperation {
  readonly requestPut?: { readonly key: string; readonly value: string };
  readonly requestDeleteRange?: { readonly key: string };
}

/** A member as writers call it: by the paths of etcd's JSON API, without a network. */
export class JsonMember {
  readonly #member: EtcdMember;
  readonly #agenda: Agenda;
  readonly #random: Seeded;

  constructor(member: EtcdMember, agenda: Agenda, random: Seeded) {
    this.#member = member;
    this.#agenda = agenda;
    this.#random = random;
  }

  get isHealthy(): boolean {
    return this.#member.isUp && this.#member.isConnected;
  }

  async call(path: string, body: object): Promise<Readonly<Record<string, unknown>>> {
    if (path === "kv/range") return this.#range(body as RangeBody);
    await new Promise<void>((resolve) => {
      this.#agenda.after(this.#random.next(), `writes ${path}`, resolve);
    });
    const txn = { compare: [], success: operationsOf(path, body), failure: [] };
    const { revision } = await this.#member.propose({ type: "txn", txn });
    return { header: { revision: String(revision) } };
  }

  async #range({ key, range_end }: RangeBody): Promise<Readonly<Record<string, unknown>>> {
    const range = { key: text(key), end: text(range_end) };
    const { kvs } = await this.#member.linearizable((store) => store.range(range));
    return {
      kvs: kvs.map((kv) => ({
        key: Buffer.from(kv.key, "latin1").toString("base64"),
        mod_revision: String(kv.modRevision),
      })),
    };
  }
}

interface RangeBody {
  readonly key: string;
  readonly range_end: string;
}

function text(base64: string): string {
  return Buffer.from(base64, "base64").toString("latin1");
}

function operationsOf(path: string, body: object): Operation[] {
  const single = body as { readonly key: string; readonly value?: string };
  if (path === "kv/put") {
    return [{ type: "put", key: text(single.key), value: text(single.value ?? "") }];
  }
  if (path === "kv/deleterange") return [{ type: "delete", key: text(single.key) }];
  const { success } = body as { readonly success: readonly JsonOperation[] };
  return success.map(({ requestPut, requestDeleteRange }): Operation => {
    if (requestPut !== undefined) {
      return { type: "put", key: text(requestPut.key), value: text(requestPut.value) };
    }
    return { type: "delete", key: text(requestDeleteRange?.key ?? "") };
  });
}
