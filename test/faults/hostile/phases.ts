import { setTimeout as delay } from "node:timers/promises";
import { childPids } from "../../../bench/process-usage.ts";
import type { ChildReplica } from "../child-replica.ts";
import type { EtcdCluster } from "../etcd-cluster.ts";
import { untilSeen } from "../patience.ts";
import { Seeded } from "../seeded.ts";
import { resource } from "../wire.ts";
import { prefix } from "../world.ts";
import type { Bulk } from "./attack.ts";
import { type AttackEffect, AttackEffects } from "./attack-effects.ts";
import { type AttackCounts, AttackLanes, type AttackSpan } from "./attack-lanes.ts";
import { cpuOf, cpuShares, type ProcessIds } from "./cpu-shares.ts";
import type { Probed } from "./honest-probe.ts";
import { HostileClient } from "./hostile-client.ts";
import { type PhaseKind, type PhaseReport, percentilesOf } from "./phase.ts";
import { WorkerProcess } from "./worker-process.ts";

/** CPU time that the attacks may take, as a share of one core. */
const cpuShare = 0.25;
/** How long a phase is measured, in milliseconds. */
const phaseMs = 8_000;
/** How often the honest client does a round, and how often /livez is asked, in milliseconds. */
const probeIntervalMs = 20;
const livezIntervalMs = 200;
/** Another host than that of honest clients, so that limits by host distinguish them. Linux has all of 127.0.0.0/8. */
const hostileHost = "127.0.0.2";
/** Connections that others may have opened meanwhile. */
const moreSockets = 16;

/** A replica to attack, and the resource for that. */
export interface Attacked {
  readonly replica: ChildReplica;
  readonly bulk: Bulk;
}

/** The processes of a soak. */
export interface PhaseSetting {
  readonly cluster: EtcdCluster;
  /** The replica whose honest clients are measured. Hostile phases attack it. */
  readonly measured: Attacked;
  /** A replica without honest clients, of the same etcd and the same configuration. Decoy phases attack it. */
  readonly decoy: Attacked;
  /** The replicas that are neither. */
  readonly others: readonly ChildReplica[];
}

/** What the attacks did, and the measurements with and without them. */
export interface HostileReport {
  readonly phases: readonly PhaseReport[];
  /** Of the attacks on the measured replica, also those that ran beside faults. */
  readonly measured: AttackCounts;
  readonly decoy: AttackCounts;
  /** Of all hostile phases, and of all decoy phases. */
  readonly effects: Readonly<Record<"hostile" | "decoy", readonly AttackEffect[]>>;
}

/**
 * Measures an honest client of one replica in three kinds of phases: without attacks, with attacks on a decoy, and with
 * the same attacks on that replica. The hostile client and the measured honest one are processes of their own.
 */
export class Phases {
  readonly #reports: PhaseReport[] = [];
  readonly violations: string[] = [];
  readonly #setting: PhaseSetting;
  readonly #random: Seeded;
  readonly #hostile: HostileClient;
  readonly #probe: WorkerProcess;
  readonly #lanes: Readonly<Record<"hostile" | "decoy", AttackLanes>>;
  readonly #effects = { hostile: new AttackEffects(), decoy: new AttackEffects() };

  private constructor(setting: PhaseSetting, random: Seeded) {
    this.#setting = setting;
    this.#random = random;
    const hostile = new HostileClient(random.fork());
    this.#hostile = hostile;
    const lanes = ({ replica, bulk }: Attacked): AttackLanes =>
      new AttackLanes(hostile, () => {
        const { grpcPort, adminPort } = replica;
        const target = { grpcPort, adminPort, from: hostileHost };
        return { ...target, busy: resource, busyPrefix: prefix, bulk };
      });
    this.#lanes = { hostile: lanes(setting.measured), decoy: lanes(setting.decoy) };
    const module = new URL("probe-process.ts", import.meta.url);
    this.#probe = new WorkerProcess("the honest probe", module);
  }

  static async at(setting: PhaseSetting, random: Seeded): Promise<Phases> {
    const phases = new Phases(setting, random);
    await phases.#hostile.limitCpu(cpuShare);
    return phases;
  }

