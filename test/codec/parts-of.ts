/** What masks leave of a parsed value: an oracle. A path is a list of keys. */
export function partsOf(value: unknown, paths: readonly (readonly string[])[]): unknown {
  const kept: [string, unknown][] = [];
  if (typeof value !== "object" || value === null) return {};
  for (const [key, member] of Object.entries(value)) {
    const below = paths.filter(([first]) => first === key).map((path) => path.slice(1));
    if (below.length === 0) continue;
    const isObject = typeof member === "object" && member !== null && !Array.isArray(member);
    if (below.some((path) => path.length === 0)) kept.push([key, member]);
    else if (isObject) kept.push([key, partsOf(member, below)]);
  }
  return Object.fromEntries(kept);
}
