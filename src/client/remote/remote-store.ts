import type {
  Compare,
  DeletePrefixRequest,
  DeletePrefixResult,
  ObjectName,
  Operation,
  Store,
  StoreWrite,
  TransactRequest,
  TransactResult,
} from "../../storage/store.ts";
import type { TransactionOptions } from "../calls/options.ts";
import type { Operation as RemoteOperation } from "../calls/transaction.ts";
import type { ClientCalls } from "../watch/client-calls.ts";
import { type AliasedUpstream, HistoryAlias } from "./history-alias.ts";
import type { RemoteLeases } from "./remote-leases.ts";

/** Options of a RemoteStore. */
export interface RemoteStoreOptions {
  /** The client to use. It must be closed after the store. */
  readonly client: Pick<ClientCalls, "deletePrefix" | "transaction">;
  /** The names of all resources in the service, by those on this side. */
  readonly names: ReadonlyMap<string, string>;
  /** What the store shares with the storages of its resources. */
  readonly upstream: AliasedUpstream;
  readonly leases: RemoteLeases;
}

/**
 * What the resources of another watch-fanout share, as a Store: for a relay, which acts there with rights of its own once it has
 * checked its callers. A request with an id is sent again, to any server, when its answer was lost.
 */
export class RemoteStore implements Store {
  readonly #client: Pick<ClientCalls, "deletePrefix" | "transaction">;
  readonly #names: ReadonlyMap<string, string>;
  readonly #history: HistoryAlias;
  readonly leases: RemoteLeases;

  /** Sends nothing. */
  constructor({ client, names, upstream, leases }: RemoteStoreOptions) {
    this.#client = client;
    this.#names = names;
    this.leases = leases;
    this.#history = new HistoryAlias(upstream);
  }

  has(resource: string): boolean {
    return this.#names.has(resource);
  }

  /** Closes the leases; a client of the service is not closed with it. */
  async close(): Promise<void> {
    this.leases.close();
  }

  async transact(request: TransactRequest): Promise<TransactResult> {
    const { returnCurrent, returnPrevious } = request;
    const transaction = {
      compares: request.compares.map((compare): Compare => this.#named(compare)),
      operations: request.operations.map((operation) => this.#sent(operation)),
    };
    const options = { ...this.#options(request), returnCurrent, returnPrevious };
    const result = await this.#history.naming(this.#client.transaction(transaction, options));
    // A deletion without the object before it may have found none: then nothing was written.
    const hasWritten = result.results.some(
      ({ object, previous, previousLeftOut = false }) =>
        object !== undefined || previous !== undefined || previousLeftOut,
    );
    return this.#observed(result, hasWritten, request);
  }

  async deletePrefix(request: DeletePrefixRequest): Promise<DeletePrefixResult> {
    const { resource, prefix } = request;
    const options = { ...this.#options(request), everyKey: prefix === "" };
    const call = this.#client.deletePrefix(this.#nameOf(resource), prefix, options);
    const result = await this.#history.naming(call);
    return this.#observed(result, result.deleted > 0, request);
  }

  #options(request: TransactRequest | DeletePrefixRequest): TransactionOptions {
    const { validateOnly, requestId = "", historyId = "", via, signal } = request;
    return {
      ...{ validateOnly, requestId, via, signal },
      retryUnknown: requestId !== "",
      historyId: historyId === "" ? undefined : this.#history.atServer(historyId),
    };
  }

  #observed<T extends { readonly historyId: string; readonly revision: number }>(
    result: T,
    hasWritten: boolean,
    { requestId = "", validateOnly = false }: TransactRequest | DeletePrefixRequest,
  ): T & StoreWrite {
    const { historyId, revision } = result;
    // That of a request which the server remembers may be from before the call.
    const isNew = requestId === "";
    const revisionBefore = hasWritten && !validateOnly ? revision - 1 : revision;
    return {
      ...result,
      historyId: this.#history.observeWrite(historyId),
      ...(isNew ? { revisionBefore } : {}),
    };
  }

  #sent(operation: Operation): RemoteOperation {
    if (operation.type === "delete") return this.#named(operation);
    const { ttlSeconds, ...put } = operation;
    return {
      ...this.#named(put),
      ttlMs: ttlSeconds === undefined ? undefined : ttlSeconds * 1_000,
    };
  }

  #named<T extends ObjectName>(named: T): T {
    return { ...named, resource: this.#nameOf(named.resource) };
  }

  #nameOf(resource: string): string {
    return this.#names.get(resource) ?? resource;
  }
}
