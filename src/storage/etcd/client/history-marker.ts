import { randomUUID } from "node:crypto";
import type { IKeyValue } from "etcd3";
import type { Logger } from "pino";
import { abortable } from "../../../base/abort.ts";
import type { Clock } from "../../../base/clock.ts";
import { hasReason, upstreamUnavailable } from "../../../base/errors.ts";
import type { Compare, RangeRequest, RequestOp, TxnRequest, TxnResponse } from "./messages.ts";
import type { DecodedRange } from "./responses.ts";

/** What a marker needs of an EtcdClient. */
interface MarkerClient {
  readonly clock: Clock;
  readonly logger: Logger;
  range(request: RangeRequest, signal: AbortSignal | undefined): Promise<DecodedRange>;
  write(request: TxnRequest, lease: bigint, signal: AbortSignal | undefined): Promise<TxnResponse>;
}

/** The key in etcd that holds the id, unless another is configured. */
export const defaultHistoryKey = "/watchfanout/history";

/** What an id may look like: ours are UUIDs, but an operator may have put another. */
const idPattern = /^[\x21-\x7e]{1,128}$/;

/** How long after an id could not be replaced that is tried again at the soonest, in milliseconds. */
const retryIntervalMs = 5_000;

/**
 * The id of etcd's history, which is the value of one key in it.
 *
 * Whatever etcd shows of itself (its cluster's id, its members' ids, its term) may be the same after it
 * was restored from a snapshot. So whoever finds that revisions are no longer those they were writes
 * another id, and all who read it know. Whoever finds none writes the first. Of two who do so at once, one
 * wins and the other takes what the winner wrote.
 *
 * Where the service's user may not read the key, or the key holds something else, the id is empty: then
 * a restore is noticed only by those who meet a revision that contradicts it.
 */
export class HistoryMarker {
  readonly key: Buffer;
  readonly #client: MarkerClient;
  /** An id that was found to be no longer that of the history, and that could not be replaced. */
  #refuted: string | undefined;
  /** When replacing it was last tried, by the clock. */
  #triedAt = 0;
  #isReported = false;
  #isReadable = false;

  constructor(client: MarkerClient, key: string) {
    this.#client = client;
    this.key = Buffer.from(key);
  }

  /**
   * The id, linearizable; empty if it can't be known. Makes one if there is none, or, now and then, if
   * there still is one that has been refuted.
   *
   * @throws UPSTREAM_UNAVAILABLE if etcd does not answer
   */
  read(signal: AbortSignal | undefined): Promise<string> {
    return this.#unlessRefused(async () => {
      const { kvs } = await this.#client.range({ key: this.key }, signal);
      const [kv] = kvs;
      if (kv === undefined) return this.#replace(undefined, signal);
      const id = kv.value.toString("latin1");
      return id === this.#refuted && this.#mayRetry() ? this.#replace(id, signal) : this.#idOf(id);
    });
  }

  /** As `read`, after the id has been replaced if it is `known`. */
  async renew(known: string, signal: AbortSignal | undefined): Promise<string> {
    const now = await this.read(signal);
    if (now === "" || now !== known) return now;
    const renewed = await this.#unlessRefused(() => this.#replace(known, signal));
    // It still stands in etcd, but nobody may be told any more that it holds.
    if (renewed === "") {
      this.#refuted = known;
      this.#triedAt = this.#client.clock.now();
    }
    return renewed;
  }

  /** What makes a transaction fail unless the id is `known`. */
  isStill(known: string): Compare {
    return { result: "Equal", target: "Value", key: this.key, value: Buffer.from(known) };
  }

  /** What tells the id from within a transaction. */
  get reading(): RequestOp {
    return { request_range: { key: this.key } };
  }

  /** Whether the key has been read, and held an id the last time. */
  get isReadable(): boolean {
    return this.#isReadable;
  }

  /** A transaction with `reading` was refused, as it may have been for that. Until the key is read again, none has it. */
  wasRefused(): void {
    this.#isReadable = false;
  }

  /** The id that `reading` has told; empty if it is none, or there was no such key. */
  told(marker: IKeyValue | undefined): string {
    if (marker === undefined) return "";
    return this.#idOf(marker.value.toString("latin1"));
  }

  /** Whether the id may be `known`, as far as can be told without asking etcd. */
  mayBe(known: string): boolean {
    return idPattern.test(known) && known !== this.#refuted;
  }

  /** Whether it is time to try again to replace the refuted id, which whoever asks then does. */
  #mayRetry(): boolean {
    const now = this.#client.clock.now();
    if (now - this.#triedAt < retryIntervalMs) return false;
    this.#triedAt = now;
    return true;
  }

  /** Writes a new id where `known` stands, or nothing, and returns what then stands there. */
  async #replace(known: string | undefined, signal: AbortSignal | undefined): Promise<string> {
    const id = randomUUID();
    const absent: Compare = { result: "Equal", target: "Mod", key: this.key, mod_revision: 0 };
    const request = {
      compare: [known === undefined ? absent : this.isStill(known)],
      success: [{ request_put: { key: this.key, value: Buffer.from(id) } }],
      failure: [this.reading],
    };
    const answer = await this.#write(request, signal);
    if (answer.succeeded) {
      this.#isReported = false;
      this.#isReadable = true;
      this.#client.logger.info({ historyId: id, before: known }, "gave etcd's history an id");
      return id;
    }
    const theirs = answer.responses[0]?.response_range?.kvs[0];
    if (theirs !== undefined) return this.#idOf(theirs.value.toString("latin1"));
    throw upstreamUnavailable(
      `Someone has just deleted ${JSON.stringify(this.key.toString())}, which holds the id of etcd's ` +
        "history. Try again.",
    );
  }

  async #write(request: TxnRequest, signal: AbortSignal | undefined): Promise<TxnResponse> {
    try {
      return await abortable(this.#client.write(request, 0n, signal), signal);
    } catch (error) {
      if (!hasReason(error, "OUTCOME_UNKNOWN")) throw error;
      // Whether it was done shows when the key is read the next time.
      throw upstreamUnavailable("etcd did not say which id its history has. Try again.", error);
    }
  }

  #idOf(id: string): string {
    if (!idPattern.test(id)) return this.#unknown("it holds something else");
    // Never forgotten: who reads late may still see it after it was replaced.
    if (id === this.#refuted) return "";
    this.#isReported = false;
    this.#isReadable = true;
    return id;
  }

  /** Empty where etcd refuses what `operation` asks of it. */
  async #unlessRefused(operation: () => Promise<string>): Promise<string> {
    try {
      return await operation();
    } catch (error) {
      if (hasReason(error, "UPSTREAM_DENIED") || hasReason(error, "STORAGE_FULL")) {
        return this.#unknown(error.message);
      }
      throw error;
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
