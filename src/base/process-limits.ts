import { readFileSync } from "node:fs";
import { availableParallelism } from "node:os";
import { dirname, join } from "node:path";

/** Where the kernel has the control groups, and which ones this process is in. */
export interface CgroupFiles {
  /** Default: "/sys/fs/cgroup". */
  readonly root?: string;
  /** Default: "/proc/self/cgroup". */
  readonly self?: string;
}

/** A control group of this process. */
interface ControlGroup {
  readonly folder: string;
  /** Of the interface of its files. */
  readonly version: 1 | 2;
}

/** The control groups of a controller, such as "memory", that this process is in, with all groups around them. */
export function* controlGroups(
  controller: string,
  { root = "/sys/fs/cgroup", self = "/proc/self/cgroup" }: CgroupFiles = {},
): Generator<ControlGroup> {
  for (const line of (kernelText(self) ?? "").split("\n")) {
    const [, controllers, path] = /^\d+:([^:]*):(\/.*)$/.exec(line) ?? [];
    if (controllers === undefined || path === undefined) continue;
    const isVersion2 = controllers === "";
    if (!isVersion2 && !controllers.split(",").includes(controller)) continue;
    const top = isVersion2 ? root : join(root, controller);
    // In a container the path may be that of the host, and the container's own group is at the top.
    for (let group = path; ; group = dirname(group)) {
      yield { folder: join(top, group), version: isVersion2 ? 2 : 1 };
      if (group === "/") break;
    }
  }
}

/** The content of a file; undefined if it can't be read. The kernel makes these from memory, without waiting. */
export function kernelText(path: string): string | undefined {
  try {
    return readFileSync(path, "utf8");
  } catch {
    return undefined;
  }
}

/**
 * Number of cores that this process can use: those of its CPU affinity, or as many as the CPU time that its control groups
 * allow (`cpu.max`, in version 1 `cpu.cfs_quota_us`), rounded up. At least 1.
 */
export function usableCores(files: CgroupFiles = {}, ofMachine = availableParallelism()): number {
  let cores = ofMachine;
  for (const { folder, version } of controlGroups("cpu", files)) {
    const [quota, period] =
      version === 2
        ? (kernelText(join(folder, "cpu.max")) ?? "").split(" ")
        : ["cpu.cfs_quota_us", "cpu.cfs_period_us"].map((name) => kernelText(join(folder, name)));
    const share = Number.parseInt(quota ?? "", 10) / Number.parseInt(period ?? "", 10);
    // Without a quota the file has "max", in version 1 -1.
    if (share > 0) cores = Math.min(cores, Math.ceil(share));
  }
  return Math.max(1, cores);
}

/**
 * Files that a process keeps for all but its clients' connections: 256 connections of the admin port, 256 to etcd for
 * calls of its API, and its own files, watches and logs.
 */
const reserved = 640;

/** `openFileLimit` of this process. */
export function ownOpenFileLimit(): number | undefined {
  return openFileLimit(kernelText("/proc/self/limits") ?? "");
}

/**
 * The most files, connections included, that a process can have open, which is the hard limit: Node.js raises the soft one
 * to it. `limits` is the kernel's text with its limits. Undefined: there is no limit, or it is not known.
 */
export function openFileLimit(limits: string): number | undefined {
  const [, hard] = /^Max open files +\S+ +(\d+)/m.exec(limits) ?? [];
  return hard === undefined ? undefined : Number(hard);
}

/**
 * The number of `connections` that can be accepted with this limit of open files, so that the reserve is left for
 * everything else. Of a small limit half is reserved.
 */
export function connectionsWithin(openFiles: number, connections: number): number {
  const usable = Math.max(openFiles - reserved, Math.floor(openFiles / 2));
  return Math.min(connections, usable);
}
