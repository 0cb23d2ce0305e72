import { BareGrpc, BareStatus } from "../../foreign/bare-grpc.ts";
import { encode, type Fields, type Message } from "../../foreign/protobuf.ts";
import { apps, nodes } from "../recorded-writer.ts";
import type { Seeded } from "../seeded.ts";
import { resource, type Thing } from "../wire.ts";
import type { Operation } from "./operation.ts";

const writeService = "/watchfanout.v1.WriteService";
const leaseService = "/watchfanout.v1.LeaseService";

/** How long a call may take, in milliseconds. Not an assertion: a kill ends calls sooner. */
const deadlineMs = 30_000;
/** Of the leases that are granted, in seconds: with each start they are new, so none of them ends. */
const longSeconds = 300;
/** How much less of it may be left, besides the time since a start, in milliseconds. */
const leaseSlackMs = 2_000;
/** Keys of one writer, and of all. */
const keyCount = 6;

/** What the writers of one store share. */
export interface Shared {
  /** The newest revision that any client has seen. */
  shown: number;
  /** Number of acknowledged writes. */
  acknowledged: number;
  /** Where the store is; undefined: nowhere now. */
  url: string | undefined;
}

/** A client that writes, deletes, transacts and holds leases, and records each operation. */
export class StoreWriter {
  readonly #name: string;
  readonly #random: Seeded;
  readonly #shared: Shared;
  #grpc: BareGrpc | undefined;
  #url: string | undefined;
  #count = 0;
  #lease: bigint | undefined;
  readonly #known = new Map<string, number>();
  operations: Operation[] = [];
  /** What no later comparison finds, in sentences. */
  readonly wrong: string[] = [];
  /** One of unknown outcome that can be repeated. */
  #pending: (() => Promise<void>) | undefined;

  constructor(name: string, random: Seeded, shared: Shared) {
    this.#name = name;
    this.#random = random;
    this.#shared = shared;
  }

