import { type Change, type SeenObject, type Sequence, stateAt, unitsOf } from "./recording.ts";

/*
 * Shards are a partition: what all of them have together, at one revision, is the whole, and no object is in two of them.
 * That needs no knowledge of the hash that decides which object is where.
 */

/** The revision of each object that a part has, by its key. */
export type Held = ReadonlyMap<string, number>;

export function heldBy(objects: readonly SeenObject[]): Held {
  return new Map(objects.map(({ key, modRevision }) => [key, modRevision]));
}

/**
 * What a client of EVERY_EVENT has at `revision`, that has applied the closed atomic batches of a sequence of streams, which
 * began with the state. Undefined: it began later.
 */
export function heldAt({ streams }: Sequence, revision: number): Held | undefined {
  const [first, ...later] = streams.flatMap(unitsOf);
  if (first?.initial !== true || first.revision > revision) return undefined;
  const held = new Map(heldBy(first.events.map(({ object }) => object)));
  for (const { type, object } of later.flatMap(({ events }) => events)) {
    if (object.modRevision > revision) continue;
    if (type === "DELETED") held.delete(object.key);
    else held.set(object.key, object.modRevision);
  }
  return held;
}

/** Each object of the whole is in exactly one part, and nothing else is. */
export function partition(parts: readonly Held[], whole: Held, revision: number): string[] {
  const keys = new Set([...whole.keys(), ...parts.flatMap((part) => [...part.keys()])]);
  return [...keys].flatMap((key) => {
    const found = parts.flatMap((part) => part.get(key) ?? []);
    const is = whole.get(key);
    if (is === undefined ? found.length === 0 : found.length === 1 && found[0] === is) return [];
    const has = `is ${found.length} times in the shards, of ${JSON.stringify(found)}`;
    return [`Partition: ${JSON.stringify(key)} ${has}, and stands as of ${is} at ${revision}`];
  });
}

/** The whole at `revision`. */
export function wholeAt(changes: readonly Change[], revision: number): Held {
  return heldBy([...stateAt(changes, revision).values()]);
}
