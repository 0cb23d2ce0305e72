import type { DiscoveryRequest } from "./request.ts";
import { wildcard } from "./types.ts";

/** What a request changes about what a stream asks for. */
export interface Change {
  readonly added: readonly string[];
  readonly removed: readonly string[];
  /** Whether it asks for all from now on; undefined: as before. */
  readonly all?: boolean | undefined;
  /** Whether no request has named anything yet. */
  readonly isUnnamed?: boolean;
}

/** What a stream asks for of a type, before a request. */
export interface Asking {
  /** The names are its keys. */
  readonly names: ReadonlyMap<string, unknown>;
  readonly isOfAll: boolean;
  /** The requests until now: none, some which have named nothing, or others. */
  readonly phase: "new" | "unnamed" | "named";
}

/**
 * What a request of the state-of-the-world protocol changes; undefined: nothing. `isWhole`: a first request without names asks for
 * all.
 */
export function stateChange(
  { names }: DiscoveryRequest,
  asking: Asking,
  isWhole: boolean,
): Change | undefined {
  // Until something is named, a request without names unsubscribes from nothing.
  if (names.length === 0 && asking.phase !== "named") return firstChange(asking, isWhole);
  let known = 0;
  let isOfAll = false;
  const added: string[] = [];
  for (const name of names) {
    if (name === wildcard) isOfAll = true;
    else if (asking.names.has(name)) known++;
    else added.push(name);
  }
  const all = isOfAll === asking.isOfAll ? undefined : isOfAll;
  // Names that are given twice are rare, and change nothing.
  const isSame = added.length === 0 && all === undefined && known === asking.names.size;
  if (isSame && asking.phase === "named") return undefined;
  const wanted = new Set(names);
  const removed = [...asking.names.keys()].filter((name) => !wanted.has(name));
  return { added, removed, all };
}

/** What a request of the delta protocol changes; undefined: nothing. `isWhole`: as above. */
export function deltaChange(
  { names, removed }: DiscoveryRequest,
  asking: Asking,
  isWhole: boolean,
): Change | undefined {
  if (names.length === 0) {
    if (asking.phase === "new") return firstChange(asking, isWhole);
    if (removed.length === 0) return undefined;
  }
  const isNamed = (name: string): boolean => name !== wildcard;
  let all: boolean | undefined;
  if (names.includes(wildcard)) all = true;
  else if (removed.includes(wildcard)) all = false;
  return { added: names.filter(isNamed), removed: removed.filter(isNamed), all };
}

/** What a request changes that names nothing, as all before it. */
function firstChange({ phase }: Asking, isWhole: boolean): Change | undefined {
  if (phase !== "new") return undefined;
  return { added: [], removed: [], all: isWhole || undefined, isUnnamed: true };
}
