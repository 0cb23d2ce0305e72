import { setTimeout as delay } from "node:timers/promises";
import { BareStatus } from "../foreign/bare-grpc.ts";
import type { Write } from "../guarantees/writes.ts";
import type { Endpoint } from "./endpoint.ts";
import { rawKeyBelow, rawKeys } from "./raw-keys.ts";
import type { Seeded } from "./seeded.ts";
import { Connection, type Thing } from "./wire.ts";

/** The etcd that is written to: one of its members that respond gets each write, by etcd's JSON API. */
interface WrittenCluster {
  readonly healthy: readonly {
    call(path: string, body: object): Promise<Readonly<Record<string, unknown>>>;
  }[];
}

export interface WriterOptions {
  readonly name: string;
  readonly cluster: WrittenCluster;
  /** The resource's prefix in etcd. */
  readonly prefix: string;
  readonly endpoints: readonly Endpoint[];
  readonly random: Seeded;
  readonly era: () => number;
  /** Of the values, in bytes, at most. */
  readonly filling: number;
  /** Pause after each write, in milliseconds at most. */
  readonly pauseMs: number;
  /** How often a write goes through the service, and not to etcd itself. */
  readonly throughService: number;
  /** Whether etcd has the alarm NOSPACE. Default: never. */
  readonly isAlarmed?: () => boolean;
  /** Gets each step of a write through the service, with the name of the writer. */
  readonly trace?: ((name: string, step: WriterStep) => void) | undefined;
}

/** All keys that are written: few, so that each has a history. */
export const keys = ["a/1", "a/2", "a/3", "b/1", "b/2", "b/🎈", "c", "\u{ffee}"];

export const apps = ["web", "db"];
export const nodes = ["n1", "n2", "n3"];

/** The outcome of a write: its revision, why it was not done, or unknown. */
type Outcome = Pick<Write, "outcome" | "revision" | "historyId" | "reason">;

/** A Put through the service, in order. One that creates expects that the object does not exist. */
export type WriterStep =
  | {
      readonly step: "write";
      /** That of the write, which its value has. */
      readonly id: string;
      readonly key: string;
      readonly creates: boolean;
    }
  | { readonly step: "written"; readonly outcome: Outcome };

/** Reasons after which a write may have been applied. */
const saysNothing: ReadonlySet<string> = new Set([
  ...["OUTCOME_UNKNOWN", "INTERNAL", "DEADLINE_EXCEEDED"],
]);

/** Writes until it is stopped, and records the outcome of each write. */
export class RecordedWriter {
  readonly writes: Write[] = [];
  readonly #options: WriterOptions;
  readonly #changing: { changed(): void };
  #running: Promise<void> | undefined;
  #isStopped = true;
  #count = 0;

  constructor(options: WriterOptions, changing: { changed(): void }) {
    this.#options = options;
    this.#changing = changing;
  }

  /** No effect while it runs. */
  start(): void {
    if (!this.#isStopped) return;
    this.#isStopped = false;
    this.#running = this.#run();
  }

  /** Resolves when the write that is under way has come to its end. */
  async stop(): Promise<void> {
    this.#isStopped = true;
    await this.#running;
  }

  /** One write to every key, so that each watcher of any of them receives it. Rejects if it fails. */
  async writeAll(): Promise<number> {
    const write = this.#begin([...keys], "direct");
    const outcome = await this.#directly(write, []);
    this.#end(write, outcome);
    if (outcome.revision === undefined) throw new Error(`The last write failed: ${outcome.reason}`);
    return outcome.revision;
  }

  async #run(): Promise<void> {
    const { random, pauseMs } = this.#options;
    while (!this.#isStopped) {
      await this.#writeOnce();
      if (pauseMs > 0) await delay(random.between(0, pauseMs));
    }
  }

