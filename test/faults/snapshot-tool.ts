import { execFile } from "node:child_process";
import { access } from "node:fs/promises";
import { dirname, join } from "node:path";
import { promisify } from "node:util";
import type { EtcdBinaries } from "../../scripts/etcd/binaries.ts";
import { type EtcdMember, initialCluster } from "./etcd-member.ts";

const run = promisify(execFile);
const timeout = 30_000;

/** A snapshot of etcd. */
export interface Snapshot {
  readonly path: string;
  /** etcd's revision then. */
  readonly revision: number;
}

/** etcd's own tools to save and restore: etcdutl where it is installed, before 3.6 also etcdctl. */
export class SnapshotTool {
  readonly #etcdctl: string;
  readonly #etcdutl: string;

  private constructor(etcdctl: string, etcdutl: string) {
    this.#etcdctl = etcdctl;
    this.#etcdutl = etcdutl;
  }

  /** @throws Error where etcdctl is not installed beside etcd. */
  static async of({ etcd, etcdctl }: EtcdBinaries): Promise<SnapshotTool> {
    if (etcdctl === undefined) {
      throw new Error(`There is no etcdctl beside ${etcd}, which saves and restores snapshots.`);
    }
    const etcdutl = join(dirname(etcdctl), "etcdutl");
    const hasUtl = await access(etcdutl).then(
      () => true,
      () => false,
    );
    return new SnapshotTool(etcdctl, hasUtl ? etcdutl : etcdctl);
  }

  /** `url` is a member's, for clients. */
  async save(url: string, path: string): Promise<Snapshot> {
    await run(this.#etcdctl, [`--endpoints=${url}`, "snapshot", "save", path], { timeout });
    const status = ["snapshot", "status", path, "--write-out=json"];
    const { stdout } = await run(this.#etcdutl, status, { timeout });
    const { revision } = JSON.parse(stdout) as { readonly revision: number };
    return { path, revision };
  }

  /** Makes the data that `member` starts with. */
  async restore(
    snapshot: Snapshot,
    member: EtcdMember,
    members: readonly EtcdMember[],
  ): Promise<void> {
    await run(
      this.#etcdutl,
      [
        ...["snapshot", "restore", snapshot.path],
        `--data-dir=${member.dataFolder}`,
        `--name=${member.name}`,
        `--initial-cluster=${initialCluster(members)}`,
        `--initial-advertise-peer-urls=${member.peers.url}`,
      ],
      { timeout },
    );
  }
}