  get report(): HostileReport {
    return {
      phases: this.#reports,
      ...{ measured: this.#lanes.hostile.counts, decoy: this.#lanes.decoy.counts },
      effects: { hostile: this.#effects.hostile.effects, decoy: this.#effects.decoy.effects },
    };
  }

  /** Attacks the measured replica at random from now on. */
  attack(): void {
    this.#lanes.hostile.begin(this.#random.fork());
  }

  /** Ends all attacks on the measured replica, and resolves when it has seen the end of their connections. */
  async calm(): Promise<void> {
    await this.#calm("hostile");
  }

  /** One phase of each kind, in a random order, under equal honest load, with equal attacks. */
  async measureAll(): Promise<void> {
    const { seed } = this.#random.fork();
    const kinds: PhaseKind[] = ["quiet", "decoy", "hostile"];
    while (kinds.length > 0) {
      const [kind] = kinds.splice(this.#random.between(0, kinds.length - 1), 1);
      if (kind !== undefined) await this.#measure(kind, new Seeded(seed));
    }
  }

  async close(): Promise<void> {
    const ended = Promise.all([this.#lanes.hostile.end(), this.#lanes.decoy.end()]);
    ended.catch(() => {});
    await this.#hostile.close();
    await ended.catch(() => {});
    await this.#probe.close();
    await this.#setting.decoy.replica.stop();
  }

  async #measure(kind: PhaseKind, random: Seeded): Promise<void> {
    const { replica } = this.#setting.measured;
    // Collects the garbage of the phase before, which must not count in this one.
    await Promise.all([replica.report(), this.#setting.decoy.replica.report()]);
    const ids = this.#processIds();
    const cpuBefore = cpuOf(ids);
    const began = performance.now();
    const url = `http://127.0.0.1:${replica.grpcPort}`;
    await this.#probe.ask("start", { url, intervalMs: probeIntervalMs });
    if (kind !== "quiet") this.#lanes[kind].begin(random);
    const slowestLivez = await this.#askLivez(began + phaseMs);
    const { latencies, wrong } = await this.#probe.ask<Probed>("stop");
    const seconds = (performance.now() - began) / 1_000;
    const cpu = cpuShares(cpuBefore, cpuOf(ids), seconds);
    const process = await replica.report();
    const openCalls = await this.#openCalls(kind);
    const spans = kind === "quiet" ? [] : await this.#calm(kind);
    if (kind !== "quiet") this.#effects[kind].add(spans, latencies, process);
    this.violations.push(...wrong.map((what) => `${what}, in a ${kind} phase`));
    this.#reports.push({
      ...{ kind, seconds, slowestLivez, cpu, openCalls, process },
      attacks: countByName(spans),
      latencies: percentilesOf(latencies),
    });
  }

  async #calm(kind: "hostile" | "decoy"): Promise<readonly AttackSpan[]> {
    const spans = await this.#lanes[kind].end();
    const { replica } = this.#attacked(kind);
    await untilSeen("the attacks' connections to be gone", async () => {
      await delay(livezIntervalMs);
      const { handles } = await replica.report();
      return (handles["TCPSocketWrap"] ?? 0) < this.#usualSockets() + moreSockets
        ? true
        : undefined;
    });
    return spans;
  }

  /** Asks until then, and returns how long the slowest response took; undefined if one did not come. */
  async #askLivez(until: number): Promise<number | undefined> {
    let slowest: number | undefined = 0;
    while (performance.now() < until) {
      const asked = performance.now();
      try {
        await this.#setting.measured.replica.admin("/livez");
        if (slowest !== undefined) slowest = Math.max(slowest, performance.now() - asked);
      } catch {
        slowest = undefined;
      }
      await delay(livezIntervalMs);
    }
    return slowest;
  }

  /** Of the attacked replica. -1: unknown, since the admin port does not answer. */
  async #openCalls(kind: PhaseKind): Promise<number> {
    const { replica } = this.#attacked(kind);
    const metrics = await replica.admin("/metrics").catch(() => undefined);
    if (metrics === undefined) return -1;
    const counts = metrics.matchAll(/^watch_fanout_rpc_in_flight\{[^}]*\} (\d+)/gm);
    return [...counts].reduce((sum, [, count]) => sum + Number(count), 0);
  }

  #attacked(kind: PhaseKind): Attacked {
    return kind === "decoy" ? this.#setting.decoy : this.#setting.measured;
  }

  /** Without an attack. */
  #usualSockets(): number {
    const quiet = this.#reports.filter(({ kind }) => kind === "quiet");
    return Math.max(16, ...quiet.map(({ process }) => process.handles["TCPSocketWrap"] ?? 0));
  }

  #processIds(): ProcessIds {
    const { cluster, measured, decoy, others } = this.#setting;
    return {
      replica: [measured.replica.pid],
      decoy: [decoy.replica.pid],
      // With their workers.
      otherReplicas: others.flatMap(({ pid }) =>
        pid === undefined ? [] : [pid, ...childPids(pid)],
      ),
      etcd: cluster.members.map(({ pid }) => pid),
      hostile: [this.#hostile.pid],
      // The recorded clients and the relays are in this process.
      honest: [this.#probe.pid, process.pid],
    };
  }
}

function countByName(spans: readonly AttackSpan[]): Record<string, number> {
  const counts: Record<string, number> = {};
  for (const { name } of spans) counts[name] = (counts[name] ?? 0) + 1;
  return counts;
}
