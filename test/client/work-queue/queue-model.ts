/** The naive model of a WorkQueue: lists and sets, searched each time. Keys are strings. */
export class QueueModel {
  readonly ready: string[] = [];
  /** Being processed, and to be processed again afterwards. */
  readonly again = new Set<string>();
  readonly processing = new Set<string>();
  readonly delayed: { readonly key: string; readonly due: number }[] = [];
  readonly failures = new Map<string, number>();
  /** The waiting getters, by number. */
  readonly getters: number[] = [];
  /** The result of each getter; undefined: the queue is shut down. */
  readonly got = new Map<number, string | undefined>();
  readonly maxKeys: number;
  state: "open" | "draining" | "shut down" = "open";
  now = 0;

  constructor(maxKeys: number) {
    this.maxKeys = maxKeys;
  }

  /** Whether the key was accepted, including a key that is already known. */
  add(key: string): boolean {
    if (this.state !== "open") return true;
    if (!this.#letIn(key)) return false;
    if (this.ready.includes(key)) return true;
    if (this.processing.has(key)) this.again.add(key);
    else this.ready.push(key);
    this.#serve();
    return true;
  }

  addAfter(key: string, delayMs: number): boolean {
    if (delayMs <= 0) return this.add(key);
    if (this.state !== "open") return true;
    if (!this.#letIn(key)) return false;
    const due = this.now + delayMs;
    const at = this.delayed.findIndex((other) => other.key === key);
    if (at !== -1 && (this.delayed[at]?.due ?? 0) <= due) return true;
    if (at !== -1) this.delayed.splice(at, 1);
    this.delayed.push({ key, due });
    return true;
  }

  addRateLimited(key: string): boolean {
    if (this.state !== "open") return true;
    const failures = this.failures.get(key) ?? 0;
    this.failures.set(key, failures + 1);
    return this.addAfter(key, 10 * 2 ** failures);
  }

  get(getter: number): void {
    this.getters.push(getter);
    this.#serve();
  }

  done(key: string): void {
    this.processing.delete(key);
    if (this.again.delete(key)) this.ready.push(key);
    this.#serve();
  }

  advance(ms: number): void {
    const end = this.now + ms;
    for (;;) {
      const next = this.delayed.toSorted((a, b) => a.due - b.due)[0];
      if (next === undefined || next.due > end) break;
      this.now = next.due;
      this.delayed.splice(this.delayed.indexOf(next), 1);
      this.add(next.key);
    }
    this.now = end;
  }

  shutDown(): void {
    this.state = "shut down";
    this.ready.length = 0;
    this.again.clear();
    this.delayed.length = 0;
    this.#serve();
  }

  drain(): void {
    if (this.state === "open") this.state = "draining";
    this.delayed.length = 0;
    this.#serve();
  }

  get known(): Set<string> {
    const delayed = this.delayed.map(({ key }) => key);
    return new Set([...this.ready, ...this.processing, ...delayed]);
  }

  #letIn(key: string): boolean {
    return this.known.has(key) || this.known.size < this.maxKeys;
  }

  #serve(): void {
    while (this.getters.length > 0 && this.ready.length > 0) {
      const [getter = -1] = this.getters.splice(0, 1);
      const [key = ""] = this.ready.splice(0, 1);
      this.processing.add(key);
      this.got.set(getter, key);
    }
    if (this.state === "draining" && this.ready.length + this.processing.size === 0) {
      this.state = "shut down";
    }
    if (this.state !== "shut down") return;
    for (const getter of this.getters.splice(0)) this.got.set(getter, undefined);
  }
}
