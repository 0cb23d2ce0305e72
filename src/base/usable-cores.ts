import { availableParallelism } from "node:os";
import { join } from "node:path";
import { type CgroupFiles, controlGroups, kernelText } from "./control-groups.ts";

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
