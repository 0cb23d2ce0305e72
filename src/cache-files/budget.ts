/** What several users may take of something, in bytes. */
export class Budget {
  readonly #max: number;
  readonly #within: Budget | undefined;
  #taken = 0;

  /** `within`: a budget of more users, of which this is a part. */
  constructor(max: number, within?: Budget) {
    this.#max = max;
    this.#within = within;
  }

  get taken(): number {
    return this.#taken;
  }

  /** Returns whether there was room for so many bytes. */
  take(bytes: number): boolean {
    if (this.#taken + bytes > this.#max || this.#within?.take(bytes) === false) return false;
    this.#taken += bytes;
    return true;
  }

  /** Counts bytes that are taken already. */
  count(bytes: number): void {
    this.#taken += bytes;
    this.#within?.count(bytes);
  }

  release(bytes: number): void {
    this.count(-bytes);
  }
}
