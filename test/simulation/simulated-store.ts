import type { Logger } from "pino";
import { systemClock } from "../../src/base/clock.ts";
import { Cacher } from "../../src/cacher/cacher.ts";
import { DeepReads } from "../../src/cacher/catch-up/deep-reads.ts";
import { AttributeReader } from "../../src/codec/attribute-reader.ts";
import { JsonCodec } from "../../src/codec/json-codec.ts";
import { type RunningServer, startServer } from "../../src/server/server.ts";
import { MemoryStorage } from "../../src/storage/memory/memory-storage.ts";
import { MemoryStore } from "../../src/storage/memory/memory-store.ts";
import type { KilledStore } from "../faults/kills/kill-run.ts";
import { fields } from "../faults/replica.ts";
import type { Seeded } from "../faults/seeded.ts";
import { resource } from "../faults/wire.ts";
import { Network } from "./network.ts";
import { clientHost, firstRoot } from "./replica.ts";
import type { Scheduler } from "./scheduler.ts";
import type { SimulatedDisk } from "./simulated-disk.ts";
import { SimulatedJournal } from "./simulated-journal.ts";

const port = 50_051;
const host = firstRoot;
const url = `http://${Network.address(clientHost, host)}:${port}`;

/** How long a process lives at most if it does not come to the step that ends it, in milliseconds. */
const livesMs = 3_000;

/** By how much the clock of the day may be wrong, in milliseconds. */
const dayMs = 86_400_000;

/** How long the disk may be full, in milliseconds. */
const fullMs = 300;

export interface SimulatedStoreOptions {
  readonly scheduler: Scheduler;
  readonly network: Network;
  readonly random: Seeded;
  readonly disk: SimulatedDisk;
  readonly logger: Logger;
  /** Before which step of its commits each process ends, counted from the first after it serves. Behind these: any. */
  readonly endsBefore: readonly number[];
  /** How often the disk is full for a while, and how often it breaks, in the life of one process. */
  readonly failures: number;
  readonly windowEvents: number;
}

interface Running {
  readonly journal: SimulatedJournal;
  readonly store: MemoryStore;
  readonly cacher: Cacher;
  readonly server: RunningServer;
}

/** The service over an embedded store on a simulated disk, which loses its power. */
export class SimulatedStore implements KilledStore {
  readonly #options: SimulatedStoreOptions;
  readonly #journals: SimulatedJournal[] = [];
  #running: Running | undefined;
  #kills = 0;
  /** The process ends by itself. */
  #onFault: () => void = () => {};
  /** Whether its disk may break, since no other process has to find what is on it. */
  #mayFail = false;

  constructor(options: SimulatedStoreOptions) {
    this.#options = options;
  }

  /** What the store has done with its journal that the contract does not allow. */
  get misuses(): string[] {
    return this.#journals.flatMap(({ misuses }) => misuses);
  }

  async start(): Promise<string> {
    const { disk, logger, windowEvents, scheduler } = this.#options;
    // Nothing may depend on the clock of the day: it is set back and forth.
    scheduler.dayAheadMs = (this.#journals.length % 2 === 0 ? 1 : -1) * dayMs;
    const clock = systemClock;
    const journal = new SimulatedJournal(disk, "the first");
    this.#journals.push(journal);
    const onFault = (): void => this.#onFault();
    const store = await MemoryStore.open({ clock, journal, onFault });
    const storage = new MemoryStorage({ store, resource, prefix: `${resource}/` });
    const cacher = new Cacher({
      ...{ storage, clock, logger, name: resource },
      attributes: new AttributeReader(new JsonCodec({ fields }), clock, logger),
      indexes: fields,
      consistencyIntervalMs: 5_000,
      eventWindow: { maxEvents: windowEvents, minEvents: 0 },
      deepReads: new DeepReads(clock),
    });
    const server = await startServer({
      resources: new Map([[resource, cacher]]),
      listen: { host: Network.address(0, host), port },
      ...{ store, clock, logger },
    });
    cacher.start();
    this.#running = { journal, store, cacher, server };
    while (!cacher.ready) await disk.after(1, "waits");
    return url;
  }

  async kill(_acknowledged: () => number, gone: () => void): Promise<void> {
    await this.#untilEnd(this.#options.endsBefore[this.#kills++], gone);
    await this.#close();
  }

  async killWhileStarting(): Promise<void> {
    await this.start();
    this.#end();
    await this.#close();
  }

  async close(): Promise<void> {
    this.#end();
    await this.#close();
  }

  /** Resolves when the process has ended: at once, before that step. */
  #untilEnd(before: number | undefined, gone: () => void): Promise<void> {
    const { disk, random, scheduler } = this.#options;
    this.#mayFail = true;
    const fails = this.#failSoon();
    // For long enough that leases end which were granted before.
    const last = disk.steps + (before ?? random.between(0, fails ? 1_000 : 80));
    return new Promise((resolve) => {
      const end = (): void => {
        late.cancel();
        disk.onStep = () => {};
        this.#onFault = () => {};
        this.#mayFail = false;
        gone();
        this.#end();
        resolve();
      };
      const late = scheduler.after(livesMs, "the store ends", end);
      this.#onFault = end;
      disk.onStep = (step) => {
        if (step >= last) end();
      };
    });
  }

  /** Returns whether the disk fails, which it may soon. */
  #failSoon(): boolean {
    const { disk, random, scheduler, failures } = this.#options;
    const at = (): number => random.between(0, fullMs);
    const fills = random.chance(failures);
    if (fills) {
      const fromMs = at();
      scheduler.after(fromMs, "the disk is full", () => {
        disk.isFull = true;
      });
      scheduler.after(fromMs + at(), "the disk has room", () => {
        disk.isFull = false;
      });
    }
    if (random.chance(failures / 3)) {
      scheduler.after(at(), "the disk breaks", () => {
        // The process may have ended before, and what it has left is being compared.
        disk.isBroken = this.#mayFail;
      });
    }
    return fills;
  }

  /** The power is lost: nothing leaves the process any more, and what is not synced may be lost. */
  #end(): void {
    const { disk, network, scheduler } = this.#options;
    scheduler.trace("the store ends");
    this.#running?.journal.die();
    for (const link of network.linksOf(host)) {
      link.state.isRefused = true;
      network.cut(link);
    }
    disk.isFull = false;
    disk.isBroken = false;
    disk.lose();
  }

  /** Frees what the process had. */
  async #close(): Promise<void> {
    const running = this.#running;
    this.#running = undefined;
    if (running === undefined) return;
    const { store, cacher, server } = running;
    // It may wait for a disk that does not answer any more.
    void store.close();
    await server.drain(0);
    await cacher.close();
    for (const link of this.#options.network.linksOf(host)) {
      this.#options.network.cut(link);
      link.state.isRefused = false;
    }
  }
}
