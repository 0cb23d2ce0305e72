import type { Attributes } from "./attributes.ts";

interface Requirement {
  /** Equal for all spellings of the same requirement, and only for these. */
  readonly canonical: string;
  /** Estimated memory in bytes. */
  readonly bytes: number;
}

/** Selects the objects that meet all requirements. Without requirements every object matches. */
export abstract class Selector<R extends Requirement> {
  /** Without duplicates, in canonical order: it does not depend on how the selector was written. */
  readonly requirements: readonly R[];

  constructor(requirements: readonly R[]) {
    const distinct = new Map(requirements.map((each) => [each.canonical, each]));
    const ordered = [...distinct].sort(([a], [b]) => (a < b ? -1 : 1));
    this.requirements = ordered.map(([, requirement]) => requirement);
  }

  /** A canonical text that can be parsed again. Not cached. */
  get canonical(): string {
    return this.requirements.map(({ canonical }) => canonical).join(",");
  }

  /** Whether every object matches, whatever its attributes. */
  get empty(): boolean {
    return this.requirements.length === 0;
  }

  /** Estimated memory in bytes. */
  get bytes(): number {
    return this.requirements.reduce((sum, { bytes }) => sum + bytes, this.indexBytes);
  }

  /** Estimated cost of matching one object, in requirements. */
  abstract get cost(): number;

  abstract matches(attributes: Attributes): boolean;

  /** Estimated memory of what matches without going through all requirements, in bytes. */
  protected abstract get indexBytes(): number;
}
