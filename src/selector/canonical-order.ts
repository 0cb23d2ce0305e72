interface Requirement {
  /** The same for every spelling of the same requirement, and for no other. */
  readonly canonical: string;
}

/** Each requirement once, in an order that does not depend on how the selector was written. */
export function inCanonicalOrder<T extends Requirement>(requirements: readonly T[]): T[] {
  const distinct = new Map(requirements.map((requirement) => [requirement.canonical, requirement]));
  const ordered = [...distinct].sort(([a], [b]) => (a < b ? -1 : 1));
  return ordered.map(([, requirement]) => requirement);
}
