/** A write that is completed. */
export interface OwnWrite {
  readonly revision: number;
  /** The history that the revision belongs to; empty if the server does not know it. */
  readonly historyId: string;
}

type Observer = (write: OwnWrite) => void;

// Not by an import, which bundles for browsers can't resolve: there no write is observed.
const hooks = globalThis.process?.getBuiltinModule?.("node:async_hooks");
const observers = hooks && new hooks.AsyncLocalStorage<Observer>();

/** Calls `work`, and `onWrite` after each write that any client makes for it, also asynchronously. */
export function observeWrites<Result>(onWrite: Observer, work: () => Result): Result {
  return observers === undefined ? work() : observers.run(onWrite, work);
}

/** To be called with the result of each write that a client has made. Returns it. */
export function written<Result extends OwnWrite>(result: Result): Result {
  const { revision, historyId } = result;
  observers?.getStore()?.({ revision, historyId });
  return result;
}
