import { heldBy, partition } from "../guarantees/shards.ts";
import { type ReaderOptions, type RecordedRead, RepeatedReads } from "./recorded-reader.ts";
import { type Connection, type HashRange, viewOf, type Wish } from "./wire.ts";

/** RevisionMatch, by number. */
const matches = { LINEARIZABLE: 1, EXACT: 4 } as const;
type Match = keyof typeof matches;

const wishes: readonly Wish[] = [
  {},
  { prefix: "a/" },
  { labelSelector: "app=web" },
  { fieldSelector: "spec.node=n1", prefix: "b/" },
];

/**
 * Reads the parts of a resource until it is stopped: a List without values, then at its revision the number of its objects and
 * each of the shards, which together must have what the List has.
 */
export class PartsReader extends RepeatedReads {
  readonly wrong: string[] = [];
  readonly #options: Omit<ReaderOptions, "trace"> & { readonly shards: readonly HashRange[] };

  constructor(options: Omit<ReaderOptions, "trace"> & { readonly shards: readonly HashRange[] }) {
    super(options);
    this.#options = options;
  }

  protected async readOnce(): Promise<void> {
    const { random, shards } = this.#options;
    const wish = random.pick(wishes);
    if (random.chance(0.2)) {
      await this.#read({ wish, match: "LINEARIZABLE", isCount: true });
      return;
    }
    const whole = await this.#read({ wish: { ...wish, isKeysOnly: true }, match: "LINEARIZABLE" });
    if (whole === undefined) return;
    const { revision } = whole.read;
    await this.#read({ wish, match: "EXACT", revision, isCount: true });
    const parts: RecordedRead[] = [];
    for (const range of shards) {
      const shard = { ...wish, shard: [range], isKeysOnly: random.chance(0.5) };
      const part = await this.#read({ wish: shard, match: "EXACT", revision });
      if (part === undefined) return;
      parts.push(part);
    }
    // A revision stands for one state, except after a restore.
    if (parts.some(({ historyId }) => historyId !== whole.historyId)) return;
    if (parts.some(({ toEra }) => toEra !== whole.fromEra)) return;
    const held = [whole, ...parts].map(({ read: { objects } }) =>
      heldBy(typeof objects === "number" ? [] : objects),
    );
    const [all = new Map(), ...each] = held;
    const wrong = partition(each, all, revision);
    this.wrong.push(...wrong.map((what) => `Lists of ${JSON.stringify(wish)}: ${what}`));
  }

  async #read({
    wish,
    match,
    revision = 0,
    isCount = false,
  }: PartRead): Promise<RecordedRead | undefined> {
    const { era, newestEra, acknowledged } = this.#options;
    const endpoint = this.pickEndpoint();
    const fromEra = era();
    const notBefore = match === "EXACT" ? revision : acknowledged();
    const { shard, ...rest } = wish;
    const parts = `${JSON.stringify(rest)}${shard === undefined ? "" : `, shard from ${shard[0]?.first}`}`;
    const what = `${match} ${isCount ? "count " : ""}of ${parts} by ${endpoint.name}`;
    const found = await this.attempt<CountedOrListed>(what, endpoint, (connection) =>
      isCount
        ? connection.count(wish, matches[match], revision)
        : connection.list(wish, matches[match], revision),
    );
    if (found === undefined) return undefined;
    const { historyId, ...response } = found;
    const read = { view: viewOf(wish), notBefore, ...response };
    const recorded = { read, fromEra, toEra: newestEra(), historyId, what };
    this.reads.push(recorded);
    if (match === "EXACT" && response.revision !== revision) {
      this.wrong.push(`${what}: Exact: it is of ${response.revision}, not of ${revision}`);
    }
    return recorded;
  }
}

type CountedOrListed = Awaited<ReturnType<Connection["count"] | Connection["list"]>>;

interface PartRead {
  readonly wish: Wish;
  readonly match: Match;
  readonly revision?: number;
  readonly isCount?: boolean;
}
