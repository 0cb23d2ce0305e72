import { cpuSeconds } from "../../../bench/process-usage.ts";

/** Groups of the soak's processes. */
export const processGroups = [
  "replica",
  "decoy",
  "otherReplicas",
  "etcd",
  "hostile",
  "honest",
] as const;

/** The measured replica, the decoy, the two other replicas, etcd's members, the hostile client, all honest clients. */
export type ProcessGroup = (typeof processGroups)[number];

/** CPU time of each group in a phase, as a share of one core. */
export type CpuShares = Readonly<Record<ProcessGroup, number>>;

/** Ids of the processes of each group; undefined for one that does not run. */
export type ProcessIds = Readonly<Record<ProcessGroup, readonly (number | undefined)[]>>;

/** CPU time of each group so far, in seconds. The processes must live until the next reading. */
export function cpuOf(ids: ProcessIds): Record<ProcessGroup, number> {
  return eachGroup((group) =>
    ids[group].reduce<number>((sum, pid) => sum + (pid === undefined ? 0 : cpuSeconds(pid)), 0),
  );
}

/** What was used between two readings that are `seconds` apart. */
export function cpuShares(
  before: Readonly<Record<ProcessGroup, number>>,
  after: Readonly<Record<ProcessGroup, number>>,
  seconds: number,
): CpuShares {
  return eachGroup((group) => (after[group] - before[group]) / seconds);
}

/** Of all groups together. */
export function totalCpu(shares: CpuShares): number {
  return processGroups.reduce((sum, group) => sum + shares[group], 0);
}

function eachGroup(read: (group: ProcessGroup) => number): Record<ProcessGroup, number> {
  return Object.fromEntries(processGroups.map((group) => [group, read(group)])) as Record<
    ProcessGroup,
    number
  >;
}
