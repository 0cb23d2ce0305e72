import { hasReason } from "../../base/errors.ts";
import { oneStep } from "../../base/event-loop-turns.ts";
import { Gate } from "../../base/gate.ts";
import { Turns } from "../../base/turns.ts";
import { keyText } from "../../model/key-bytes.ts";
import { StoredObject } from "../../model/object.ts";
import type { ListResult, RevisionRequirement } from "../../storage/storage.ts";
import { etcdErrors, toEtcdError } from "../protocol/errors.ts";
import {
  decode,
  type RangeRequest,
  type RequestOp,
  type TxnRequest,
} from "../protocol/requests.ts";
import type { ServedStore } from "../protocol/served-store.ts";
import { type HeldByCall, HeldObjects } from "./held-objects.ts";
import { isEmpty, keysOf } from "./key-interval.ts";
import { RangeSelection, type Selected } from "./range-selection.ts";
import { checkDelete, checkPut, checkRange, checkSize, checkTxn } from "./request-checks.ts";
import { encodeResponse, isPlain, type Part } from "./response-parts.ts";
import { maxObjects, type Outcome, operationsOf, type PastRanges, TxnRun } from "./txn-run.ts";

/** Number of objects that are read in one step. */
const pageSize = 1_000;

/** How often a read is begun whose revision was compacted before it was done. */
const maxAttempts = 3;

/** Size of objects above which a response is encoded alone, in bytes: until it is done there are copies of them. */
const encodedTogetherBytes = 1024 ** 2;

/** etcd's KV service: each method takes a request, and resolves to the response, or rejects. */
export class KvService {
  readonly #served: ServedStore;
  readonly #historyKey: string;
  readonly #turns: Turns;
  readonly #held = new HeldObjects();
  /** Large responses that are encoded. Those that wait are bounded by what all calls hold. */
  readonly #encoding = new Gate({ concurrent: 1 });

  /** `historyKey`: the key that is read as the id of the history. `turns`: what long requests wait for. */
  constructor(served: ServedStore, historyKey: Buffer, turns: Turns = new Turns(served.clock)) {
    this.#served = served;
    this.#historyKey = keyText(historyKey);
    this.#turns = turns;
  }

  async range(message: Buffer, signal: AbortSignal): Promise<Buffer> {
    const request = decode.range(message);
    checkRange(request);
    const held = this.#held.ofCall();
    try {
      const selected = await this.#select(request, held, signal);
      // Clients watch from this revision on, so it must not be newer than what they get.
      const header = this.#served.header(held.revision);
      return await this.#respond([header, { selected, keysOnly: request.keys_only }], held, signal);
    } finally {
      held.release();
    }
  }

  async put(message: Buffer, signal: AbortSignal): Promise<Buffer> {
    checkSize(message);
    const request = decode.put(message);
    checkPut(request);
    return this.#writeAlone((run) => run.put(request), signal);
  }

  async deleteRange(message: Buffer, signal: AbortSignal): Promise<Buffer> {
    checkSize(message);
    const request = decode.deleteRange(message);
    checkDelete(request);
    return this.#writeAlone((run) => run.deleteRange(request), signal);
  }

  async txn(message: Buffer, signal: AbortSignal): Promise<Buffer> {
    checkSize(message);
    const request = decode.txn(message);
    checkTxn(request);
    const past = new Map<RangeRequest, Selected | Error>();
    const held = this.#held.ofCall();
    try {
      for (const range of pastRangesOf(request)) {
        past.set(range, await this.#selectPast(range, held, signal));
      }
      if (!hasChange(request)) return await this.#read(request, past, held, signal);
      const write = (): Promise<Buffer> =>
        this.#write((run) => run.txn(request), past, held, signal);
      // One that reads many objects is executed in one step, but not in the same turn as others.
      return hasInterval(request)
        ? await this.#turns.run({}, oneStep(write), signal)
        : await write();
    } finally {
      held.release();
    }
  }

  async compact(message: Buffer): Promise<Buffer> {
    const revision = Number(decode.compact(message).revision);
    const served = this.#served;
    if (revision <= served.compacted) throw etcdErrors.compacted();
    if (revision > served.revision) throw etcdErrors.futureRevision();
    await served.compact(revision);
    return served.header();
  }

  async #writeAlone(execute: (run: TxnRun) => Outcome, signal: AbortSignal): Promise<Buffer> {
    const held = this.#held.ofCall();
    try {
      return await this.#write(execute, undefined, held, signal);
    } finally {
      held.release();
    }
  }

