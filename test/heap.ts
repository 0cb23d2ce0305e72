import { setFlagsFromString } from "node:v8";
import { runInNewContext } from "node:vm";

setFlagsFromString("--expose-gc");
const collectGarbage = runInNewContext("gc") as () => void;

/** How many bytes of memory each of `count` things takes that `make` makes, without what they share. */
export function heapOfEach(count: number, make: (i: number) => unknown): number {
  // What only the first ones bring about, such as code, is none of theirs.
  for (let i = 0; i < count; i++) make(i);
  const before = heldBytes();
  const kept = Array.from({ length: count }, (_, i) => make(i));
  const after = heldBytes();
  return (after - before) / kept.length - 8;
}

/** What the process keeps, in bytes, of what is not garbage. */
export function heldBytes(): number {
  collectGarbage();
  collectGarbage();
  const { heapUsed, arrayBuffers } = process.memoryUsage();
  return heapUsed + arrayBuffers;
}
