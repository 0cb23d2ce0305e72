import type { TypeName } from "../../../src/xds/types.ts";

/** The types that the clients of these tests follow. */
export type FollowedType = Exclude<TypeName, "sds">;

/** A resource of a type: `TYPE NAME`. */
export type ResourceId = `${FollowedType} ${string}`;

export function idOf(type: FollowedType, name: string): ResourceId {
  return `${type} ${name}`;
}

/** The type and the name of a resource. */
export function partsOf(id: ResourceId): [type: FollowedType, name: string] {
  const space = id.indexOf(" ");
  return [id.slice(0, space) as FollowedType, id.slice(space + 1)];
}

/**
 * What each resource consists of. Of a stored type: its bytes, which no two writes have in common. Of an assignment: the addresses
 * of its endpoints, which may come back. A resource without a content does not exist.
 */
export type State = ReadonlyMap<ResourceId, string>;

/** All states of the store, the oldest first. Each transaction makes one. */
export class StoredHistory {
  readonly #states: State[] = [new Map()];
  readonly #versions = new Map<string, string>();

  get last(): State {
    return this.#states.at(-1) as State;
  }

  /** `changes`: undefined deletes. */
  write(changes: ReadonlyMap<ResourceId, string | undefined>): void {
    const state = new Map(this.last);
    for (const [id, content] of changes) {
      if (content === undefined) state.delete(id);
      else state.set(id, content);
    }
    this.#states.push(state);
  }

  /** These contents have this version. */
  written(contents: Iterable<string | undefined>, version: string): void {
    for (const content of contents) if (content !== undefined) this.#versions.set(content, version);
  }

  /** The version of what is stored. */
  versionOf(content: string): string | undefined {
    return this.#versions.get(content);
  }

  /** The place of the first state, from a place on, that `has` is true of; undefined: no such state. */
  find(from: number, has: (state: State) => boolean): number | undefined {
    const found = this.#states.findIndex((state, at) => at >= from && has(state));
    return found < 0 ? undefined : found;
  }
}
