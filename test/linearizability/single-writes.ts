import type { Seeded } from "../faults/seeded.ts";
import type { Input, Outcome } from "./history.ts";
import type { Door, Workload } from "./random-client.ts";

/** Few, so that clients conflict. */
const keys = ["a/1", "a/2", "b/1", "b/2"];

const prefixes = ["", "a/", "b/"];

/** Reads, and writes of one key; through etcd's API also transactions. */
export class SingleWrites implements Workload {
  readonly #id: number;
  readonly #random: Seeded;
  /** The last known mod_revision of each key: the conditions of writes. */
  readonly #known = new Map<string, number>();
  #count = 0;

  constructor(id: number, random: Seeded) {
    this.#id = id;
    this.#random = random;
  }

  next({ isTransactional }: Door): Input {
    const random = this.#random;
    const key = random.pick(keys);
    const range = { key, isPrefix: false };
    const modRevision = this.#known.get(key);
    // 0 is no condition of a deletion.
    const isExpected = modRevision !== undefined && random.chance(0.5);
    const condition = isExpected ? { key, modRevision } : undefined;
    const kind = random.pickWeighted({ get: 5, list: 3, put: 4, delete: 1, transact: 3 });
    if (kind === "get") return { range };
    if (kind === "list") return { range: { key: random.pick(prefixes), isPrefix: true } };
    if (kind === "delete") {
      return { condition: condition?.modRevision ? condition : undefined, deletes: [key], range };
    }
    const put = { key, value: this.#value() };
    if (kind === "put" || !isTransactional) return { condition, puts: [put], range };
    const other = random.pick(keys.filter((each) => each !== key));
    const whole = { key: "", isPrefix: true };
    return random.chance(0.3)
      ? { condition, puts: [put], deletes: [other], range: whole }
      : { condition, puts: [put, { key: other, value: this.#value() }], range: whole };
  }

  /** In JSON, and in no other write. */
  #value(): string {
    return `"${this.#id}-${this.#count++}"`;
  }

  learn({ range, condition }: Input, outcome: Outcome): void {
    if (typeof outcome !== "object") return;
    if (condition !== undefined && outcome.modRevision !== undefined) {
      this.#known.set(condition.key, outcome.modRevision);
    }
    if (outcome.after === undefined) return;
    for (const key of keys) {
      const isIn = range.isPrefix ? key.startsWith(range.key) : key === range.key;
      const found = outcome.after.find((object) => object.key === key);
      if (isIn) this.#known.set(key, found?.modRevision ?? 0);
    }
  }
}
