import type { Clock } from "../../base/clock.ts";
import { errorOf, invalidRequest, objectNotFound, WatchFanoutError } from "../../base/errors.ts";
import { StreamBackoff } from "../../base/stream-backoff.ts";
import { Condition } from "../../base/wait.ts";
import type { WatchEvent } from "../../model/event.ts";
import { ClosedError } from "../calls/call-failure.ts";
import type { Interruption } from "../calls/options.ts";
import { DecodeFailure, decodeTyped, type TypedObject } from "../values/typed-object.ts";
import type { ValueCodec } from "../values/value-codec.ts";
import type { AtomicBatch, ClientCalls } from "../watch/client-calls.ts";
import { watchBackoff } from "../watch/resuming-watch.ts";

/** The options that all objects of a cache share. */
export interface WatchedObjectOptions<T> {
  readonly client: Pick<ClientCalls, "watch" | "reachability">;
  readonly resource: string;
  readonly codec: ValueCodec<T>;
  readonly isImmutable: (object: TypedObject<T>) => boolean;
  readonly syncTimeoutMs: number;
  readonly clock: Clock;
  readonly random: () => number;
  /** `onError` and `onInterruption` must not throw. */
  readonly onError: (error: Error, key: string) => void;
  readonly onInterruption: (interruption: Interruption, key: string) => void;
}

/**
 * One object and the watch that keeps it current. A watch that can't be resumed is started again. The last known
 * state is served until the new initial state arrives.
 */
export class WatchedObject<T> {
  readonly key: string;
  readonly #options: WatchedObjectOptions<T>;
  readonly #stopping = new AbortController();
  readonly #backoff: StreamBackoff;
  /** Number of references. */
  references = 0;
  /** Resolves when the watch has ended. */
  readonly ended: Promise<void>;
  /**
   * The state that is served: the object; undefined if it does not exist; a DecodeFailure if no value could be
   * decoded.
   */
  #state: TypedObject<T> | DecodeFailure | undefined;
  /** The revision of `#state`; undefined while nothing is known. */
  #revision: number | undefined;
  /** The last failure of the watch, for the error message of a `get` that times out. */
  #failure: WatchFanoutError | undefined;
  #immutable = false;
  /** For the calls of `get` that wait for the first state. Notified when it is known, or the object is released. */
  readonly #progress = new Condition();

  constructor(key: string, settings: WatchedObjectOptions<T>) {
    this.key = key;
    this.#options = settings;
    const { client, clock, random } = settings;
    const { reachability } = client;
    this.#backoff = new StreamBackoff({ bounds: watchBackoff, clock, random, reachability });
    this.ended = this.#run();
  }

  /** Whether the object is watched; false if it is immutable or was released. */
  get watching(): boolean {
    return !this.#stopping.signal.aborted;
  }

  /** Ends the watch, and fails every `get` that waits. Idempotent. */
  release(): void {
    this.#stopping.abort();
    this.#progress.notify();
  }

  /** See ObjectCache.get. */
  async get(signal: AbortSignal | undefined): Promise<TypedObject<T>> {
    signal?.throwIfAborted();
    if (this.#revision === undefined) await this.#untilKnown(signal);
    if (this.#revision === undefined) throw this.watching ? this.#notSynced() : this.#released();
    if (this.#state instanceof DecodeFailure) throw this.#undecodable(this.#state);
    if (this.#state === undefined) throw objectNotFound(this.key, this.#revision);
    return this.#state;
  }

  async #run(): Promise<void> {
    const { signal } = this.#stopping;
    while (!signal.aborted) {
      let failure: unknown;
      try {
        await this.#follow(signal);
      } catch (error) {
        if (signal.aborted) return;
        failure = error;
        this.#report(error);
        // A closed client stays closed.
        if (error instanceof ClosedError) this.release();
      }
      await this.#backoff.wait(this.#backoff.next(failure, 0), 0, signal);
    }
  }

  /** Applies the object's initial state and its changes. Throws if the watch can't be resumed. */
  async #follow(signal: AbortSignal): Promise<void> {
    const { client, resource } = this.#options;
    const batches = client.watch(resource, {
      scope: { key: this.key },
      sendInitialEvents: true,
      delivery: "LATEST_STATE",
      signal,
      onInterruption: (interruption) => {
        this.#failure = interruption.error;
        this.#options.onInterruption(interruption, this.key);
      },
    });
    for await (const batch of batches) {
      if (signal.aborted) return;
      this.#backoff.responded();
      this.#take(batch);
    }
  }

  #take({ revision, events, initial }: AtomicBatch): void {
    // Before the initial state, a batch says nothing about whether the object exists.
    if (this.#revision === undefined && !initial) return;
    // An initial state is complete: an object that is not in it does not exist.
    if (initial && events.length === 0) this.#state = undefined;
    for (const event of events) this.#apply(event);
    this.#revision = revision;
    this.#progress.notify();
    if (this.#immutable) this.#stopping.abort();
  }

  #apply(event: WatchEvent): void {
    const { codec, resource, onError } = this.#options;
    this.#immutable = false;
    if (event.type === "DELETED") {
      this.#state = undefined;
      return;
    }
    const decoded = decodeTyped(event.object, codec, resource);
    if (decoded instanceof DecodeFailure) {
      if (this.#state === undefined || this.#state instanceof DecodeFailure) this.#state = decoded;
      onError(decoded, this.key);
      return;
    }
    this.#state = decoded;
    this.#immutable = this.#isImmutable(decoded);
  }

  #isImmutable(object: TypedObject<T>): boolean {
    try {
      return this.#options.isImmutable(object);
    } catch (error) {
      this.#report(error);
      return false;
    }
  }

  #report(error: unknown): void {
    if (error instanceof WatchFanoutError) this.#failure = error;
    this.#options.onError(errorOf(error), this.key);
  }

  /** Resolves when the first state is known, after `syncTimeoutMs`, or when the object is released. */
  #untilKnown(signal: AbortSignal | undefined): Promise<void> {
    const { clock, syncTimeoutMs } = this.#options;
    const isOver = (): boolean => this.#revision !== undefined || !this.watching;
    const deadline = { clock, ms: syncTimeoutMs, expire: () => {} };
    return this.#progress.until(isOver, { signal, deadline });
  }

  #notSynced(): WatchFanoutError {
    const { resource, syncTimeoutMs } = this.#options;
    const why = this.#failure?.message ?? "The server has not sent its initial state yet.";
    return new WatchFanoutError(
      "NOT_READY",
      `Whether there is a ${JSON.stringify(this.key)} in ${resource} was not known within ${syncTimeoutMs} ms. ${why} The cache keeps trying: call get again.`,
      { cause: this.#failure },
    );
  }

  #undecodable(failure: DecodeFailure): WatchFanoutError {
    return new WatchFanoutError(
      "NOT_READY",
      `${failure.message} No earlier value could be decoded either. Write a valid value, or fix the codec.`,
      { cause: failure },
    );
  }

  #released(): WatchFanoutError {
    if (this.#failure instanceof ClosedError) return this.#failure;
    return invalidRequest(
      "key",
      `${JSON.stringify(this.key)} is no longer watched: its last reference was deleted, or the cache was closed, during this get.`,
    );
  }
}
