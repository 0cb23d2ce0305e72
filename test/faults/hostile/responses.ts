/** How often each kind of response came, by its name. */
export type ResponseCounts = Readonly<Record<string, number>>;

/** Counts what the calls and connections of one attack get as responses. */
export class Responses {
  readonly #counts = new Map<string, number>();
  #open = 0;
  #isOver = false;

  opened(): void {
    this.#open++;
  }

  closed(outcome: string): void {
    this.#open--;
    this.count(outcome);
  }

  count(what: string): void {
    // A call that ends because the attacker leaves has no response.
    if (this.#isOver) return;
    this.#counts.set(what, (this.#counts.get(what) ?? 0) + 1);
  }

  /** The attacker leaves: what is open now had no complete response. */
  finish(): ResponseCounts {
    if (this.#open > 0) this.#counts.set("open at the end", this.#open);
    this.#isOver = true;
    return Object.fromEntries(this.#counts);
  }
}

/** Adds the counts of `more` to `total`. */
export function addResponses(total: Record<string, number>, more: ResponseCounts): void {
  for (const [what, count] of Object.entries(more)) total[what] = (total[what] ?? 0) + count;
}
