import { Seeded } from "../faults/seeded.ts";
import { Network } from "./network.ts";
import { Processes } from "./processes.ts";
import { connectTo, realTime } from "./runtime.ts";
import type { Scenario } from "./scenario.ts";
import { Scheduler } from "./scheduler.ts";
import { StoreWorld } from "./store-world.ts";
import type { TraceRecorder } from "./trace-recorder.ts";
import { World } from "./world.ts";

/** The outcome of a simulation. */
export interface Outcome {
  /** The violated guarantees, in sentences. Empty: none. */
  readonly wrong: readonly string[];
  /** Of all events and what was delivered: equal for equal runs. */
  readonly fingerprint: string;
  readonly events: number;
  readonly simulatedMs: number;
  readonly realMs: number;
}

/** How long a simulation may take in all, in milliseconds of simulated time. */
const limitMs = 15 * 60_000;

/** How long what is left may take when everything is closed, in milliseconds of simulated time. */
const restMs = 10 * 60_000;

export interface SimulateOptions {
  /** Gets a line for each event. */
  readonly log?: ((line: string) => void) | undefined;
  /** The level of the services' log, no part of the trace. Default: error. */
  readonly logLevel?: string | undefined;
  readonly recorder?: TraceRecorder | undefined;
}

/** Runs a scenario. One at a time in a process. */
export async function simulate(
  scenario: Scenario,
  { log, logLevel = "error", recorder }: SimulateOptions = {},
): Promise<Outcome> {
  const { seed, salt, pace, chunking, latencyMs } = scenario;
  const began = realTime.now();
  const random = new Seeded(seed ^ 0x2f6e2b1);
  const scheduler = new Scheduler(seed ^ Math.imul(salt, 0x9e3779b1), pace, log);
  const network = new Network(scheduler, random.fork(), chunking, latencyMs);
  const processes = new Processes(scheduler);
  await connectTo({ scheduler, network, processes, random: random.fork() });
  const wrong: string[] = [];
  const crash = (error: unknown): void => {
    wrong.push(`Crash: ${error instanceof Error ? error.stack : String(error)}`);
  };
  process.on("uncaughtException", crash).on("unhandledRejection", crash);
  try {
    const outside = { scheduler, network, processes };
    const world =
      scenario.embedded === undefined
        ? new World(scenario, outside, logLevel, recorder)
        : new StoreWorld(scenario, scenario.embedded, outside, logLevel);
    wrong.push(...(await scheduler.until(world.live(), limitMs)));
    await scheduler.untilIdle(restMs);
    if (network.openSockets > 0) wrong.push(`Leak: ${network.openSockets} sockets are open.`);
    if (scheduler.pending > 0) wrong.push(`Leak: left are ${scheduler.pendingNames.join(", ")}.`);
  } catch (error) {
    crash(error);
  } finally {
    process.off("uncaughtException", crash).off("unhandledRejection", crash);
  }
  return {
    ...{ wrong, fingerprint: scheduler.fingerprint, events: scheduler.happened },
    ...{ simulatedMs: scheduler.time, realMs: realTime.now() - began },
  };
}
