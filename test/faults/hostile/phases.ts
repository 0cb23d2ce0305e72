import { setTimeout as delay } from "node:timers/promises";
import type { ChildReplica } from "../child-replica.ts";
import { untilSeen } from "../patience.ts";
import type { Seeded } from "../seeded.ts";
import { resource } from "../wire.ts";
import { type AnswerCounts, addAnswers } from "./answers.ts";
import type { Bulk } from "./attack.ts";
import { attacks } from "./attacks.ts";
import type { Probed } from "./honest-probe.ts";
import { type Attacking, HostileClient } from "./hostile-client.ts";
import { type PhaseReport, percentilesOf } from "./phase.ts";
import { WorkerProcess } from "./worker-process.ts";

/** CPU time that the attacks may take, as a share of one core. */
const cpuShare = 0.25;
/** How many attacks there are at once, and how long one holds what it has opened, in milliseconds at most. */
const atOnce = 3;
const longestHoldMs = 2_000;
/** How long a phase is measured, in milliseconds. */
const phaseMs = 8_000;
/** How often the honest client does a round, and how often /livez is asked, in milliseconds. */
const probeIntervalMs = 20;
const livezIntervalMs = 200;
/** Connections that others may have opened meanwhile. */
const moreSockets = 16;

const weights = Object.fromEntries(
  Object.entries(attacks).map(([name, { weight }]) => [name, weight]),
);

/** The hostile client's totals. */
export interface HostileCounts {
  /** How often each attack was begun. */
  readonly attacks: Readonly<Record<string, number>>;
  /** The responses to each. */
  readonly answers: Readonly<Record<string, AnswerCounts>>;
}

/** A hostile client and a measured honest one at one replica, each a process of its own. */
export class Phases {
  readonly reports: PhaseReport[] = [];
  readonly violations: string[] = [];
  readonly #replica: ChildReplica;
  readonly #bulk: Bulk;
  readonly #random: Seeded;
  readonly #hostile: HostileClient;
  readonly #probe: WorkerProcess;
  readonly #attacks: Record<string, number> = {};
  readonly #answers: Record<string, Record<string, number>> = {};
  /** CPU time of attacks in the last hostile phase, as a share of one core. */
  #hostileCpu = 0;
  #stop: AbortController | undefined;
  #lanes: Promise<unknown> = Promise.resolve();

  private constructor(replica: ChildReplica, bulk: Bulk, random: Seeded) {
    this.#replica = replica;
    this.#bulk = bulk;
    this.#random = random;
    this.#hostile = new HostileClient(random.fork());
    const module = new URL("probe-process.ts", import.meta.url);
    this.#probe = new WorkerProcess("the honest probe", module);
  }

  static async at(replica: ChildReplica, bulk: Bulk, random: Seeded): Promise<Phases> {
    const phases = new Phases(replica, bulk, random);
    await phases.#hostile.limitCpu(cpuShare);
    return phases;
  }

