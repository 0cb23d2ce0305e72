import type { SeenObject } from "../guarantees/recording.ts";

/** One key, or all keys with a prefix. With `keys`: those, and `key` is empty. */
export interface Range {
  readonly key: string;
  readonly isPrefix: boolean;
  /** In order. */
  readonly keys?: readonly string[];
}

/** A condition on one key. A revision of 0: it does not exist. */
export type Compare = { readonly key: string } & (
  | { readonly exists: boolean }
  | { readonly modRevision: number }
  | { readonly createRevision: number }
  | { readonly value: string }
);

/** A call as a transaction: if all conditions hold, all writes are done, at one revision. */
export interface Input {
  /** The key has this mod_revision; 0: it does not exist. Default: no condition. */
  readonly condition?: { readonly key: string; readonly modRevision: number } | undefined;
  readonly puts?: readonly {
    readonly key: string;
    readonly value: string;
    /** The lease that it is attached to. */
    readonly lease?: string;
  }[];
  readonly deletes?: readonly string[];
  readonly compares?: readonly Compare[];
  /** Deletes all keys with this prefix. */
  readonly deletePrefix?: string;
  /** The request is applied once at most under this id. */
  readonly requestId?: string;
  readonly validateOnly?: boolean;
  /** Instead of all others: what is done with a lease. The store itself lets it expire. */
  readonly lease?: {
    readonly id: string;
    readonly what: "grant" | "keepAlive" | "revoke" | "expire";
  };
  /**
   * Instead of all others: what happens to the one lock of a history, which its fencing token names, or a write with its guard.
   */
  readonly lock?: { readonly what: "acquire" | "release" | "write"; readonly token: number };
  /** What the response contains. */
  readonly range: Range;
}

/** A response. What is absent was not in it. */
export interface Output {
  /** Whether the condition held. */
  readonly succeeded: boolean;
  /** The store's after the call. */
  readonly revision?: number;
  /** Of the key that did not fulfil the condition; 0: it does not exist. */
  readonly modRevision?: number;
  /** The objects of the range before the call, and after it. */
  readonly before?: readonly SeenObject[];
  readonly after?: readonly SeenObject[];
  /** What each compare has found. */
  readonly compares?: readonly { readonly held: boolean; readonly object?: SeenObject }[];
  /** How many objects were deleted. */
  readonly deleted?: number;
  /** The id was used for another request. */
  readonly isReused?: boolean;
  /** There is no such lease. */
  readonly hasNoLease?: boolean;
}

/** A call and its response. */
export interface Operation {
  readonly client: number;
  /** Positions in the order of all calls and returns. */
  readonly call: number;
  readonly return: number;
  readonly input: Input;
  /** Absent: the outcome is unknown. */
  readonly output?: Output | undefined;
}

/** Everything that wrote to a store which was empty at `revision`, and reads. */
export interface History {
  readonly revision: number;
  /** A request with an id that changes nothing takes no revision. In etcd the record of the id is a write. Default: false. */
  readonly idsTakeNoRevision?: boolean;
  readonly operations: readonly Operation[];
}

/** What a client knows of a call. "refused": nothing was written or read. */
export type Outcome = Output | "refused" | "unknown";

export function isWrite(input: Input): boolean {
  const { puts = [], deletes = [], deletePrefix, validateOnly, lease } = input;
  const writes = puts.length + deletes.length > 0 || deletePrefix !== undefined;
  return (writes && validateOnly !== true) || lease?.what === "revoke";
}

/** The operations of clients in one process, whose calls and returns have an order without clocks. */
export class HistoryRecorder {
  readonly operations: Operation[] = [];
  #position = 0;

  /** A place between those of calls and returns. */
  place(): number {
    return this.#position++;
  }

  async record(client: number, input: Input, call: () => Promise<Outcome>): Promise<Outcome> {
    const called = this.place();
    const outcome = await call();
    const operation = { client, call: called, return: this.place(), input };
    if (typeof outcome === "object") this.operations.push({ ...operation, output: outcome });
    // A refused write must not have an effect: the history is illegal if it had.
    else if (outcome === "unknown" && isWrite(input)) this.operations.push(operation);
    return outcome;
  }
}
