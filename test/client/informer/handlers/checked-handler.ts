import { DeletedFinalStateUnknown } from "../../../../src/client/informer/delta-fifo/delta-fifo.ts";
import type {
  EventHandler,
  EventHandlerRegistration,
} from "../../../../src/client/informer/handlers/handler-registration.ts";
import type { ReadonlyIndexer } from "../../../../src/client/informer/indexer/indexer.ts";
import type { TypedObject } from "../../../../src/client/values/typed-object.ts";

export type Manner = "quick" | "slow" | "failing";

/** A handler that records its calls, and checks that each follows from those before. */
export class CheckedHandler implements EventHandler<string> {
  readonly manner: Manner;
  /** The objects that it knows. */
  readonly knows = new Map<string, TypedObject<string>>();
  readonly faults: string[] = [];
  /** Its calls, without resyncs. */
  readonly recorded: string[] = [];
  registration: EventHandlerRegistration | undefined;
  #call: PromiseWithResolvers<void> | undefined;
  #isRemoved = false;

  constructor(manner: Manner) {
    this.manner = manner;
  }

  get isBusy(): boolean {
    return this.#call !== undefined;
  }

  onAdd(object: TypedObject<string>, isInInitialList: boolean): unknown {
    const { key } = object;
    if (this.knows.has(key)) this.faults.push(`added ${key} twice`);
    if (isInInitialList && this.registration?.hasSynced === true) {
      this.faults.push(`${key} is of the first state after all that were`);
    }
    this.knows.set(key, object);
    this.recorded.push(`ADDED ${key}@${object.modRevision}`);
    return this.#begin(`added ${key}`);
  }

  onUpdate(before: TypedObject<string>, object: TypedObject<string>): unknown {
    const { key } = object;
    if (this.knows.get(key) !== before) this.faults.push(`${key} was not known as it is said`);
    if (object.modRevision < before.modRevision) this.faults.push(`${key} became older`);
    this.knows.set(key, object);
    if (before !== object) this.recorded.push(`MODIFIED ${key}@${object.modRevision}`);
    return this.#begin(`updated ${key}`);
  }

  onDelete(deleted: TypedObject<string> | DeletedFinalStateUnknown<TypedObject<string>>): unknown {
    const { key } = deleted;
    const known = this.knows.get(key);
    const last = deleted instanceof DeletedFinalStateUnknown ? deleted.object : deleted;
    if (known === undefined) this.faults.push(`deleted ${key}, which was not there`);
    else if (last.modRevision < known.modRevision) this.faults.push(`${key} was older as it went`);
    this.knows.delete(key);
    this.recorded.push(`DELETED ${key}@${last.modRevision}`);
    return this.#begin(`deleted ${key}`);
  }

  /** Ends the call in progress. */
  release(): void {
    this.#call?.resolve();
    this.#call = undefined;
  }

  remove(): void {
    void this.registration?.remove();
    this.#isRemoved = true;
  }

  /** The differences between the objects that it knows and the existing ones. */
  differences(indexer: ReadonlyIndexer<TypedObject<string>>): string[] {
    const keys = new Set([...this.knows.keys(), ...indexer.keys()]);
    return [...keys].filter((key) => this.knows.get(key) !== indexer.get(key));
  }

  #begin(what: string): Promise<void> | undefined {
    if (this.#isRemoved) this.faults.push(`${what} after it was removed`);
    if (this.isBusy) this.faults.push(`${what} while it was called`);
    if (this.manner === "failing") throw new Error(what);
    if (this.manner === "quick") return undefined;
    this.#call = Promise.withResolvers();
    return this.#call.promise;
  }
}
