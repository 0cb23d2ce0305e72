import { setFlagsFromString } from "node:v8";
import { runInNewContext } from "node:vm";

setFlagsFromString("--expose-gc");
const collectGarbage = runInNewContext("gc") as () => void;

/** Number of measurements. Other work of the engine affects some of them. */
const measurements = 5;

/** How many bytes of memory each of `count` things takes that `make` makes, without what they share: the median. */
export function heapOfEach(count: number, make: (i: number) => unknown): number {
  // Memory that only the first ones cause, such as code, does not count.
  for (let i = 0; i < count; i++) make(i);
  const measured = Array.from({ length: measurements }, () => {
    const before = heldBytes();
    const kept = Array.from({ length: count }, (_, i) => make(i));
    const after = heldBytes();
    return (after - before) / kept.length - 8;
  });
  return measured.sort((a, b) => a - b)[Math.floor(measurements / 2)] ?? Number.NaN;
}

/**
 * The live memory of this thread, in bytes, without garbage: the heap, and what is outside of it, as buffers, strings
 * from about 1 MB on and the values of HTTP/2 headers are.
 */
export function heldBytes(): number {
  collectGarbage();
  collectGarbage();
  const { heapUsed, external } = process.memoryUsage();
  return heapUsed + external;
}
