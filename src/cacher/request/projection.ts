import type { StoredObject } from "../../model/object.ts";
import type { RecentlyShown } from "./recently-shown.ts";

/** What of each object is sent, where that is made of its value: its attributes, or parts of the value. */
export class Projection {
  /** A short name, equal for projections of a resource that show the same, and for no others. */
  readonly canonical: string;
  /** Whether it is one of any number that callers can ask for. */
  readonly isMask: boolean;
  /** Estimated memory, in bytes. */
  readonly bytes: number;
  readonly #show: (object: StoredObject) => StoredObject;
  readonly #recent: RecentlyShown;

  /** `pathsLength`: the length of all paths of a mask, in UTF-16 units; 0: it is not a mask. */
  constructor(
    canonical: string,
    pathsLength: number,
    show: (object: StoredObject) => StoredObject,
    recent: RecentlyShown,
  ) {
    this.canonical = canonical;
    this.isMask = pathsLength > 0;
    // Each name of a path may be an entry in a map of its own.
    this.bytes = projectionBytes + memoryPerUnit * pathsLength;
    this.#show = show;
    this.#recent = recent;
  }

  /** The object as it is sent, at the same revision. */
  shown(object: StoredObject): StoredObject {
    return this.#show(object);
  }

  /** As `shown`, for an object of an event, which other watches are shown at about the same time. */
  shownInEvent(object: StoredObject): StoredObject {
    const { canonical } = this;
    const known = this.#recent.get(object, canonical);
    if (known !== undefined) return known;
    const shown = this.#show(object);
    this.#recent.add(object, canonical, shown);
    return shown;
  }

  /** Estimated cost of showing an object, as a number of requirements that are checked one by one. */
  costOf(object: StoredObject): number {
    return costPerObject + (object.valueBytes >>> 3);
  }
}

const projectionBytes = 400;
const memoryPerUnit = 64;
const costPerObject = 32;
