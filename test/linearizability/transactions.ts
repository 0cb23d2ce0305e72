import type { Seeded } from "../faults/seeded.ts";
import type { Compare, Input, Outcome } from "./history.ts";
import { isWrite } from "./history.ts";
import type { Door, Workload } from "./random-client.ts";

/** Few, so that clients conflict. */
const keys = ["a/1", "a/2", "b/1", "b/2"];

/** What a client knows of the keys. */
class Known {
  readonly #objects = new Map<
    string,
    { readonly mod: number; readonly create: number; readonly value: string }
  >();

  of(
    key: string,
  ): { readonly mod: number; readonly create: number; readonly value: string } | undefined {
    return this.#objects.get(key);
  }

  /** With the response to a call. */
  learn({ range }: Input, { after }: Exclude<Outcome, string>): void {
    if (after === undefined) return;
    for (const key of keys) {
      const isOne = key === range.key || (range.keys ?? []).includes(key);
      if (!isOne && !(range.isPrefix && key.startsWith(range.key))) continue;
      const found = after.find((object) => object.key === key);
      const { modRevision: mod = 0, createRevision: create = 0, value = "" } = found ?? {};
      this.#objects.set(key, { mod, create, value });
    }
  }
}

/**
 * Transactions over two resources, whose names begin the keys. Most have an id, and are repeated with it, through any other
 * door, until their outcome is known.
 */
export class Transactions implements Workload {
  readonly #id: number;
  readonly #random: Seeded;
  readonly #known = new Known();
  #count = 0;
  /** Its outcome is not known. */
  #repeated: Input | undefined;
  /** Whose id another request is sent with. */
  #last: Input | undefined;

  constructor(id: number, random: Seeded) {
    this.#id = id;
    this.#random = random;
  }

  next({ isTransactional, hasRequestIds = false }: Door): Input {
    const random = this.#random;
    const key = random.pick(keys);
    const several = this.#some(0.6);
    if (!hasRequestIds) {
      const whole = { key: "", isPrefix: true };
      if (!isTransactional || random.chance(0.5)) return { range: whole };
      const puts = several.map((each) => this.#put(each));
      return { puts, range: puts.length > 1 ? whole : { key: several[0] ?? key, isPrefix: false } };
    }
    if (this.#repeated !== undefined) return this.#repeated;
    const kind = random.pickWeighted({
      get: 2,
      batchGet: 6,
      transact: 10,
      deletePrefix: 3,
      reuse: 1,
    });
    if (kind === "get") return { range: { key, isPrefix: false } };
    if (kind === "batchGet") return { range: { key: "", isPrefix: false, keys: several } };
    const requestId = random.chance(0.7) ? this.#value() : undefined;
    const options = {
      ...(requestId !== undefined && { requestId }),
      ...(random.chance(0.1) && { validateOnly: true }),
    };
    if (kind === "deletePrefix") {
      const deletePrefix = random.pick(["a/", "b/", "a/1"]);
      return { deletePrefix, range: { key: "", isPrefix: false, keys: [] }, ...options };
    }
    const deletes = several.filter(() => random.chance(0.25));
    const puts = several.filter((each) => !deletes.includes(each)).map((each) => this.#put(each));
    // In the order of a put before a deletion.
    const range = { key: "", isPrefix: false, keys: several };
    const compares = keys.filter(() => random.chance(0.3)).flatMap((each) => this.#compare(each));
    const input = { compares, puts, deletes, range };
    const reused = this.#last?.requestId;
    if (kind === "reuse" && reused !== undefined) return { ...input, requestId: reused };
    return { ...input, ...options };
  }

  learn(input: Input, outcome: Outcome): void {
    const isOpen = outcome === "unknown" && isWrite(input) && input.requestId !== undefined;
    this.#repeated = isOpen ? input : undefined;
    if (typeof outcome !== "object") return;
    if (outcome.succeeded && input.requestId !== undefined && isWrite(input)) this.#last = input;
    this.#known.learn(input, outcome);
    for (const { object } of outcome.compares ?? []) {
      if (object === undefined) continue;
      this.#known.learn(
        { range: { key: object.key, isPrefix: false } },
        { succeeded: true, after: [object] },
      );
    }
  }

  /** One key at least. */
  #some(probability: number): string[] {
    const some = keys.filter(() => this.#random.chance(probability));
    return some.length > 0 ? some : [this.#random.pick(keys)];
  }

  /** What it knows of the key, which may be right no longer. */
  #compare(key: string): Compare[] {
    const known = this.#known.of(key);
    if (known === undefined) return [];
    const { mod, create, value } = known;
    const kind = this.#random.pickWeighted({ exists: 1, mod: 3, create: 2, value: 1 });
    if (kind === "exists") return [{ key, exists: mod > 0 }];
    if (kind === "mod") return [{ key, modRevision: mod }];
    if (kind === "create" || mod === 0) return [{ key, createRevision: create }];
    return [{ key, value }];
  }

  #put(key: string): { key: string; value: string } {
    return { key, value: this.#value() };
  }

  /** In JSON, and in no other write. */
  #value(): string {
    return `"${this.#id}-${this.#count++}"`;
  }
}
