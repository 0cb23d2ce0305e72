import { mkdir, mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { etcdBinaries } from "../../scripts/etcd.ts";
import { enableAuth } from "../etcd/etcd.ts";
import { freePorts } from "../etcd/free-ports.ts";
import { EtcdMember } from "./etcd-member.ts";
import { untilSeen } from "./patience.ts";
import { Relay } from "./relay.ts";
import { type Snapshot, SnapshotTool } from "./snapshot-tool.ts";

export interface ClusterOptions {
  /** Default 1. */
  readonly size?: 1 | 3;
  /** Enables authentication, with the user `root` and this password. */
  readonly rootPassword?: string;
  /** The space quota, in bytes. */
  readonly quotaBytes?: number;
  /** Further arguments of etcd, as on its command line. */
  readonly args?: readonly string[];
}

/**
 * A real etcd cluster on 127.0.0.1, whose members reach one another through relays, so that one can be
 * cut off from the others. It does not outlive the process that started it.
 */
export class EtcdCluster {
  readonly members: readonly EtcdMember[];
  readonly #folder: string;
  readonly #tool: SnapshotTool;
  /** Called with a member that has just become one not to be relied on. */
  onDisturbed: (member: EtcdMember) => void = () => {};
  #snapshots = 0;

  private constructor(members: readonly EtcdMember[], folder: string, tool: SnapshotTool) {
    this.members = members;
    this.#folder = folder;
    this.#tool = tool;
  }

  static async start(options: ClusterOptions = {}): Promise<EtcdCluster> {
    const binaries = await etcdBinaries();
    const tool = await SnapshotTool.of(binaries);
    const folder = await mkdtemp(join(tmpdir(), "etcd-cluster-"));
    const names = Array.from({ length: options.size ?? 1 }, (_, i) => `m${i}`);
    const ports = await freePorts(2 * names.length);
    const members: EtcdMember[] = [];
    for (const [i, name] of names.entries()) {
      const [client = 0, peer = 0] = ports.slice(2 * i);
      const peers = await Relay.to(peer, { dialerOf: dialingMember });
      await mkdir(join(folder, name));
      const place = { name, folder: join(folder, name), clientPort: client, peerPort: peer, peers };
      members.push(new EtcdMember(place));
    }
    for (const member of members) {
      member.configure(binaries.etcd, members, quotaArgs(options));
    }
    const cluster = new EtcdCluster(members, folder, tool);
    try {
      await Promise.all(members.map((member) => member.start()));
      await cluster.#learnIds();
      const [first] = members;
      if (options.rootPassword !== undefined && first !== undefined) {
        await enableAuth(first.url, options.rootPassword);
        for (const member of members) member.authenticateWith(options.rootPassword);
      }
    } catch (error) {
      await cluster.stop();
      throw error;
    }
    return cluster;
  }

  /** Those that run, hear, and are in touch with the others. */
  get healthy(): readonly EtcdMember[] {
    return this.members.filter((member) => member.isHealthy);
  }

  /** Calls the JSON gateway of any healthy member, again and again until one responds. */
  call(path: string, body: object = {}): Promise<Record<string, unknown>> {
    let turn = 0;
    return untilSeen(`etcd to answer ${path}`, async () => {
      const { healthy } = this;
      return healthy[turn++ % healthy.length]?.call(path, body);
    });
  }

  /** The newest revision, linearizable. */
  async revision(): Promise<number> {
    const response = await this.call("kv/range", { key: "AA==" });
    return Number((response["header"] as { readonly revision: string }).revision);
  }

  leader(): Promise<EtcdMember> {
    return untilSeen("a leader", async () => {
      for (const member of this.healthy) {
        const { leader } = await member.status();
        const found = this.healthy.find(({ id }) => id === leader);
        if (found !== undefined) return found;
      }
      return undefined;
    });
  }

  /** Makes another member the leader, without anything being lost. */
  async moveLeader(): Promise<void> {
    await untilSeen("the leader to have been moved", async () => {
      const before = await this.leader();
      const other = this.healthy.find((member) => member !== before);
      if (other === undefined) return true;
      await before.call("maintenance/transfer-leadership", { targetID: other.id });
      return (await this.leader()) === before ? undefined : true;
    });
  }

  async kill(member: EtcdMember): Promise<void> {
    await member.kill();
    this.onDisturbed(member);
  }

  async pause(member: EtcdMember): Promise<void> {
    await member.pause();
    this.onDisturbed(member);
  }

  /** Nothing passes any more between this member and the others; clients reach it as before. */
  cutOff(member: EtcdMember): void {
    member.isCutOff = true;
    member.peers.refuse();
    for (const other of this.members) other.peers.refuse(member.dialerId);
    this.onDisturbed(member);
  }

  /** Ends all faults: every member runs, hears and is in touch, and the cluster has a leader. */
  async heal(): Promise<void> {
    for (const member of this.members) {
      member.isCutOff = false;
      member.peers.heal();
      member.resume();
    }
    await Promise.all(this.members.map((member) => member.start()));
    await this.leader();
  }

  async compact(revision: number): Promise<void> {
    await untilSeen("etcd to compact", async () => {
      try {
        const [member] = this.healthy;
        return await member?.call("kv/compaction", { revision: String(revision) });
      } catch (error) {
        // It was done, and only the response was late.
        if (String(error).includes("has been compacted")) return true;
        throw error;
      }
    });
  }

  /** Resolves once the members apply no more puts, as the space quota was reached. */
  async untilAlarmed(): Promise<void> {
    await untilSeen("the alarm that the space quota was reached", async () => {
      const { alarms = [] } = await this.call("maintenance/alarm", { action: "GET" });
      return (alarms as readonly object[]).length > 0 ? true : undefined;
    });
  }

  /** Ends the alarm that the space quota was reached, after the space has been won back. */
  async disarm(): Promise<void> {
    const { alarms = [] } = await this.call("maintenance/alarm", { action: "GET" });
    for (const alarm of alarms as readonly object[]) {
      await this.call("maintenance/alarm", { ...alarm, action: "DEACTIVATE" });
    }
  }

  /** Gives the space of what was compacted back. */
  async defragment(): Promise<void> {
    for (const member of this.members) await member.call("maintenance/defragment", {});
  }

  /** Saves what etcd holds now. */
  async snapshot(): Promise<Snapshot> {
    const [member] = this.healthy;
    if (member === undefined) throw new Error("No member can be asked for a snapshot.");
    return this.#tool.save(member.url, join(this.#folder, `snapshot-${this.#snapshots++}.db`));
  }

  /** Kills every member and starts them all with what the snapshot holds, at the same addresses. */
  async restore(snapshot: Snapshot): Promise<void> {
    await Promise.all(this.members.map((member) => this.kill(member)));
    await Promise.all(
      this.members.map(async (member) => {
        await rm(member.dataFolder, { recursive: true, force: true });
        await this.#tool.restore(snapshot, member, this.members);
      }),
    );
    await Promise.all(this.members.map((member) => member.start()));
    await this.leader();
  }

  async stop(): Promise<void> {
    await Promise.all(this.members.map((member) => member.stop()));
    await rm(this.#folder, { recursive: true, force: true });
  }

  async #learnIds(): Promise<void> {
    await untilSeen("the members' ids", async () => {
      for (const member of this.members) member.id = (await member.status()).memberId;
      return true;
    });
  }
}

function quotaArgs({ quotaBytes, args = [] }: ClusterOptions): readonly string[] {
  return quotaBytes === undefined ? args : [...args, `--quota-backend-bytes=${quotaBytes}`];
}

/** Members identify themselves when they connect to one another. */
function dialingMember(firstBytes: Buffer): string | undefined {
  return /^x-server-from: ([0-9a-f]+)/im.exec(firstBytes.toString("latin1"))?.[1];
}
