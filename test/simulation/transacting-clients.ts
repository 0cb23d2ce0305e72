import { setTimeout as delay } from "node:timers/promises";
import type { Endpoint } from "../faults/endpoint.ts";
import { Seeded } from "../faults/seeded.ts";
import type { Era } from "../faults/truth.ts";
import { resource } from "../faults/wire.ts";
import type { Change } from "../guarantees/recording.ts";
import type { Input, Outcome, Output } from "../linearizability/history.ts";
import { transactCaller } from "../linearizability/transact-client.ts";

/** How many clients a simulation has. */
export interface Transacting {
  readonly clients: number;
}

interface TransactingOptions {
  readonly endpoints: readonly Endpoint[];
  /** The index of etcd's newest history. */
  readonly newestEra: () => number;
}

/** A call that was answered, in one of etcd's histories. */
interface Answered {
  readonly input: Input;
  readonly output: Output;
  readonly era: number;
  /** The newest revision of an acknowledged write before it. */
  readonly notBefore: number;
}

/** Below which the keys are that are only written together, with the same value. */
const folder = `${resource}/pair/`;
const keys = [`${folder}1`, `${folder}2`];
const pauseMs = 20;

/**
 * Clients that write two keys in one transaction, or delete both, under ids with which they repeat what has an unknown outcome at
 * any replica, and that read both at once.
 */
export class TransactingClients {
  readonly #options: TransactingOptions;
  readonly #randoms: readonly Seeded[];
  readonly #answered: Answered[] = [];
  readonly #errors: string[] = [];
  /** By era: the newest revision of an acknowledged write. */
  readonly #acknowledged = new Map<number, number>();
  #known: { readonly mod: number } | undefined;
  #count = 0;
  #isStopped = true;
  #running: Promise<void> = Promise.resolve();

  constructor(seed: number, { clients }: Transacting, options: TransactingOptions) {
    const random = new Seeded(seed ^ 0x7a51);
    this.#options = options;
    this.#randoms = Array.from({ length: clients }, () => random.fork());
  }

  start(): void {
    if (!this.#isStopped) return;
    this.#isStopped = false;
    this.#running = Promise.all(this.#randoms.map((random, i) => this.#run(random, i))).then(
      () => {},
    );
  }

  /** Resolves when no call is under way. What was not answered is not repeated. */
  async stop(): Promise<void> {
    this.#isStopped = true;
    await this.#running;
  }

