import { readFileSync } from "node:fs";
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
