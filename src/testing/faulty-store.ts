import { toError } from "../base/errors.ts";
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
  readonly leases: Leases;

  /** `check` throws if the store is lost. */
  constructor(store: Store, check: () => void, resources: ReadonlyMap<string, TestResource>) {
    this.#store = store;
    this.#check = check;
    this.#resources = resources;
    this.leases = losable(store.leases, check);
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

  deletePrefix(request: DeletePrefixRequest): Promise<DeletePrefixResult> {
    const remove = async (): Promise<DeletePrefixResult> => {
      this.#check();
      return this.#store.deletePrefix(request);
    };
    return this.#resources.get(request.resource)?.call(request.signal, remove) ?? remove();
  }

  close(): Promise<void> {
    return this.#store.close();
  }
}

/** Leases that are unavailable while `check` throws. They end in their time meanwhile. */
function losable(leases: Leases, check: () => void): Leases {
  return {
    grant: async (...call) => {
      check();
      return leases.grant(...call);
    },
    keepAlive: async (ids, signal) => {
      try {
        check();
      } catch (error) {
        // As the outcome of each, which leaves the stream open.
        return ids.map(() => toError(error));
      }
      return leases.keepAlive(ids, signal);
    },
    revoke: async (...call) => {
      check();
      return leases.revoke(...call);
    },
    timeToLive: async (...call) => {
      check();
      return leases.timeToLive(...call);
    },
  };
}