  async #run(random: Seeded, id: number): Promise<void> {
    let repeated: Input | undefined;
    while (!this.#isStopped) {
      const input = repeated ?? this.#next(random, id);
      const isRead = input.range.keys?.length === keys.length && input.puts === undefined;
      const outcome = await this.#call(random, input);
      repeated = outcome === "unknown" && !isRead ? input : undefined;
      await delay(random.between(1, pauseMs));
    }
  }

  #next(random: Seeded, id: number): Input {
    const range = { key: "", isPrefix: false, keys };
    const kind = random.pickWeighted({ read: 4, write: 4, delete: 1 });
    if (kind === "read") return { range };
    const requestId = `${id}-${this.#count++}`;
    if (kind === "delete") {
      return { deletePrefix: folder, requestId, range: { key: "", isPrefix: false, keys: [] } };
    }
    const value = JSON.stringify({
      metadata: { labels: { app: "web" } },
      ...{ spec: { node: "n1" }, write: `transaction ${requestId}` },
    });
    const [key = ""] = keys;
    const mod = this.#known?.mod;
    const compares = mod !== undefined && random.chance(0.6) ? [{ key, modRevision: mod }] : [];
    return { compares, puts: keys.map((each) => ({ key: each, value })), requestId, range };
  }

  async #call(random: Seeded, input: Input): Promise<Outcome> {
    const { endpoints, newestEra } = this.#options;
    const well = endpoints.filter(({ isWell }) => isWell);
    const { relay } = random.pick(well.length > 0 ? well : endpoints);
    const era = newestEra();
    const notBefore = this.#acknowledged.get(era) ?? 0;
    let outcome: Outcome;
    try {
      outcome = await transactCaller(relay.url, input);
    } catch (error) {
      // A connection that is cut before its response has no status.
      if (!(error instanceof Error)) throw error;
      if (error.message.startsWith("A request of the test")) this.#errors.push(error.message);
      return "unknown";
    }
    if (typeof outcome !== "object") return outcome;
    if (newestEra() !== era) return outcome;
    this.#answered.push({ input, output: outcome, era, notBefore });
    const { revision = 0, after, succeeded } = outcome;
    if (after !== undefined) this.#known = { mod: after[0]?.modRevision ?? 0 };
    const isWrite = input.puts !== undefined || input.deletePrefix !== undefined;
    if (isWrite && succeeded) {
      this.#acknowledged.set(era, Math.max(this.#acknowledged.get(era) ?? 0, revision));
    }
    return outcome;
  }

  /** `eras`: etcd's histories. What a restore has taken back is not judged by a later one. */
  wrong(eras: readonly Era[]): string[] {
    return [
      ...this.#errors,
      ...eras.flatMap((era) => this.#wrongIn(era)),
      ...this.#answered.flatMap(({ output, notBefore }) => wrongRead(output, notBefore)),
    ];
  }

  #wrongIn(era: Era): string[] {
    const revisions = new Map<string, Set<number>>();
    const changed = new Map<number, number>();
    for (const { key, revision, after } of era.changes) {
      if (!keys.includes(`${resource}/${key}`)) continue;
      changed.set(revision, (changed.get(revision) ?? 0) + 1);
      if (after === undefined) continue;
      const own = revisions.get(after.value) ?? new Set();
      revisions.set(after.value, own.add(revision));
    }
    const halves = [...changed].flatMap(([revision, count]) =>
      count === keys.length ? [] : [`Atomic: half of a transaction was written at ${revision}`],
    );
    const repeated = [...revisions].flatMap(([value, all]) =>
      all.size > 1 ? [`Faithful: ${value} was written at ${[...all].join(" and ")}`] : [],
    );
    const unfaithful = this.#answered.flatMap(({ input, output, era: index }) => {
      const value = input.puts?.[0]?.value;
      if (index !== era.index || value === undefined || output.isReused) return [];
      const at = [...(revisions.get(value) ?? [])];
      const expected = output.succeeded ? [output.revision] : [];
      if (JSON.stringify(at) === JSON.stringify(expected)) return [];
      const said = output.succeeded ? `acknowledged at ${output.revision}` : "refused";
      return [`Faithful: ${value} was ${said}, and written at ${at.join(" and ") || "none"}`];
    });
    const unmet = this.#answered.flatMap(({ input, output, era: index }) => {
      if (index !== era.index || !output.succeeded) return [];
      return (input.compares ?? []).flatMap((compare) => {
        const isOf = (change: Change): boolean =>
          change.revision === output.revision && `${resource}/${change.key}` === compare.key;
        const found = era.changes.find(isOf)?.before?.modRevision ?? 0;
        if (!("modRevision" in compare) || found === compare.modRevision) return [];
        const what = `${compare.key} was at ${found}, not at ${compare.modRevision}`;
        return [`Transaction: ${what}, before the transaction of ${output.revision}`];
      });
    });
    return [...halves, ...repeated, ...unfaithful, ...unmet];
  }
}

/** Of a read of both keys: they are as one transaction has left them. */
function wrongRead({ after, revision = 0, before }: Output, notBefore: number): string[] {
  if (after === undefined || before !== undefined) return [];
  const [one, other] = after;
  const isOfOne = one?.value === other?.value && one?.modRevision === other?.modRevision;
  const late =
    revision < notBefore ? [`Linearizable: ${revision} was read after ${notBefore}`] : [];
  if (isOfOne) return late;
  return [...late, `Atomic: ${one?.value} and ${other?.value} were read at ${revision}`];
}
