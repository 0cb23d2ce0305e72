import { readFileSync } from "node:fs";
import { dirname, join } from "node:path";
import type { MemoryGauge, MemoryReading } from "./memory-gauge.ts";

/** The part of the group's limit that is used as ceiling: at the limit the kernel ends the process. */
const ceilingShare = 0.9;

/** Where the kernel has the control groups, and which ones this process is in. */
export interface CgroupFiles {
  /** Default: "/sys/fs/cgroup". */
  readonly root?: string;
  /** Default: "/proc/self/cgroup". */
  readonly self?: string;
}

/** The files of a control group with its memory, and a field of memory.stat. */
interface MemoryFiles {
  readonly limit: string;
  readonly usage: string;
  readonly inactive: string;
}

const version1: MemoryFiles = {
  limit: "memory.limit_in_bytes",
  usage: "memory.usage_in_bytes",
  inactive: "total_inactive_file",
};
const version2: MemoryFiles = {
  limit: "memory.max",
  usage: "memory.current",
  inactive: "inactive_file",
};

/** Version 1 has a number of this size for "no limit". */
const unlimited = 2 ** 60;

/**
 * Measures the memory of the control group that the process is in, without the inactive page cache, which the kernel
 * drops before it ends a process: what Kubernetes calls the working set.
 */
export class CgroupGauge implements MemoryGauge {
  readonly #folder: string;
  readonly #files: MemoryFiles;
  readonly #ceilingBytes: number;
  #measurement = 0;

  /** For `find`. */
  constructor(folder: string, files: MemoryFiles, limitBytes: number) {
    this.#folder = folder;
    this.#files = files;
    this.#ceilingBytes = limitBytes * ceilingShare;
  }

  /** The gauge of the group with the lowest limit, of those that the process is in; undefined if none has a limit. */
  static find({
    root = "/sys/fs/cgroup",
    self = "/proc/self/cgroup",
  }: CgroupFiles = {}): CgroupGauge | undefined {
    let found: CgroupGauge | undefined;
    let lowest = unlimited;
    for (const [folder, files] of groupsOf(root, textOf(self) ?? "")) {
      const limit = Number.parseInt(textOf(join(folder, files.limit)) ?? "", 10);
      if (!(limit > 0 && limit < lowest)) continue;
      lowest = limit;
      found = new CgroupGauge(folder, files, limit);
    }
    return found;
  }

  read(): MemoryReading | undefined {
    const usage = Number.parseInt(textOf(join(this.#folder, this.#files.usage)) ?? "", 10);
    if (!Number.isSafeInteger(usage)) return undefined;
    const stat = textOf(join(this.#folder, "memory.stat")) ?? "";
    const [, inactive = "0"] = new RegExp(`^${this.#files.inactive} (\\d+)$`, "m").exec(stat) ?? [];
    this.#measurement++;
    return {
      limit: "cgroup",
      usedBytes: Math.max(0, usage - Number(inactive)),
      ceilingBytes: this.#ceilingBytes,
      measurement: this.#measurement,
      countsGarbage: true,
    };
  }

  close(): void {}
}

/** The folders of the memory groups that a process is in, with all groups around them. */
function* groupsOf(root: string, self: string): Generator<readonly [string, MemoryFiles]> {
  for (const line of self.split("\n")) {
    const [, controllers, path] = /^\d+:([^:]*):(\/.*)$/.exec(line) ?? [];
    if (controllers === undefined || path === undefined) continue;
    const isVersion2 = controllers === "";
    if (!isVersion2 && !controllers.split(",").includes("memory")) continue;
    const top = isVersion2 ? root : join(root, "memory");
    const files = isVersion2 ? version2 : version1;
    // In a container the path may be that of the host, and the container's own group is at the top.
    for (let group = path; ; group = dirname(group)) {
      yield [join(top, group), files];
      if (group === "/") break;
    }
  }
}

/** The content of a file; undefined if it can't be read. The kernel makes these from memory, without waiting. */
function textOf(path: string): string | undefined {
  try {
    return readFileSync(path, "utf8");
  } catch {
    return undefined;
  }
}
