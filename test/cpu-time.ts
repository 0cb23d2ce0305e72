/**
 * The CPU time that it takes, in milliseconds: the least of some tries. How busy the machine is makes little difference, other
 * than to the time that passes.
 */
export function leastCpuMs(run: () => void, tries: number): number {
  const times = Array.from({ length: tries }, () => {
    const before = process.cpuUsage();
    run();
    const { user, system } = process.cpuUsage(before);
    return (user + system) / 1_000;
  });
  return Math.min(...times);
}
