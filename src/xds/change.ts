import type { DiscoveryRequest } from "./request.ts";
import { wildcard } from "./types.ts";

/** What a request changes about what a stream asks for. */
export interface Change {
  readonly added: readonly string[];
  readonly removed: readonly string[];
  /** Whether it asks for all from now on; undefined: as before. */
  readonly all: boolean | undefined;
  /** Whether it asks for all because no request has named anything. */
  readonly isLegacy?: boolean;
}

/** What a stream asks for of a type, before a request. */
export interface Asking {
  /** The names are its keys. */
  readonly names: ReadonlyMap<string, unknown>;
  readonly isOfAll: boolean;
  /** Whether it asks for all because no request has named anything. */
  readonly isLegacy: boolean;
  /** Whether there was a request. */
  readonly hasBegun: boolean;
}

const nothing: readonly never[] = [];

/**
 * What a request of the state-of-the-world protocol changes; undefined: nothing. `isWhole`: a first request without names asks for
 * all.
 */
export function stateChange(
  { names }: DiscoveryRequest,
  asking: Asking,
  isWhole: boolean,
): Change | undefined {
  if (names.length === 0) {
    if (!asking.hasBegun) return withoutNames(isWhole);
    // It has never named any, so this is no unsubscription.
    if (asking.isLegacy || (asking.names.size === 0 && !asking.isOfAll)) return undefined;
  }
  let known = 0;
  let isOfAll = false;
  let added: string[] | undefined;
  for (const name of names) {
    if (name === wildcard) isOfAll = true;
    else if (asking.names.has(name)) known++;
    else if (added === undefined) added = [name];
    else added.push(name);
  }
  const all = isOfAll === asking.isOfAll ? undefined : isOfAll;
  // Names that are given twice are rare, and change nothing.
  const isSame = added === undefined && all === undefined && known === asking.names.size;
  // Once "*" is named, a request without names asks for nothing.
  const endsLegacy = isOfAll && asking.isLegacy;
  if (isSame && asking.hasBegun && !endsLegacy) return undefined;
  const wanted = new Set(names);
  const removed = [...asking.names.keys()].filter((name) => !wanted.has(name));
  return { added: added ?? nothing, removed, all };
}

/** What a request of the delta protocol changes; undefined: nothing. `isWhole`: as above. */
export function deltaChange(
  { names, removed }: DiscoveryRequest,
  { hasBegun }: Asking,
  isWhole: boolean,
): Change | undefined {
  if (!hasBegun && names.length === 0) return withoutNames(isWhole);
  if (names.length === 0 && removed.length === 0) return undefined;
  let all: boolean | undefined;
  if (names.includes(wildcard)) all = true;
  else if (removed.includes(wildcard)) all = false;
  return {
    added: names.filter((name) => name !== wildcard),
    removed: removed.filter((name) => name !== wildcard),
    all,
  };
}

function withoutNames(isWhole: boolean): Change {
  return { added: nothing, removed: nothing, all: isWhole || undefined, isLegacy: isWhole };
}
