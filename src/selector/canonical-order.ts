interface Requirement {
  /** Equal for all spellings of the same requirement, and only for these. */
  readonly canonical: string;
}

/** Removes duplicates and sorts, so that the order does not depend on how the selector was written. */
export function inCanonicalOrder<T extends Requirement>(requirements: readonly T[]): T[] {
  const distinct = new Map(requirements.map((requirement) => [requirement.canonical, requirement]));
  const ordered = [...distinct].sort(([a], [b]) => (a < b ? -1 : 1));
  return ordered.map(([, requirement]) => requirement);
}
