import { AsyncLocalStorage } from "node:async_hooks";

/** A write that is completed. */
export interface OwnWrite {
  readonly revision: number;
  /** The history that the revision belongs to; empty if the server does not know it. */
  readonly historyId: string;
}

const observers = new AsyncLocalStorage<(write: OwnWrite) => void>();

/** Calls `work`, and `onWrite` after each write that any client makes for it, also asynchronously. */
export function observeWrites<Result>(
  onWrite: (write: OwnWrite) => void,
  work: () => Result,
): Result {
  return observers.run(onWrite, work);
}

/** To be called with the result of each write that a client has made. Returns it. */
export function written<Result extends OwnWrite>(result: Result): Result {
  const { revision, historyId } = result;
  observers.getStore()?.({ revision, historyId });
  return result;
}
