import { randomUUID } from "node:crypto";
import type { IKeyValue } from "etcd3";
import type { Logger } from "pino";
import type { Clock } from "../../base/clock.ts";
import { hasReason, upstreamUnavailable, type WatchFanoutError } from "../../base/errors.ts";
import { abortable } from "../../base/wait.ts";
import type { DecodedRange } from "../wire/range-response.ts";
import { OwnKeys } from "./own-keys.ts";
import type { Compare, RangeRequest, RequestOp, TxnRequest, TxnResponse } from "./requests.ts";

/** The part of an EtcdClient that a marker needs. */
interface MarkerClient {
  readonly clock: Clock;
  readonly logger: Logger;
  range(request: RangeRequest, signal: AbortSignal | undefined): Promise<DecodedRange>;
  write(request: TxnRequest, lease: bigint, signal: AbortSignal | undefined): Promise<TxnResponse>;
}

/** Default key of the id in etcd. */
export const defaultHistoryKey = "/watchfanout/history";

/** The ids that this service writes: UUIDs of version 8, which begin with their generation. */
const ownPattern = /^([0-9a-f]{8})-([0-9a-f]{4})-8[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$/;

/** Accepted ids. This service writes UUIDs, but an operator may have written another one. */
const idPattern = /^[\x21-\x7e]{1,128}$/;

/** Minimum interval between attempts to replace an outdated id that etcd refuses, in milliseconds. */
const retryIntervalMs = 5_000;

/** Maximum number of outdated ids that are remembered. */
const maxOutdated = 64;

/**
 * The id of etcd's history: the value of one key in etcd.
 *
 * Everything else that etcd shows of itself (the cluster's id, the members' ids, the term) may be the same after a
 * restore from a snapshot. So the first replica that detects a restore writes a new id, and all replicas that read it
 * learn of the restore. If there is no id, a replica writes the first one. Of two concurrent writers one wins, and the
 * other uses the winner's id.
 *
 * A later restore, as from the same snapshot, may bring back an id that was replaced. It looks like an id that another
 * replica has just written, but has named another history. So each id has a higher generation than all that its writer
 * knows, and a replica replaces another id of no higher generation than it knows. An id that this service did not write
 * has no generation: of those a replica remembers which it has seen, and one that starts with such an id knows no generation.
 *
 * If the service's user may not read the key, it holds something else, or it does not exist and this service does not create it,
 * the id is empty. Then a replica detects a
 * restore only by a revision that contradicts it.
 */
export class HistoryMarker {
  readonly key: Buffer;
  /** This key, and what else is the service's own. */
  readonly own: OwnKeys;
  readonly #client: MarkerClient;
  readonly #isCreated: boolean;
  /** The id that was read or written last. */
  #newest = "";
  /** The highest generation of an id that was read or written. */
  #generation = 0;
  /** The ids before the newest, and itself if it is refuted; those that became outdated first come first. */
  readonly #outdated = new Set<string>();
  /** When etcd last refused to replace an id, in the clock's milliseconds. */
  #refusedAt = -Infinity;
  #isReported = false;
  #isReadable = false;

  /** @param isCreated whether the key is created where it does not exist */
  constructor(client: MarkerClient, key: string, isCreated: boolean) {
    this.#client = client;
    this.#isCreated = isCreated;
    this.key = Buffer.from(key);
    this.own = new OwnKeys(this.key);
  }

  /**
   * The id, linearizable; empty if it can't be read. Writes the first id, and tries to replace an outdated
   * one, at most once per interval.
   *
   * @throws UPSTREAM_UNAVAILABLE if etcd does not respond
   */
  read(signal: AbortSignal | undefined): Promise<string> {
    return this.#unlessRefused(async () => {
      const { kvs } = await this.#client.range({ key: this.key }, signal);
      const kv = kvs.at(0);
      if (kv === undefined) {
        return this.#isCreated ? this.#replace(undefined, signal) : this.#absent();
      }
      const id = kv.value.toString("latin1");
      // If this read was slow, the key holds another one, which this returns.
      if (this.#isOutdated(id) && this.#mayRetry()) return this.#replace(id, signal);
      return this.#learn(this.#idOf(id));
    });
  }

  /** As `read`, after the id has been replaced if it is `known`. */
  async renew(known: string, signal: AbortSignal | undefined): Promise<string> {
    const now = await this.read(signal);
    if (now === "" || now !== known) return now;
    const renewed = await this.#unlessRefused(() => this.#replace(known, signal));
    // etcd still has this id, but no caller may get it any more.
    if (renewed === "") this.#outdate(known);
    return renewed;
  }

  /** A condition of a transaction: the id is `known`. */
  isStill(known: string): Compare {
    return { result: "Equal", target: "Value", key: this.key, value: Buffer.from(known) };
  }

  /** A request that reads the id within a transaction. */
  get reading(): RequestOp {
    return { request_range: { key: this.key } };
  }

  /** Whether the last read of the key returned an id. */
  get isReadable(): boolean {
    return this.#isReadable;
  }

  /**
   * The id that `reading` returned; empty if it is invalid or the key does not exist. It may be one that was replaced:
   * then the transaction came before that, or etcd was restored.
   */
  idFrom(marker: IKeyValue | undefined): string {
    if (marker === undefined) return "";
    const id = marker.value.toString("latin1");
    return this.#isOutdated(id) && id !== this.#newest ? id : this.#idOf(id);
  }

  /** Whether the id may be `known`, without asking etcd. */
  mayBe(known: string): boolean {
    return idPattern.test(known) && !this.#isOutdated(known);
  }

  #isOutdated(id: string): boolean {
    if (this.#outdated.has(id)) return true;
    const generation = generationOf(id);
    return id !== this.#newest && generation > 0 && generation <= this.#generation;
  }

  #mayRetry(): boolean {
    return this.#client.clock.now() - this.#refusedAt >= retryIntervalMs;
  }

  #learn(id: string): string {
    if (id === "" || id === this.#newest) return id;
    if (this.#newest !== "") this.#outdate(this.#newest);
    this.#newest = id;
    this.#generation = Math.max(this.#generation, generationOf(id));
    return id;
  }

  #outdate(id: string): void {
    this.#outdated.add(id);
    if (this.#outdated.size <= maxOutdated) return;
    for (const oldest of this.#outdated) {
      this.#outdated.delete(oldest);
      return;
    }
  }

  /** Writes a new id if the key holds `known`, or does not exist; returns what the key holds then. */
  async #replace(known: string | undefined, signal: AbortSignal | undefined): Promise<string> {
    const id = idOfGeneration(Math.max(this.#generation, generationOf(known ?? "")) + 1);
    const absent: Compare = { result: "Equal", target: "Mod", key: this.key, mod_revision: 0 };
    const request = {
      compare: [known === undefined ? absent : this.isStill(known)],
      success: [{ request_put: { key: this.key, value: Buffer.from(id) } }],
      failure: [this.reading],
    };
    const response = await this.#write(request, signal);
    if (response.succeeded) {
      this.#isReported = false;
      this.#isReadable = true;
      this.#client.logger.info({ historyId: id, before: known }, "gave etcd's history an id");
      return this.#learn(id);
    }
    const theirs = response.responses[0]?.response_range?.kvs[0];
    if (theirs !== undefined) return this.#learn(this.#idOf(theirs.value.toString("latin1")));
    throw upstreamUnavailable(
      `${JSON.stringify(this.key.toString())} was deleted at this moment. It holds the id of etcd's ` +
        "history. Try again.",
    );
  }

  async #write(request: TxnRequest, signal: AbortSignal | undefined): Promise<TxnResponse> {
    try {
      return await abortable(this.#client.write(request, 0n, signal), signal);
    } catch (error) {
      if (isRefusal(error)) this.#refusedAt = this.#client.clock.now();
      if (!hasReason(error, "OUTCOME_UNKNOWN")) throw error;
      // The next read of the key shows whether it was written.
      throw upstreamUnavailable("etcd did not say which id its history has. Try again.", error);
    }
  }

  #idOf(id: string): string {
    if (!idPattern.test(id)) return this.#unknown("it holds something else");
    if (this.#isOutdated(id)) return "";
    this.#isReported = false;
    this.#isReadable = true;
    return id;
  }

  #absent(): string {
    this.#isReadable = false;
    if (!this.#isReported) {
      this.#isReported = true;
      this.#client.logger.info(
        { historyKey: this.key.toString() },
        "etcd's history has no id, and --etcd-history-create is off: only revisions show a restore of etcd",
      );
    }
    return "";
  }

  /** Returns an empty id if etcd refuses `operation`. */
  async #unlessRefused(operation: () => Promise<string>): Promise<string> {
    try {
      return await operation();
    } catch (error) {
      if (!isRefusal(error)) throw error;
      return this.#unknown(error.message);
    }
  }

  #unknown(why: string): string {
    this.#isReadable = false;
    if (!this.#isReported) {
      this.#isReported = true;
      this.#client.logger.warn(
        { historyKey: this.key.toString(), why },
        "the id of etcd's history can't be read or replaced, so some restores of etcd go unnoticed",
      );
    }
    return "";
  }
}

function isRefusal(error: unknown): error is WatchFanoutError {
  return hasReason(error, "UPSTREAM_DENIED") || hasReason(error, "STORAGE_FULL");
}

function idOfGeneration(generation: number): string {
  const digits = generation.toString(16).padStart(12, "0");
  return `${digits.slice(0, 8)}-${digits.slice(8)}-8${randomUUID().slice(15)}`;
}

/** 0 if this service did not write it. */
function generationOf(id: string): number {
  const [, high = "", low = ""] = ownPattern.exec(id) ?? [];
  return Number.parseInt(`0${high}${low}`, 16);
}
