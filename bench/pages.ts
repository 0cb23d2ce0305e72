import { pino } from "pino";
import { systemClock } from "../src/base/clock.ts";
import { Cacher } from "../src/cacher/cacher.ts";
import { MemoryStorage } from "../src/storage/memory/memory-storage.ts";
import type { Benchmark, Settings } from "./benchmark.ts";
import { tableLine } from "./report.ts";
import { median } from "./statistics.ts";

/**
 * The cost of one way of listing: the median in microseconds. The measured part runs without interruption, so that
 * other load on the machine delays only a few values.
 */
interface PageCost {
  /** Number of concurrent lists, each at its own revision. */
  readonly listings: number;
  /** Number of writes between two pages. */
  readonly writes: number;
  /** Of the first page of a list, and of each following page. */
  readonly firstMicros: number;
  readonly pageMicros: number;
  /** Of one write, until the cache has applied it; undefined without writes. */
  readonly writeMicros: number | undefined;
  /** Ratio of `pageMicros` to that of one list of an idle cache: the median over rounds. */
  readonly ratio: number;
}

interface Plan {
  readonly listings: number;
  readonly writes: number;
  /** 0 for writes only, as the reference for their cost. */
  readonly pages: number;
}

/** The durations of one round of one plan, in microseconds. */
class Spent {
  readonly firsts: number[] = [];
  readonly pages: number[] = [];
  /** Per write, as the average of its burst. */
  readonly writes: number[] = [];
}

const valueBytes = 256;
const widths = [10, 22, 14, 10, 10, 12];

/** The cost of a page while the cache changes during the list. */
export const pages: Benchmark = {
  name: "pages",
  onlyByName: true,
  options: { objects: "100000", "page-size": "500", "writes-per-page": "50", rounds: "5" },
  async run(settings, say) {
    const bed = await Bed.open(settings.number("objects"));
    try {
      const results = await measure(bed, settings);
      say(
        tableLine(
          [
            "listings",
            "writes between pages",
            "first page µs",
            "page µs",
            "write µs",
            "beside idle",
          ],
          widths,
        ),
      );
      for (const { listings, writes, firstMicros, pageMicros, writeMicros, ratio } of results) {
        const cells = [listings, writes].map(String);
        const costs = [firstMicros, pageMicros, writeMicros ?? Number.NaN, ratio].map((cost, i) =>
          Number.isNaN(cost) ? "" : cost.toFixed(i === 2 || i === 3 ? 2 : 0),
        );
        say(tableLine([...cells, ...costs], widths));
      }
      return { rows: [], results };
    } finally {
      await bed.close();
    }
  },
};

async function measure(bed: Bed, settings: Settings): Promise<PageCost[]> {
  const pageSize = settings.number("page-size");
  const all = Math.ceil(bed.objects / pageSize);
  const writes = settings.number("writes-per-page");
  const plans: readonly Plan[] = [
    { listings: 1, writes: 0, pages: all },
    { listings: 0, writes, pages: all },
    { listings: 1, writes, pages: all },
    // The same total number of pages.
    { listings: 20, writes, pages: Math.ceil(all / 20) },
  ];
  const rounds = settings.number("rounds");
  const spent: Spent[][] = plans.map(() => []);
  // The first round warms up the compiler.
  for (let round = -1; round < rounds; round++) {
    for (const [i, plan] of plans.entries()) {
      const one = await bed.run(plan, pageSize);
      if (round >= 0) spent[i]?.push(one);
    }
  }
  const idle = (spent[0] ?? []).map(pageMicrosOf);
  return plans.map(({ listings, writes: between }, i) => {
    const of = (figure: (one: Spent) => number[]): number =>
      median((spent[i] ?? []).flatMap(figure));
    const ratios = (spent[i] ?? []).map((one, round) => pageMicrosOf(one) / (idle[round] ?? 0));
    return {
      listings,
      writes: between,
      firstMicros: of(({ firsts }) => firsts),
      pageMicros: of(({ pages: each }) => each),
      writeMicros: between === 0 ? undefined : of(({ writes: each }) => each),
      ratio: median(ratios),
    };
  });
}

function pageMicrosOf({ pages: each }: Spent): number {
  return median(each);
}

/** A Cacher over the embedded store, in this process. */
class Bed {
  readonly objects: number;
  readonly #storage = new MemoryStorage({ clock: systemClock });
  readonly #cacher = new Cacher({
    storage: this.#storage,
    clock: systemClock,
    logger: pino({ enabled: false }),
    name: "bench",
    consistencyIntervalMs: 0,
  });
  readonly #value = new Uint8Array(valueBytes);
  #next = 0;

  constructor(objects: number) {
    this.objects = objects;
  }

  static async open(objects: number): Promise<Bed> {
    const bed = new Bed(objects);
    for (let i = 0; i < objects; i++) await bed.#put(i);
    const ready = new Promise<void>((resolve) => bed.#cacher.onReadyChange(() => resolve()));
    bed.#cacher.start();
    await ready;
    return bed;
  }

  close(): Promise<void> {
    return this.#cacher.close();
  }

  /** Reads one page of each list in rotation, and writes in between. */
  async run({ listings, writes, pages: count }: Plan, pageSize: number): Promise<Spent> {
    const spent = new Spent();
    const listed: ParsedList[] = Array.from({ length: listings }, () => new ParsedList());
    for (let page = 0; page < count; page++) {
      for (const listing of listed) {
        await this.#page(listing, pageSize, spent);
        await this.#write(writes, spent);
      }
      if (listings === 0) await this.#write(writes, spent);
    }
    return spent;
  }

  async #page(listing: ParsedList, limit: number, spent: Spent): Promise<void> {
    const { revision, startAfter } = listing;
    const before = performance.now();
    const result = await this.#cacher.list({
      prefix: "",
      startAfter,
      limit,
      at: revision === 0 ? { match: "LINEARIZABLE" } : { match: "EXACT", revision },
    });
    const micros = microsSince(before);
    (revision === 0 ? spent.firsts : spent.pages).push(micros);
    if (revision > 0 && result.revision !== revision)
      throw new Error("A page of another revision.");
    listing.revision = result.revision;
    listing.startAfter = result.next;
    listing.taken += result.items.length;
    if (result.next === undefined && listing.taken !== this.objects) {
      throw new Error(`A listing had ${listing.taken} objects instead of ${this.objects}.`);
    }
  }

  async #write(count: number, spent: Spent): Promise<void> {
    if (count === 0) return;
    const before = performance.now();
    for (let i = 0; i < count; i++) {
      // Spread over all keys, in an order that does not favour a tree.
      this.#next = (this.#next + 61_193) % this.objects;
      void this.#put(this.#next);
    }
    const written = await this.#storage.currentRevision();
    while (this.#cacher.stats().revision < written) await new Promise(setImmediate);
    spent.writes.push(microsSince(before) / count);
  }

  async #put(i: number): Promise<void> {
    await this.#storage.put({ key: keyOf(i), value: this.#value });
  }
}

/** The progress of a list. */
class ParsedList {
  revision = 0;
  startAfter: string | undefined;
  taken = 0;
}

function microsSince(before: number): number {
  return (performance.now() - before) * 1_000;
}

function keyOf(i: number): string {
  return `objects/${String(i).padStart(8, "0")}`;
}
