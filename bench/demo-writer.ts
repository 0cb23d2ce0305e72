import type { Client } from "../src/client/client.ts";
import { resource, type Written } from "./demo-watchers.ts";
import { monotonicMs } from "./monotonic-clock.ts";

/** Number of keys, which are written in rotation. */
const keyCount = 100;
/** Maximum number of puts that wait for their responses. Beyond it the writer pauses. */
const maxPending = 64;

/** Puts objects through the service at a fixed rate. */
export class DemoWriter {
  readonly #client: Client;
  readonly #timer: NodeJS.Timeout;
  readonly #abort = new AbortController();
  #started = 0;
  #pending = 0;
  #written = 0;
  #failed = 0;
  #revision = 0;

  constructor(client: Client, perSecond: number) {
    this.#client = client;
    const begun = monotonicMs();
    let due = 0;
    this.#timer = setInterval(
      () => {
        const before = due;
        due = Math.floor(((monotonicMs() - begun) * perSecond) / 1_000);
        for (let i = before; i < due && this.#pending < maxPending; i++) void this.#put();
      },
      Math.max(5, 1_000 / perSecond),
    );
  }

  /** The revision of the last put. */
  get revision(): number {
    return this.#revision;
  }

  /** The puts that succeeded and that failed since the call before. */
  takeCounts(): { readonly written: number; readonly failed: number } {
    const counts = { written: this.#written, failed: this.#failed };
    this.#written = 0;
    this.#failed = 0;
    return counts;
  }

  stop(): void {
    clearInterval(this.#timer);
    this.#abort.abort();
  }

  async #put(): Promise<void> {
    this.#pending++;
    const key = `item-${String(this.#started++ % keyCount).padStart(2, "0")}`;
    const value = Buffer.from(JSON.stringify({ sentAt: monotonicMs() } satisfies Written));
    try {
      const { revision } = await this.#client.put(resource, key, value, {
        signal: this.#abort.signal,
      });
      this.#revision = Math.max(this.#revision, revision);
      this.#written++;
    } catch {
      // As when its replica is killed: the watchers show whether it was written.
      this.#failed++;
    } finally {
      this.#pending--;
    }
  }
}
