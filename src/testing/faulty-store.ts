import type {
  DeletePrefixRequest,
  DeletePrefixResult,
  Leases,
  Store,
  TransactRequest,
  TransactResult,
} from "../storage/store.ts";
import type { TestResource } from "./test-resource.ts";

/** What the resources of a test service share, with the faults of each resource at its calls. */
export class FaultyStore implements Store {
  readonly #store: Store;
  readonly #check: () => void;
  readonly #resources: ReadonlyMap<string, TestResource>;

  /** `check` throws if the store is lost. */
  constructor(store: Store, check: () => void, resources: ReadonlyMap<string, TestResource>) {
    this.#store = store;
    this.#check = check;
    this.#resources = resources;
  }

  has(resource: string): boolean {
    return this.#store.has(resource);
  }

  /** The faults of all keys that it changes happen, one within the other. */
  transact(request: TransactRequest): Promise<TransactResult> {
    const { operations, signal } = request;
    let write = async (): Promise<TransactResult> => {
      this.#check();
      return this.#store.transact(request);
    };
    for (const operation of operations) {
      const resource = this.#resources.get(operation.resource);
      const inner = write;
      if (resource !== undefined) write = () => resource.write({ ...operation, signal }, inner);
    }
    return write();
  }

  async deletePrefix(request: DeletePrefixRequest): Promise<DeletePrefixResult> {
    this.#check();
    return this.#store.deletePrefix(request);
  }

  get leases(): Leases {
    return this.#store.leases;
  }

  close(): Promise<void> {
    return this.#store.close();
  }
}
