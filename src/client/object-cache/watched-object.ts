import { Backoff } from "../../base/backoff.ts";
import { type Clock, pause } from "../../base/clock.ts";
import { invalidRequest, objectNotFound, WatchFanoutError } from "../../base/errors.ts";
import type { WatchEvent } from "../../model/event.ts";
import { ClosedError } from "../calls/closed-error.ts";
import type { Interruption } from "../calls/options.ts";
import { DecodeFailure, decodeTyped, type TypedObject } from "../values/typed-object.ts";
import type { ValueCodec } from "../values/value-codec.ts";
import type { AtomicBatch } from "../watch/batch-assembler.ts";
import type { ClientCalls } from "../watch/client-calls.ts";

/** What all objects of a cache have in common. */
export interface WatchedObjectOptions<T> {
  readonly client: Pick<ClientCalls, "watch">;
  readonly resource: string;
  readonly codec: ValueCodec<T>;
  readonly isImmutable: (object: TypedObject<T>) => boolean;
  readonly syncTimeoutMs: number;
  readonly clock: Clock;
  readonly random: () => number;
  /** Neither throws. */
  readonly onError: (error: Error, key: string) => void;
  readonly onInterruption: (interruption: Interruption, key: string) => void;
}

const backoffBounds = { initialMs: 200, maxMs: 30_000 };

/**
 * One object and the watch that keeps it current. A watch that can't go on where it was cut off begins anew,
 * and until its initial state has come the last known one is served.
 */
export class WatchedObject<T> {
  readonly key: string;
  readonly #options: WatchedObjectOptions<T>;
  readonly #stopping = new AbortController();
  readonly #backoff: Backoff;
  /** How many references there are to it. */
  references = 0;
  /** Resolves once the watch has ended and nothing is left of it. */
  readonly ended: Promise<void>;
  /** What is served: the object; undefined: there is none; a DecodeFailure: none that could be decoded. */
  #state: TypedObject<T> | DecodeFailure | undefined;
  /** Up to where that is true; undefined: nothing is known yet. */
  #revision: number | undefined;
  /** Why the watch broke last: what whoever has waited in vain for a first state is told. */
  #failure: WatchFanoutError | undefined;
  #immutable = false;
  /** Whoever waits for something to be known. Called once it is, or nothing will be any more. */
  readonly #waiting = new Set<() => void>();

  constructor(key: string, settings: WatchedObjectOptions<T>) {
    this.key = key;
    this.#options = settings;
    this.#backoff = new Backoff(backoffBounds, settings.random);
    this.ended = this.#run();
  }

  /** Whether the object is still followed, rather than immutable or given up. */
  get watching(): boolean {
    return !this.#stopping.signal.aborted;
  }

  /** Gives the object up, and fails whoever waits for it. Harmless when called twice. */
  release(): void {
    this.#stopping.abort();
    this.#wake();
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
    const { clock } = this.#options;
    const { signal } = this.#stopping;
    while (!signal.aborted) {
      try {
        await this.#follow(signal);
      } catch (error) {
        if (signal.aborted) return;
        this.#report(error);
        // It would be so for ever.
        if (error instanceof ClosedError) this.release();
      }
      await pause(clock, this.#backoff.next(), signal);
    }
  }

  /** Takes in the object as it is and what becomes of it. Throws why only a new watch helps. */
  async #follow(signal: AbortSignal): Promise<void> {
    const { client, resource } = this.#options;
    const units = client.watch(resource, {
      scope: { key: this.key },
      sendInitialEvents: true,
      delivery: "LATEST_STATE",
      signal,
      onInterruption: (interruption) => {
        this.#failure = interruption.error;
        this.#options.onInterruption(interruption, this.key);
      },
    });
    for await (const batch of units) {
      if (signal.aborted) return;
      this.#take(batch);
    }
  }

  #take({ revision, events, initial }: AtomicBatch): void {
    // Without an initial state nothing is said about what stands.
    if (this.#revision === undefined && !initial) return;
    // It says all there is, so that what it does not have is gone.
    if (initial && events.length === 0) this.#state = undefined;
    for (const event of events) this.#apply(event);
    this.#backoff.reset();
    this.#revision = revision;
    this.#wake();
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
    this.#options.onError(error instanceof Error ? error : new Error(String(error)), this.key);
  }

  /** Resolves once something is known, or nothing will be in time. */
  #untilKnown(signal: AbortSignal | undefined): Promise<void> {
    if (!this.watching) return Promise.resolve();
    return new Promise((resolve, reject) => {
      const end = (): void => {
        this.#waiting.delete(end);
        timer.cancel();
        signal?.removeEventListener("abort", abort);
        resolve();
      };
      const abort = (): void => {
        reject(signal?.reason);
        end();
      };
      const timer = this.#options.clock.setTimeout(end, this.#options.syncTimeoutMs);
      this.#waiting.add(end);
      signal?.addEventListener("abort", abort);
    });
  }

  #wake(): void {
    for (const end of [...this.#waiting]) end();
  }

  #notSynced(): WatchFanoutError {
    const { resource, syncTimeoutMs } = this.#options;
    const why = this.#failure?.message ?? "The server has not told of it yet.";
    return new WatchFanoutError(
      "NOT_READY",
      `Whether there is a ${JSON.stringify(this.key)} in ${resource} was not known within ${syncTimeoutMs} ms. ${why} It goes on being tried: ask again.`,
      { cause: this.#failure },
    );
  }

  #undecodable(failure: DecodeFailure): WatchFanoutError {
    return new WatchFanoutError(
      "NOT_READY",
      `${failure.message} There was no earlier value that could be. Write one that can, or mend the codec.`,
      { cause: failure },
    );
  }

  #released(): WatchFanoutError {
    if (this.#failure instanceof ClosedError) return this.#failure;
    return invalidRequest(
      "key",
      `${JSON.stringify(this.key)} is not watched any more: while it was waited for, its last reference was deleted or the cache was closed.`,
    );
  }
}
