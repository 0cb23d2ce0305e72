import type { StateKeeper } from "../../src/cache-files/kept-state.ts";
import { MemoryDisk } from "../cacher/memory-keeper.ts";
import type { Seeded } from "../faults/seeded.ts";

/** How many of the newest batches may be missing from what a process has left on disk. */
const mostLost = 30;

/**
 * What the processes of one replica keep of its cache. All that a keeper promises is that it is one state that the cache had: of
 * what an ended process has left the newest part may be missing, or all.
 */
export class SimulatedKept {
  readonly #random: Seeded;
  #disk: MemoryDisk | undefined;

  constructor(random: Seeded) {
    this.#random = random;
  }

  /** The keeper of the next process. */
  keeper(): StateKeeper {
    const random = this.#random;
    if (this.#disk === undefined || random.chance(0.1)) this.#disk = new MemoryDisk(Date.now);
    const lost = random.chance(0.5) ? 0 : random.between(0, mostLost);
    this.#disk.lose(lost);
    return this.#disk.keeper();
  }
}
