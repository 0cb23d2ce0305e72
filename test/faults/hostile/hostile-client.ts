import type { Seeded } from "../seeded.ts";
import type { Target } from "./attack.ts";
import type { AttackOrder } from "./hostile-process.ts";
import type { ResponseCounts } from "./responses.ts";
import { WorkerProcess } from "./worker-process.ts";

/** An attack that has been begun. */
export interface Attacking {
  readonly name: string;
  /** Resolves when all of it has been sent: what it holds open, it holds from then on. */
  readonly holding: Promise<void>;
  /** Ends it at any point, and resolves to the responses that it got. */
  readonly release: () => Promise<ResponseCounts>;
}

/** A hostile client in a process of its own. */
export class HostileClient {
  readonly #worker = new WorkerProcess(
    "the hostile client",
    new URL("hostile-process.ts", import.meta.url),
  );
  readonly #random: Seeded;
  #attacks = 0;

  constructor(random: Seeded) {
    this.#random = random;
  }

  /**
   * Bounds the CPU time of the attacks that are begun from now on to a share of one core, up to 1, and puts the process
   * behind all others. Without it, it takes what it can get.
   */
  async limitCpu(share: number): Promise<void> {
    await this.#worker.ask("budget", share);
  }

  /** `seed`: of the attack's random choices. Default: one of this client's own seed. */
  begin(name: string, target: Target, seed: number = this.#random.fork().seed): Attacking {
    const id = this.#attacks++;
    const order: AttackOrder = { id, name, target, seed };
    const holding = this.#worker.ask<void>("attack", order);
    // A caller that does not await it gets its failure when it is released.
    holding.catch(() => {});
    const release = async (): Promise<ResponseCounts> => {
      const responses = await this.#worker.ask<ResponseCounts>("release", id);
      await holding;
      return responses;
    };
    return { name, holding, release };
  }

  get pid(): number | undefined {
    return this.#worker.pid;
  }

  /** Ends it with all that it holds. Idempotent. */
  close(): Promise<void> {
    return this.#worker.close();
  }
}
