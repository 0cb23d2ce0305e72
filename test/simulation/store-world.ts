import { pino } from "pino";
import { KillRun } from "../faults/kills/kill-run.ts";
import { Seeded } from "../faults/seeded.ts";
import type { Network } from "./network.ts";
import type { Scenario } from "./scenario.ts";
import type { Scheduler } from "./scheduler.ts";
import { type Embedded, SimulatedDisk } from "./simulated-disk.ts";
import { SimulatedStore } from "./simulated-store.ts";

/** An embedded store whose process ends again and again, and the clients of the tests with real processes (test/faults/kills). */
export class StoreWorld {
  readonly #embedded: Embedded;
  readonly #store: SimulatedStore;
  readonly #run: KillRun;
  readonly #errors: string[] = [];

  constructor(
    scenario: Scenario,
    embedded: Embedded,
    { scheduler, network }: { readonly scheduler: Scheduler; readonly network: Network },
    level: string,
  ) {
    const random = new Seeded(scenario.seed ^ 0xd15c);
    this.#embedded = embedded;
    const disk = new SimulatedDisk(scheduler, random.fork(), embedded.disk);
    // Reading the clock would let time pass.
    const options = { level, base: null, timestamp: false };
    const logger = pino(options, { write: (line: string) => scheduler.note(line.trimEnd()) });
    this.#store = new SimulatedStore({
      ...{ scheduler, network, disk, logger, random: random.fork() },
      ...{ endsBefore: embedded.endsBefore, failures: embedded.failures },
      ...{ windowEvents: scenario.windowEvents },
    });
    this.#run = new KillRun(random.fork(), this.#store);
  }

  /** Resolves to all that was wrong. */
  async live(): Promise<string[]> {
    const wrong: string[] = [];
    await this.#run.open();
    for (let i = 0; i < this.#embedded.kills && wrong.length === 0; i++) {
      wrong.push(...(await this.#run.kill()));
    }
    if (wrong.length === 0) wrong.push(...(await this.#run.expire()));
    await this.#run.close();
    return [...wrong, ...this.#store.misuses, ...this.#errors];
  }
}