  async #writeOnce(): Promise<void> {
    const { random, throughService } = this.#options;
    // Any number in a row, so that any of them may be the last change before a fault.
    if (random.chance(0.3)) return this.#writeRaw();
    if (random.chance(throughService)) {
      const write = this.#begin([random.pick(keys)], "service");
      const outcome = await this.#throughService(write);
      this.#options.trace?.(this.#options.name, { step: "written", outcome });
      this.#end(write, outcome);
      return;
    }
    const touched = keys.filter(() => random.chance(0.2));
    if (touched.length === 0) touched.push(random.pick(keys));
    const deleted = touched.filter(() => random.chance(0.3));
    const write = this.#begin(
      touched.filter((key) => !deleted.includes(key)),
      "direct",
    );
    this.#end(write, await this.#directly(write, deleted));
  }

  /** Puts or deletes a raw key. Unrecorded: no client of the service must see anything of it, and it may fail. */
  async #writeRaw(): Promise<void> {
    const { cluster, prefix, random } = this.#options;
    const key = rawKeyBelow(prefix, random.between(0, rawKeys.length - 1)).toString("base64");
    const [path, body] = random.chance(0.7)
      ? (["kv/put", { key, value: "" }] as const)
      : (["kv/deleterange", { key }] as const);
    const { healthy } = cluster;
    if (healthy.length > 0) await random.pick(healthy).call(path, body).catch(ignore);
  }

  #begin(puts: readonly string[], way: Write["way"]): Write {
    const id = `${this.#options.name}-${this.#count++}`;
    const era = this.#options.era();
    const write: Write = { id, keys: puts, way, fromEra: era, toEra: era, outcome: "unknown" };
    this.writes.push(write);
    return write;
  }

  #end(write: Write, outcome: Outcome): void {
    Object.assign(write, outcome, { toEra: this.#options.era() });
    this.#changing.changed();
  }

  /** Put, and sometimes what only a certain state allows. */
  async #throughService(write: Write): Promise<Outcome> {
    const { random, endpoints, trace, name } = this.#options;
    const endpoint = random.pick(endpoints.some(isWell) ? endpoints.filter(isWell) : endpoints);
    const connection = new Connection(endpoint.relay.url);
    const unsettle = endpoint.onDisturbed(() => connection.close());
    const [key = ""] = write.keys;
    const expected = random.chance(0.2) ? 0 : undefined;
    const wasAlarmed = this.#options.isAlarmed?.() === true;
    trace?.(name, { step: "write", id: write.id, key, creates: expected === 0 });
    try {
      const response = await connection.put(key, this.#value(write.id), expected);
      return { outcome: "acknowledged", ...response };
    } catch (error) {
      const reason = error instanceof BareStatus ? error.reason : "";
      // Only the service itself can say that nothing was written. Etcd applies a write that finds its quota reached, and
      // refuses it, until it has the alarm.
      const mayBeApplied = saysNothing.has(reason) || (reason === "STORAGE_FULL" && !wasAlarmed);
      const isKnown = reason !== "" && !mayBeApplied;
      return { outcome: isKnown ? "refused" : "unknown", reason };
    } finally {
      unsettle();
      connection.close();
    }
  }

  /** One transaction of etcd. */
  async #directly(write: Write, deleted: readonly string[]): Promise<Outcome> {
    const { cluster, prefix, random } = this.#options;
    const base64 = (text: string): string => Buffer.from(text, "utf8").toString("base64");
    const value = Buffer.from(this.#value(write.id), "latin1").toString("base64");
    const success = [
      ...write.keys.map((key) => ({ requestPut: { key: base64(prefix + key), value } })),
      ...deleted.map((key) => ({ requestDeleteRange: { key: base64(prefix + key) } })),
    ];
    const { healthy } = cluster;
    if (healthy.length === 0) return { outcome: "refused", reason: "no member" };
    try {
      const response = await random.pick(healthy).call("kv/txn", { success });
      const { revision } = response["header"] as { readonly revision: string };
      return { outcome: "acknowledged", revision: Number(revision) };
    } catch (error) {
      return { outcome: "unknown", reason: String(error) };
    }
  }

  #value(write: string): string {
    const { random, filling } = this.#options;
    const thing: Thing = {
      metadata: { labels: { app: random.pick(apps) } },
      spec: { node: random.pick(nodes) },
      write,
      filling: "x".repeat(random.between(0, filling)),
    };
    return JSON.stringify(thing);
  }
}

const ignore = (): void => {};

function isWell(endpoint: Endpoint): boolean {
  return endpoint.isWell;
}
