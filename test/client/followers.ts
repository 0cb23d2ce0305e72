import type { Interruption } from "../../src/client/calls/options.ts";
import { type Client, connect } from "../../src/client/connect.ts";
import type { SharedInformer } from "../../src/client/informer/shared-informer.ts";
import { ObjectCache } from "../../src/client/object-cache/object-cache.ts";
import { jsonValues } from "../../src/client/values/value-codec.ts";
import { FakeClock } from "../fake-clock.ts";
import { untilSeen } from "../faults/patience.ts";

const watches = 10;

/**
 * How long an attempt to open a stream waits for its connection, in milliseconds: by the system's clock, so a busy machine must
 * not need longer. A server that is away refuses it earlier.
 */
const connectTimeoutMs = 60_000;
/**
 * Within which time all have what was written, in milliseconds: no pause at its maximum ends by itself in that time, which is
 * 2.5 s of the informer.
 */
const maxDelayMs = 1_500;

/** Ten watches, an informer and an object cache of one client, which follow the object `a` of the resource `things`. */
export class Followers {
  readonly client: Client;
  /** The client's. It passes only as the test lets it. */
  readonly clock = new FakeClock();
  /** Those of the watches. */
  readonly interruptions: Interruption[] = [];
  readonly #informer: SharedInformer<number>;
  readonly #cache: ObjectCache<number>;
  readonly #seen: number[] = [];
  #open = 0;
  readonly #stop = new AbortController();
  readonly #watching: readonly Promise<void>[];

  /** The jitter of all pauses is the minimum. */
  constructor(address: readonly string[]) {
    const { clock } = this;
    const random = () => 0;
    this.client = connect({ address, clock, random, connectTimeoutMs });
    const things = this.client.resource("things", jsonValues<number>());
    this.#informer = things.informer({ onWatchError: () => {} });
    const cached = { client: this.client, resource: "things", codec: things.codec, clock, random };
    this.#cache = new ObjectCache({ ...cached, syncTimeoutMs: 0 });
    this.#cache.addReference("a");
    this.#informer.start();
    this.#watching = Array.from({ length: watches }, (_, i) => this.#watch(i));
  }

  /** Resolves when all have this value of the object. Rejects if that takes more than 1.5 s of the client's time. */
  async untilAllHave(value: number): Promise<void> {
    const start = this.clock.now();
    await untilSeen(`${value} everywhere`, async () => {
      if (this.clock.now() - start < maxDelayMs) this.clock.advance(10);
      const cached = await this.#cache.get("a").catch(() => undefined);
      const informed = this.#informer.indexer.get("a");
      const all = [
        ...Array.from(this.#watching, (_, i) => this.#seen[i]),
        cached?.value,
        informed?.value,
      ];
      return all.every((each) => each === value) ? true : undefined;
    });
  }

  /** Lets time pass until all watches are open. */
  async untilOpen(): Promise<void> {
    await untilSeen("all watches to be open", async () => {
      this.clock.advance(20);
      return this.#open === watches ? true : undefined;
    });
  }

  /** Lets time pass until each watch has failed so often again: then the pauses are at their maximum. */
  async untilFailed(times: number): Promise<void> {
    const until = this.interruptions.length + times * watches;
    await untilSeen(`${times} failures of each watch`, async () => {
      this.clock.advance(10_000);
      return this.interruptions.length >= until ? true : undefined;
    });
  }

  async close(): Promise<void> {
    this.#stop.abort();
    await Promise.all([this.#cache.close(), this.#informer.stop(), ...this.#watching]);
    this.client.close();
  }

  async #watch(i: number): Promise<void> {
    let isOpen = false;
    const batches = this.client.resource("things", jsonValues<number>()).watch({
      ...{ sendInitialEvents: true, signal: this.#stop.signal },
      onOpened: () => {
        this.#open++;
        isOpen = true;
      },
      onInterruption: (interruption) => {
        if (isOpen) this.#open--;
        isOpen = false;
        this.interruptions.push(interruption);
      },
    });
    for await (const { events } of batches) {
      for (const event of events) if (event.type !== "DELETED") this.#seen[i] = event.object.value;
    }
  }
}
