import { type History, isWrite, type Operation, type Output } from "./history.ts";

/** A violation that a history has not had. */
export type Planted = (history: History) => History;

/** A read that returns what an earlier one had, although a write of its key ended between them. */
export const staleRead: Planted = (history) => {
  const { operations } = history;
  for (const read of operations.toReversed()) {
    const earlier = operations.find((each) => isOutdated(each, read, operations));
    if (earlier !== undefined) return withOutput(history, read, earlier.output);
  }
  throw new Error("No read of this history can be stale.");
};

/** An acknowledged write that is not in etcd at the end. */
export const lostWrite: Planted = (history) => {
  const last = history.operations.at(-1);
  const { after = [] } = last?.output ?? {};
  if (last?.output === undefined) throw new Error("The history does not end with a read.");
  // The newest: a write of unknown outcome may have deleted others.
  const newest = Math.max(...after.map(({ modRevision }) => modRevision));
  const others = after.filter(({ modRevision }) => modRevision !== newest);
  return withOutput(history, last, { ...last.output, after: others });
};

/** A write of unknown outcome that was never made, although it was read. */
export const readFromNowhere: Planted = (history) => {
  const read = history.operations.findLast(isReadWithObjects);
  const [first, ...others] = read?.output?.after ?? [];
  if (read?.output === undefined || first === undefined) throw new Error("Nothing was read.");
  const after = [{ ...first, value: '"nobody"' }, ...others];
  return withOutput(history, read, { ...read.output, after });
};

/** A refused write that was done: the history has its revision and not the write. */
export const refusedAndDone: Planted = (history) => {
  const { operations } = history;
  const read = new Set(
    operations
      .filter(isReadWithObjects)
      .flatMap(({ output }) => output?.after ?? [])
      .map(({ value }) => value),
  );
  // One that was read: a write of unknown outcome may have its revision, but not its value.
  const write = operations.find(
    ({ input, output }) => output?.succeeded && input.puts?.some(({ value }) => read.has(value)),
  );
  if (write === undefined) throw new Error("No acknowledged write was read.");
  return { ...history, operations: operations.filter((each) => each !== write) };
};

function isReadWithObjects({ input, output }: Operation): boolean {
  return !isWrite(input) && (output?.after ?? []).length > 0;
}

/** Whether `earlier` read the same range, and something was written there after it and before `read`. */
function isOutdated(earlier: Operation, read: Operation, all: readonly Operation[]): boolean {
  const { key, isPrefix } = read.input.range;
  const isSame = earlier.input.range.key === key && earlier.input.range.isPrefix === isPrefix;
  if (isWrite(read.input) || isWrite(earlier.input) || !isSame) return false;
  return all.some(
    ({ call, return: ended, input, output }) =>
      output?.succeeded &&
      input.puts?.some((put) => (isPrefix ? put.key.startsWith(key) : put.key === key)) &&
      call > earlier.return &&
      ended < read.call,
  );
}

function withOutput(history: History, of: Operation, output: Output | undefined): History {
  const operations = history.operations.map((each) => (each === of ? { ...of, output } : each));
  return { ...history, operations };
}
