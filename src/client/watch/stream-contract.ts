import { otherHistory } from "../../base/errors.ts";
import type { WatchRequest as WireRequest } from "../../wire/generated/watchfanout/v1/WatchRequest.ts";
import { broken } from "../calls/decode.ts";
import type { AtomicBatch } from "./client-calls.ts";

/**
 * What a server may send on a stream, by its request. A faulty server must not move a client back, or make it pass
 * over changes.
 */
export class StreamContract {
  readonly #request: WireRequest;
  /** The last resume point. */
  #revision: number;
  /** Empty if it is not known yet. */
  #historyId: string;
  /** Whether the initial state was requested and has not come. */
  #awaitsInitial: boolean;

  constructor(request: WireRequest) {
    this.#request = request;
    this.#revision = Number(request.after_revision ?? 0);
    this.#historyId = request.history_id ?? "";
    this.#awaitsInitial = request.send_initial_events === true;
  }

  /**
   * Throws HISTORY_CHANGED for another history than the requested one, and INTERNAL for: a resume point below the one
   * before; events that are not between the two, or not in order; other keys; an initial state that was not requested.
   */
  check({ revision, events, initial, historyId }: AtomicBatch): void {
    const { key, prefix } = this.#request;
    const known = this.#historyId;
    if (known !== "" && historyId !== known) throw otherHistory(known, historyId);
    if (initial && !this.#awaitsInitial) throw broken("an initial state that was not requested");
    if (revision < this.#revision) {
      throw broken(`the resume point ${revision} after ${this.#revision}`);
    }
    let last = initial ? 0 : this.#revision + 1;
    for (const { object } of events) {
      const { modRevision } = object;
      if (modRevision < last || modRevision > revision) {
        throw broken(`an event of revision ${modRevision} between ${last} and ${revision}`);
      }
      if (!initial) last = modRevision;
      if (key === undefined ? !object.key.startsWith(prefix ?? "") : object.key !== key) {
        throw broken(`an event of ${JSON.stringify(object.key)}, which was not requested`);
      }
    }
    this.#revision = revision;
    this.#historyId = historyId;
    if (initial) this.#awaitsInitial = false;
  }
}
