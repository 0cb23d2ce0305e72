import type {
  Compare,
  DeletePrefixRequest,
  ObjectName,
  TransactRequest,
} from "../../src/storage/store.ts";

/** An object as the model has it. Revisions are counted from the first write of the test. */
interface ModelObject {
  readonly value: string;
  readonly create: number;
  readonly mod: number;
  readonly version: number;
}

type State = ReadonlyMap<string, ModelObject>;

/** What a request does, as far as it does not depend on the store. */
export interface ModelOutcome {
  readonly succeeded: boolean;
  readonly revision: number;
  readonly objects: readonly (ModelObject | undefined)[];
  readonly previous: readonly (ModelObject | undefined)[];
  readonly held: readonly boolean[];
  readonly current: readonly (ModelObject | undefined)[];
  readonly deleted: number;
}

const nothing = { objects: [], previous: [], held: [], current: [], deleted: 0 };

/** The simplest store with transactions: a map of all objects, and one of all requests with an id. */
export class TransactionModel {
  state: State = new Map();
  revision = 0;
  readonly #executed = new Map<string, { fingerprint: string; outcome: ModelOutcome }>();

  /** `marks`: whether a request with an id always takes a revision, as in etcd, which stores the id. */
  readonly #marks: boolean;

  constructor(marks: boolean) {
    this.#marks = marks;
  }

  transact(request: TransactRequest, id: string | undefined): ModelOutcome | "REQUEST_ID_REUSED" {
    const { compares, operations, returnCurrent, returnPrevious, validateOnly } = request;
    const isRemembered = id !== undefined && validateOnly !== true && operations.length > 0;
    const fingerprint = JSON.stringify([compares.map(shown), operations.map(shown)]);
    const known = isRemembered ? this.#executed.get(id) : undefined;
    if (known !== undefined)
      return known.fingerprint === fingerprint ? known.outcome : "REQUEST_ID_REUSED";
    const current = compares.map((compare) => this.state.get(nameOf(compare)));
    const held = compares.map((compare, i) => holds(compare, current[i]));
    if (held.includes(false)) {
      const found = returnCurrent === true ? { held, current } : {};
      return { ...nothing, succeeded: false, revision: this.revision, ...found };
    }
    if (validateOnly === true) return { ...nothing, succeeded: true, revision: this.revision };
    const before = this.state;
    const state = new Map(before);
    const revision = this.revision + 1;
    for (const operation of operations) {
      const name = nameOf(operation);
      const old = state.get(name);
      if (operation.type === "delete") state.delete(name);
      else {
        state.set(name, {
          value: Buffer.from(operation.value).toString(),
          ...{ create: old?.create ?? revision, mod: revision, version: (old?.version ?? 0) + 1 },
        });
      }
    }
    const hasChanged = operations.some(
      (operation) => operation.type === "put" || before.has(nameOf(operation)),
    );
    if (hasChanged || (isRemembered && this.#marks)) this.revision = revision;
    this.state = state;
    const outcome: ModelOutcome = {
      ...{ ...nothing, succeeded: true, revision: this.revision },
      objects: operations.map((operation) => state.get(nameOf(operation))),
      previous: operations.map((operation) =>
        returnPrevious === true ? before.get(nameOf(operation)) : undefined,
      ),
    };
    if (isRemembered) this.#executed.set(id, { fingerprint, outcome });
    return outcome;
  }

  deletePrefix(
    { resource, prefix, validateOnly }: DeletePrefixRequest,
    id: string | undefined,
  ): ModelOutcome | "REQUEST_ID_REUSED" {
    const fingerprint = JSON.stringify([resource, prefix]);
    const known = id === undefined || validateOnly === true ? undefined : this.#executed.get(id);
    if (known !== undefined)
      return known.fingerprint === fingerprint ? known.outcome : "REQUEST_ID_REUSED";
    const begins = nameOf({ resource, key: prefix });
    const kept = [...this.state].filter(([name]) => !name.startsWith(begins));
    const deleted = this.state.size - kept.length;
    if (validateOnly !== true) {
      this.state = new Map(kept);
      if (deleted > 0 || (id !== undefined && this.#marks)) this.revision++;
    }
    const outcome = { ...nothing, succeeded: true, revision: this.revision, deleted };
    if (id !== undefined && validateOnly !== true) this.#executed.set(id, { fingerprint, outcome });
    return outcome;
  }
}

function nameOf({ resource, key }: ObjectName): string {
  return `${resource} ${key}`;
}

function shown(part: object): unknown {
  const value = "value" in part ? Buffer.from(part.value as Uint8Array).toString() : undefined;
  return { ...part, value };
}

function holds(compare: Compare, object: ModelObject | undefined): boolean {
  if ("exists" in compare) return (object !== undefined) === compare.exists;
  if ("modRevision" in compare) return (object?.mod ?? 0) === compare.modRevision;
  if ("createRevision" in compare) return (object?.create ?? 0) === compare.createRevision;
  return object?.value === Buffer.from(compare.value).toString();
}