  async #write(
    execute: (run: TxnRun) => Outcome,
    past: PastRanges | undefined,
    held: HeldByCall,
    signal: AbortSignal,
  ): Promise<Buffer> {
    const { store } = this.#served;
    const { result } = await store.update((draft) =>
      execute(new TxnRun(draft, store.leases, held, past)),
    );
    const parts = [this.#served.header(result.revision), ...result.fields];
    try {
      return await this.#respond(parts, held, signal);
    } catch (error) {
      // What is written must not be answered as a write that was refused.
      if (hasReason(error, "OVERLOADED")) throw etcdErrors.outcomeUnknown();
      throw error;
    }
  }

  /**
   * Executes a transaction without changes: compares in one step, and reads at the revision of that in as many as it takes, as
   * a Range does.
   */
  async #read(
    request: TxnRequest,
    past: Map<RangeRequest, Selected | Error>,
    held: HeldByCall,
    signal: AbortSignal,
  ): Promise<Buffer> {
    const { store } = this.#served;
    for (let attempt = 1; ; attempt++) {
      const { result } = await store.update(
        (draft) => {
          const run = new TxnRun(draft, store.leases, held, past);
          return { run, chosen: run.choose(request), revision: draft.before };
        },
        { signal },
      );
      const { run, chosen, revision } = result;
      try {
        let seen = 0;
        for (const { request_range: range } of operationsOf(chosen)) {
          if (range === undefined || range.revision !== "0") continue;
          const selected = await this.#selectAt(range, { match: "EXACT", revision }, held, signal);
          seen += selected.count;
          if (seen > maxObjects) throw etcdErrors.tooManyOps();
          past.set(range, selected);
        }
        const { fields } = run.execute(chosen);
        return await this.#respond([this.#served.header(revision), ...fields], held, signal);
      } catch (error) {
        if (attempt === maxAttempts || !hasReason(error, "REVISION_TOO_OLD")) throw error;
      }
    }
  }

  /** Encodes a response: in time slices if it may be large. */
  async #respond(
    parts: readonly Part[],
    { bytes }: HeldByCall,
    signal: AbortSignal,
  ): Promise<Buffer> {
    if (isPlain(parts)) return Buffer.concat(parts);
    const encode = (): Promise<Buffer> => this.#turns.run({}, encodeResponse(parts), signal);
    if (bytes <= encodedTogetherBytes) return encode();
    return this.#encoding.run({}, { signal }, encode, bytes);
  }

  async #selectPast(
    request: RangeRequest,
    held: HeldByCall,
    signal: AbortSignal,
  ): Promise<Selected | Error> {
    // Only a range that is alone takes it for the newest one.
    if (Number(request.revision) < 0) return etcdErrors.compacted();
    try {
      return await this.#select(request, held, signal);
    } catch (error) {
      signal.throwIfAborted();
      return toEtcdError(error);
    }
  }

  /** The id of the history, if that is what is read. */
  #historyAt(key: string): StoredObject | undefined {
    if (key !== this.#historyKey) return undefined;
    return new StoredObject(key, Buffer.from(this.#served.store.historyId), 1, 1, 1, 0n);
  }

  async #select(request: RangeRequest, held: HeldByCall, signal: AbortSignal): Promise<Selected> {
    const revision = Number(request.revision);
    if (revision > 0 && revision < this.#served.compacted) throw etcdErrors.compacted();
    for (let attempt = 1; ; attempt++) {
      const at = { match: revision > 0 ? "EXACT" : "LINEARIZABLE", revision } as const;
      try {
        return await this.#selectAt(request, at, held, signal);
      } catch (error) {
        const isRepeatable = revision <= 0 && attempt < maxAttempts;
        if (!isRepeatable || !hasReason(error, "REVISION_TOO_OLD")) throw error;
      }
    }
  }

  async #selectAt(
    request: RangeRequest,
    at: RevisionRequirement,
    held: HeldByCall,
    signal: AbortSignal,
  ): Promise<Selected> {
    held.revision = this.#served.revision;
    const selection = new RangeSelection(request);
    const add = (object: StoredObject): void => {
      if (selection.add(object)) held.add(object.valueBytes);
    };
    const keys = keysOf(request.key, request.range_end);
    const { store } = this.#served;
    if ("key" in keys) {
      const { object } = await store.get(keys.key, at, undefined, signal);
      const found = object ?? this.#historyAt(keys.key);
      if (found !== undefined) add(found);
      return selection.finish();
    }
    if (isEmpty(keys)) {
      // The revision has to exist.
      store.resolve(at);
      return selection.finish();
    }
    let next: RevisionRequirement = at;
    for (let startAfter: string | undefined; ; ) {
      const bounds = { limit: pageSize, maxCounted: 0 };
      const page = { interval: keys, startAfter, ...bounds, at: next, signal };
      const read = (): Promise<ListResult> => store.range(page);
      // The first one at once: no later write is in it.
      const result = await (startAfter === undefined
        ? read()
        : this.#turns.run({}, oneStep(read), signal));
      for (const object of result.items) add(object);
      if (result.next === undefined) return selection.finish();
      startAfter = result.next;
      next = { match: "EXACT", revision: result.revision };
    }
  }
}

/** The ranges of a transaction that name a revision: their state does not change any more. */
function* pastRangesOf({ success, failure }: TxnRequest): Generator<RangeRequest, void, void> {
  for (const operation of [...success, ...failure] as RequestOp[]) {
    if (operation.request_txn) yield* pastRangesOf(operation.request_txn);
    const range = operation.request_range;
    if (range !== undefined && range.revision !== "0") yield range;
  }
}

/** Whether a transaction may put or delete something. */
function hasChange({ success, failure }: TxnRequest): boolean {
  return [...success, ...failure].some(
    ({ request_txn: txn, request_range: range }) =>
      range === undefined && (txn === undefined || hasChange(txn)),
  );
}

/** Whether a transaction may read or delete more keys than it names. */
function hasInterval({ success, failure }: TxnRequest): boolean {
  return [...success, ...failure].some((operation) => {
    const { request_txn: txn, request_range: range, request_delete_range: remove } = operation;
    if (txn !== undefined) return hasInterval(txn);
    return ((range ?? remove)?.range_end.length ?? 0) > 0;
  });
}