  get counts(): HostileCounts {
    return { attacks: this.#attacks, answers: this.#answers };
  }

  /** Attacks at random from now on, a few at once. */
  attack(): void {
    const stop = new AbortController();
    this.#stop = stop;
    this.#lanes = Promise.all(
      Array.from({ length: atOnce }, () => this.#attackInTurn(this.#random.fork(), stop.signal)),
    );
  }

  /** Ends all attacks and resolves when the replica has seen the end of their connections. */
  async calm(): Promise<void> {
    this.#stop?.abort();
    await this.#lanes;
    await untilSeen("the attacks' connections to be gone", async () => {
      await delay(livezIntervalMs);
      const { handles } = await this.#replica.report();
      return (handles["TCPSocketWrap"] ?? 0) < this.#usualSockets() + moreSockets
        ? true
        : undefined;
    });
  }

  /** One phase of each kind, in one order or the other, under equal honest load. */
  async measureBoth(): Promise<void> {
    if (this.#random.chance(0.5)) {
      await this.#measure("quiet");
      await this.#measure("hostile");
    } else {
      await this.#measure("hostile");
      await this.#measure("quiet");
    }
  }

  async close(): Promise<void> {
    this.#stop?.abort();
    await this.#hostile.close();
    await this.#lanes.catch(() => {});
    await this.#probe.close();
  }

  async #measure(kind: PhaseReport["kind"]): Promise<void> {
    // Others run beside a quiet phase as much as they did beside a hostile one: what differs is what reaches the replica.
    if (kind === "quiet") await this.#hostile.burn(this.#hostileCpu);
    const before = { ...this.#attacks };
    const cpuBefore = await this.#hostile.cpuMs();
    await this.#replica.report();
    const began = performance.now();
    const url = `http://127.0.0.1:${this.#replica.grpcPort}`;
    await this.#probe.ask("start", { url, intervalMs: probeIntervalMs });
    if (kind === "hostile") this.attack();
    const slowestLivez = await this.#askLivez(began + phaseMs);
    const { latencies, wrong } = await this.#probe.ask<Probed>("stop");
    const seconds = (performance.now() - began) / 1_000;
    const hostileCpu = ((await this.#hostile.cpuMs()) - cpuBefore) / 1_000 / seconds;
    const process = await this.#replica.report();
    const openCalls = await this.#openCalls();
    if (kind === "hostile") {
      this.#hostileCpu = hostileCpu;
      await this.calm();
    }
    await this.#hostile.burn(0);
    this.violations.push(...wrong.map((what) => `${what}, in a ${kind} phase`));
    this.reports.push({
      ...{ kind, seconds, slowestLivez, hostileCpu, openCalls, process },
      attacks: difference(before, this.#attacks),
      latencies: percentilesOf(latencies),
    });
  }

  /** One attack after the other. */
  async #attackInTurn(random: Seeded, signal: AbortSignal): Promise<void> {
    while (!signal.aborted) {
      const name = random.pickWeighted(weights);
      this.#attacks[name] = (this.#attacks[name] ?? 0) + 1;
      const { grpcPort, adminPort } = this.#replica;
      const attack = this.#hostile.begin(name, {
        ...{ grpcPort, adminPort, busy: resource, bulk: this.#bulk },
      });
      await this.#hold(attack, random.between(0, longestHoldMs), signal);
    }
  }

  async #hold(attack: Attacking, ms: number, signal: AbortSignal): Promise<void> {
    const aborted = new Promise<void>((resolve) => {
      signal.addEventListener("abort", () => resolve(), { once: true });
    });
    await Promise.race([aborted, attack.holding]);
    if (!signal.aborted) await Promise.race([aborted, delay(ms)]);
    const known = this.#answers[attack.name] ?? {};
    this.#answers[attack.name] = known;
    addAnswers(known, await attack.release());
  }

  /** Asks until then, and returns how long the slowest answer took; undefined if one did not come. */
  async #askLivez(until: number): Promise<number | undefined> {
    let slowest: number | undefined = 0;
    while (performance.now() < until) {
      const asked = performance.now();
      try {
        await this.#replica.admin("/livez");
        if (slowest !== undefined) slowest = Math.max(slowest, performance.now() - asked);
      } catch {
        slowest = undefined;
      }
      await delay(livezIntervalMs);
    }
    return slowest;
  }

  /** -1: unknown, since the admin port does not answer. */
  async #openCalls(): Promise<number> {
    const metrics = await this.#replica.admin("/metrics").catch(() => undefined);
    if (metrics === undefined) return -1;
    const counts = metrics.matchAll(/^watch_fanout_rpc_in_flight\{[^}]*\} (\d+)/gm);
    return [...counts].reduce((sum, [, count]) => sum + Number(count), 0);
  }

  /** Without an attack. */
  #usualSockets(): number {
    const quiet = this.reports.filter(({ kind }) => kind === "quiet");
    return Math.max(16, ...quiet.map(({ process }) => process.handles["TCPSocketWrap"] ?? 0));
  }
}

function difference(
  before: Readonly<Record<string, number>>,
  after: Readonly<Record<string, number>>,
): Record<string, number> {
  return Object.fromEntries(
    Object.entries(after)
      .map(([name, count]) => [name, count - (before[name] ?? 0)] as const)
      .filter(([, count]) => count > 0),
  );
}