  /** Its lease has its full length again since the store was started, at `since` of `performance.now`. */
  async checkLease(since: number): Promise<void> {
    const lease = this.#lease;
    if (lease === undefined) return;
    const response = await this.#tried(() =>
      this.#call(`${leaseService}/TimeToLive`, { 1: lease }),
    );
    if (response instanceof BareStatus) {
      this.wrong.push(`Lease: ${lease} is not there after a start: ${response.message}`);
      return;
    }
    const [left = 0, granted] = [1, 2].map((field) => response.message(field)?.number(1));
    const leastMs = longSeconds * 1_000 - (performance.now() - since) - leaseSlackMs;
    if (granted === longSeconds && left * 1_000 >= leastMs) return;
    this.wrong.push(`Lease: ${lease} has ${left} of ${granted} s after a start`);
  }

  /** Writes until the store is gone. */
  async run(): Promise<void> {
    while (this.#shared.url !== undefined) await this.#step();
  }

  /** Repeats what has an unknown outcome. */
  async repeat(): Promise<void> {
    await this.#pending?.();
  }

  async #step(): Promise<void> {
    const kind = this.#random.pickWeighted({
      ...{ put: 8, create: 2, delete: 3, transact: 6, deletePrefix: 0.3 },
      ...{ leased: 3, ttl: 1.5, grant: 0.7, revoke: 0.2, keepAlive: 1 },
    });
    if (kind === "transact") return this.#transact();
    if (kind === "deletePrefix") return this.#deletePrefix();
    if (kind === "delete") return this.#delete();
    if (kind === "grant") return this.#grant();
    if (kind === "revoke") return this.#revoke();
    if (kind === "keepAlive") return this.#keepAlive();
    return this.#put(kind);
  }

  /** Puts one value under these keys, in one transaction. */
  async mark(keys: readonly string[], app: string, node: string): Promise<void> {
    const operation = this.#begin({ puts: keys });
    const value = this.#value(operation.id, app, node);
    await this.#end(
      operation,
      () =>
        this.#call(`${writeService}/Transact`, {
          2: keys.map((key) => encode({ 1: resource, 2: key, 3: encode({ 1: value }) })),
        }),
      true,
    );
  }

  close(): void {
    this.#grpc?.close();
    this.#grpc = undefined;
  }

  async #put(kind: "put" | "create" | "leased" | "ttl"): Promise<void> {
    const lease = kind === "leased" ? this.#lease : undefined;
    const ttlSeconds = kind === "ttl" ? this.#random.between(1, 2) : undefined;
    const key = this.#key();
    const known = this.#random.chance(0.3) ? this.#known.get(key) : undefined;
    const requestId = this.#random.chance(0.5) ? this.#requestId() : undefined;
    const operation = this.#begin({ puts: [key], lease, ttlSeconds, requestId });
    const fields = {
      ...{ 1: resource, 2: key, 3: this.#value(operation.id), 5: lease },
      4: kind === "create" ? 0 : known,
      ...{ 6: ttlSeconds && encode({ 1: ttlSeconds }), 10: requestId },
    };
    await this.#end(operation, () => this.#call(`${writeService}/Put`, fields));
  }

  async #delete(): Promise<void> {
    const key = this.#key();
    const requestId = this.#random.chance(0.5) ? this.#requestId() : undefined;
    const operation = this.#begin({ deletes: [key], requestId });
    const fields = { 1: resource, 2: key, 7: requestId };
    await this.#end(operation, () => this.#call(`${writeService}/Delete`, fields));
  }

  async #deletePrefix(): Promise<void> {
    const prefix = `${this.#name}/`;
    const requestId = this.#requestId();
    const operation = this.#begin({ deletePrefix: prefix, requestId });
    const fields = { 1: resource, 2: prefix, 6: requestId };
    await this.#end(operation, () => this.#call(`${writeService}/DeletePrefix`, fields));
  }

  async #transact(): Promise<void> {
    const random = this.#random;
    const keys = [...new Set(Array.from({ length: random.between(2, 5) }, () => this.#key()))];
    const deletes = keys.slice(1).filter(() => random.chance(0.3));
    const puts = keys.filter((key) => !deletes.includes(key));
    const lease = random.chance(0.2) ? this.#lease : undefined;
    const requestId = random.chance(0.8) ? this.#requestId() : undefined;
    const operation = this.#begin({ puts, deletes, lease, requestId });
    const value = this.#value(operation.id);
    const [compared = ""] = keys;
    const compare = random.chance(0.3)
      ? encode({ 1: resource, 2: compared, 4: this.#known.get(compared) ?? 0 })
      : undefined;
    const fields = {
      1: compare,
      2: [
        ...puts.map((key) => encode({ 1: resource, 2: key, 3: encode({ 1: value, 2: lease }) })),
        ...deletes.map((key) => encode({ 1: resource, 2: key, 4: encode({}) })),
      ],
      ...{ 3: true, 6: requestId },
    };
    await this.#end(operation, () => this.#call(`${writeService}/Transact`, fields), true);
  }

  async #grant(): Promise<void> {
    const response = await this.#tried(() =>
      this.#call(`${leaseService}/Grant`, { 1: encode({ 1: longSeconds }) }),
    );
    if (response instanceof BareStatus) return;
    this.#lease = response.integer(1);
  }

  async #revoke(): Promise<void> {
    const lease = this.#lease;
    if (lease === undefined) return;
    // Whether it is there afterwards is not known before the response.
    this.#lease = undefined;
    const operation = this.#begin({ revokes: lease });
    await this.#end(operation, () => this.#call(`${leaseService}/Revoke`, { 1: lease }));
  }

  async #keepAlive(): Promise<void> {
    const lease = this.#lease;
    if (lease === undefined) return;
    const response = await this.#tried(() => this.#call(`${leaseService}/KeepAlive`, { 1: lease }));
    if (response instanceof BareStatus) return;
    if (response.message(1)?.has(3) !== false) this.wrong.push(`Lease: ${lease} is not renewed`);
  }

  #begin(what: Partial<Operation>): Operation {
    const operation: Operation = {
      ...{ id: `${this.#name}-${this.#count++}`, puts: [], deletes: [], ...what },
      ...{ after: this.#shared.shown, begunAt: performance.now(), outcome: "unknown" },
    };
    this.operations.push(operation);
    return operation;
  }

  async #end(
    operation: Operation,
    call: () => Promise<Message>,
    isTransaction = false,
  ): Promise<void> {
    this.#pending = undefined;
    const response = await this.#tried(call);
    operation.endedAt = performance.now();
    if (!(response instanceof BareStatus))
      return this.#acknowledged(operation, response, isTransaction);
    const { reason, metadata } = response;
    // Only the service itself can say that nothing was written.
    if (!["", "OUTCOME_UNKNOWN", "INTERNAL"].includes(reason)) operation.outcome = "refused";
    else if (operation.requestId !== undefined)
      this.#pending = () => this.#end(operation, call, isTransaction);
    const [key = ""] = [...operation.puts, ...operation.deletes];
    if (reason === "REVISION_CONFLICT")
      this.#refusedFor(operation, key, Number(metadata["mod_revision"]));
    if (reason === "LEASE_NOT_FOUND") this.wrong.push(`Lease: that of ${operation.id} is gone`);
    if (reason === "OBJECT_NOT_FOUND") this.#shows(Number(metadata["revision"]));
  }

  #acknowledged(operation: Operation, response: Message, isTransaction: boolean): void {
    operation.outcome = "acknowledged";
    this.#shared.acknowledged++;
    if (operation.revokes !== undefined) return;
    const { puts, deletePrefix } = operation;
    // succeeded = 1 and revision = 2 of a transaction, revision = 1 of the others.
    const revision = response.number(isTransaction ? 2 : 1);
    this.#shows(revision);
    if (isTransaction && response.number(1) === 0) {
      operation.outcome = "refused";
      return;
    }
    operation.revision = revision;
    if (deletePrefix !== undefined) operation.deleted = response.number(2);
    for (const key of puts) this.#known.set(key, revision);
  }

  #refusedFor(operation: Operation, key: string, modRevision: number): void {
    operation.conflict = { key, modRevision };
    this.#known.set(key, modRevision);
    this.#shows(modRevision);
  }

  #shows(revision: number): void {
    this.#shared.shown = Math.max(this.#shared.shown, revision);
  }

  /** Resolves to the status of a call that was not OK. */
  async #tried(call: () => Promise<Message>): Promise<Message | BareStatus> {
    try {
      return await call();
    } catch (error) {
      this.close();
      if (error instanceof BareStatus) {
        if (error.reason === "INVALID_REQUEST") throw error;
        return error;
      }
      // The connection was lost; anything else is a fault of this harness.
      if (!(error instanceof Error) || !("code" in error)) throw error;
      return new BareStatus(-1, error.message);
    }
  }

  async #call(path: string, fields: Fields): Promise<Message> {
    const { url } = this.#shared;
    if (url === undefined) throw new BareStatus(-1, "The store does not run.");
    if (this.#url !== url) this.close();
    this.#url = url;
    const grpc = this.#grpc ?? new BareGrpc(url);
    this.#grpc = grpc;
    const late = setTimeout(() => grpc.close(), deadlineMs);
    try {
      return await grpc.unary(path, encode(fields));
    } finally {
      clearTimeout(late);
    }
  }

  #requestId(): string {
    return `${this.#name}.${this.#count}`;
  }

  #key(): string {
    const folder = this.#random.chance(0.6) ? this.#name : "all";
    return `${folder}/${this.#random.between(1, keyCount)}`;
  }

  #value(write: string, app = this.#random.pick(apps), node = this.#random.pick(nodes)): Buffer {
    const most = this.#random.chance(0.02) ? 100_000 : 1_000;
    const filling = "x".repeat(this.#random.between(0, most));
    const thing: Thing = { metadata: { labels: { app } }, spec: { node }, write, filling };
    return Buffer.from(JSON.stringify(thing));
  }
}
