import type { Clock, Timer } from "../../../src/base/clock.ts";
import { upstreamUnavailable, WatchFanoutError } from "../../../src/base/errors.ts";
import type {
  DeleteOptions,
  ListOptions,
  PutOptions,
  WatchOptions,
} from "../../../src/client/calls/options.ts";
import type { LeaseClient } from "../../../src/client/coordination/leased-keys.ts";
import { Leases } from "../../../src/client/coordination/leases.ts";
import type { AtomicBatch, ObjectResult, Page } from "../../../src/client/watch/client-calls.ts";
import { WatchEvent } from "../../../src/model/event.ts";
import { encodedStatus, statusOf } from "../../../src/wire/errors.ts";
import { definitions, leaseService } from "../../../src/wire/services.ts";
import type { SimulatedStore } from "./simulated-store.ts";

/** The clock of a process that can be stopped, as by SIGSTOP: its time passes, and its callbacks wait. */
class ProcessClock implements Clock {
  readonly #clock: Clock;
  readonly #held: (() => void)[] = [];
  #isStopped = false;

  constructor(clock: Clock) {
    this.#clock = clock;
  }

  now(): number {
    return this.#clock.now();
  }

  setTimeout(callback: () => void, delayMs: number): Timer {
    let isCancelled = false;
    const run = (): void => {
      if (!isCancelled) callback();
    };
    const timer = this.#clock.setTimeout(() => {
      if (this.#isStopped) this.#held.push(run);
      else run();
    }, delayMs);
    return {
      cancel: () => {
        isCancelled = true;
        timer.cancel();
      },
    };
  }

  setImmediate(callback: () => void): Timer {
    return this.setTimeout(callback, 0);
  }

  stop(): void {
    this.#isStopped = true;
  }

  /** What has become due meanwhile is called in its order. */
  resume(): void {
    this.#isStopped = false;
    for (const run of this.#held.splice(0)) run();
  }
}

/** What the network does with the messages of a client. */
export type Network = "well" | "loses requests" | "loses responses";

/** How long a client waits for a response, in milliseconds. */
const timeoutMs = 2_000;

/** What `withRequests` calls of a Transport. */
export interface FakeTransport {
  bidiStream(method: unknown, onBegun: (requests: { write(request: never): void }) => void): void;
}

/** A client of a SimulatedStore, on a network that delays each message at random and loses them on request. */
export class SimulatedClient implements LeaseClient {
  readonly clock: ProcessClock;
  readonly leases: Leases;
  readonly #store: SimulatedStore;
  readonly #random: () => number;
  readonly #closing = new AbortController();
  readonly #maxDelayMs: number;
  network: Network = "well";
  /** Number of lists so far. */
  lists = 0;

  /** `maxDelayMs`: of each message. */
  constructor(store: SimulatedStore, random: () => number, maxDelayMs: number) {
    this.#store = store;
    this.#random = random;
    this.#maxDelayMs = maxDelayMs;
    this.clock = new ProcessClock(store.clock);
    const connection = {
      write: (method: { path: string }, request: never) => this.#unary(method.path, request),
      read: (method: { path: string }, request: never) => this.#unary(method.path, request),
      stream: this.#keepAlive.bind(this),
      closing: this.#closing.signal,
      hasRequestStreams: true,
      reachability: { hasAlternative: false, onReady: () => () => {} },
    };
    const [clock, random_] = [this.clock, random];
    this.leases = new Leases({ connection: connection as never, clock, random: random_ });
  }

  /** Ends it without a word, as a crash of its process. Its promises never settle. */
  crash(): void {
    this.network = "loses requests";
    this.clock.stop();
  }

  async get(_: string, key: string): Promise<ObjectResult> {
    return this.#call(() => {
      const object = this.#store.objects.get(key);
      if (object === undefined) {
        throw new WatchFanoutError("OBJECT_NOT_FOUND", `There is no ${key}.`);
      }
      return { revision: this.#store.revision, object, historyId: "h" };
    });
  }

  async put(_: string, key: string, value: Uint8Array, options: PutOptions = {}) {
    const { lease = 0n, expectedModRevision, signal } = options;
    const put = () => this.#store.put(key, value, lease, expectedModRevision);
    const object = await this.#call(put, signal);
    return { revision: object.modRevision, object, historyId: "h" };
  }

  async delete(_: string, key: string, { expectedModRevision, signal }: DeleteOptions = {}) {
    const object = await this.#call(() => this.#store.delete(key, expectedModRevision), signal);
    return { revision: object.modRevision, object, historyId: "h" };
  }

  async *list(_: string, { prefix = "", signal }: ListOptions = {}): AsyncGenerator<Page> {
    this.lists++;
    yield await this.#call(() => {
      const items = [...this.#store.objects.values()]
        .filter(({ key }) => key.startsWith(prefix))
        .sort((one, other) => one.createRevision - other.createRevision);
      const { revision } = this.#store;
      return {
        ...{ revision, items, remainingItemCount: 0, nextPageToken: "", historyId: "h" },
      };
    }, signal);
  }

  async *watch(_: string, options: WatchOptions = {}): AsyncGenerator<AtomicBatch> {
    const { scope = { prefix: "" }, afterRevision, signal } = options;
    const has = (key: string): boolean =>
      "key" in scope ? key === scope.key : key.startsWith(scope.prefix);
    let read = this.#store.history.length;
    let initial: AtomicBatch | undefined;
    if (options.sendInitialEvents === true) {
      const objects = [...this.#store.objects.values()].filter(({ key }) => has(key));
      const events = objects.map((object) => new WatchEvent("ADDED", object, undefined));
      const { revision } = this.#store;
      initial = { revision, events, initial: true, historyId: "h" };
    } else if (afterRevision !== undefined) {
      const at = this.#store.history.findIndex(({ revision }) => revision > afterRevision);
      if (at !== -1) read = at;
    }
    if (initial !== undefined) {
      await this.#pass();
      yield initial;
    }
    const hasEnded = (): boolean => signal?.aborted === true;
    while (!hasEnded()) {
      await this.#changed(() => this.#store.history.length > read, signal);
      if (hasEnded()) return;
      await this.#pass();
      // A batch has whole revisions, and all of them up to now, or fewer.
      const { revision } = this.#store;
      const events = this.#store.history.slice(read).filter(({ object }) => has(object.key));
      read = this.#store.history.length;
      yield { revision, events, initial: false, historyId: "h" };
    }
  }

  page(): never {
    throw new Error("Not simulated.");
  }
  history(): never {
    throw new Error("Not simulated.");
  }
  historyPage(): never {
    throw new Error("Not simulated.");
  }

  /** Passes a request to the store after a delay, and its response back. */
  async #call<T>(apply: () => T, signal?: AbortSignal): Promise<T> {
    signal?.throwIfAborted();
    return new Promise<T>((resolve, reject) => {
      const unknown = new WatchFanoutError("OUTCOME_UNKNOWN", "No response came.");
      const abort = (): void => settle(() => reject(signal?.reason));
      const timer = this.clock.setTimeout(() => settle(() => reject(unknown)), timeoutMs);
      const settle = (how: () => void): void => {
        timer.cancel();
        signal?.removeEventListener("abort", abort);
        how();
      };
      signal?.addEventListener("abort", abort);
      // A message on its way arrives although its sender may have ended.
      this.#store.clock.setTimeout(() => {
        if (this.network === "loses requests") return;
        let answer: () => void;
        try {
          const result = apply();
          answer = () => settle(() => resolve(result));
        } catch (error) {
          answer = () => settle(() => reject(error));
        }
        this.clock.setTimeout(() => {
          if (this.network === "well") answer();
        }, this.#delayMs());
      }, this.#delayMs());
    });
  }

  #delayMs(): number {
    return this.#random() * this.#maxDelayMs;
  }

  /** Resolves after a delay, once the network is well. */
  async #pass(): Promise<void> {
    do {
      await new Promise<void>((resolve) => this.clock.setTimeout(resolve, this.#delayMs()));
      if (this.network !== "well") {
        await new Promise<void>((resolve) => this.clock.setTimeout(resolve, 100));
      }
    } while (this.network !== "well");
  }

  #changed(isTrue: () => boolean, signal: AbortSignal | undefined): Promise<void> {
    return new Promise((resolve) => {
      const check = (): void => {
        if (!isTrue() && signal?.aborted !== true) return;
        leave();
        signal?.removeEventListener("abort", check);
        resolve();
      };
      const leave = this.#store.onChange(check);
      signal?.addEventListener("abort", check);
      check();
    });
  }

  #unary(path: string, request: { ttl: { seconds: number }; lease: string }): Promise<unknown> {
    return this.#call(() => {
      if (path === leaseService.Grant.path) {
        const lease = String(this.#store.grant(request.ttl.seconds * 1_000));
        return { lease, ttl: { seconds: String(request.ttl.seconds), nanos: 0 } };
      }
      if (this.#store.revoke(BigInt(request.lease))) return {};
      throw new WatchFanoutError("LEASE_NOT_FOUND", `There is no lease ${request.lease}.`);
    });
  }

  async *#keepAlive(
    begin: (transport: FakeTransport) => unknown,
    signal: AbortSignal,
  ): AsyncGenerator<unknown> {
    const responses: unknown[] = [];
    let wake: () => void = () => {};
    let failure: Error | undefined;
    signal.addEventListener("abort", () => wake());
    let last: Promise<unknown> = Promise.resolve();
    const write = ({ leases }: { leases: string[] }): void => {
      const answer = last.then(() => this.#call(() => leases.map((id) => this.#renewal(id))));
      last = answer.catch(() => {});
      answer.then(
        (renewals) => {
          responses.push({ renewals });
          wake();
        },
        (error: Error) => {
          failure = upstreamUnavailable(error.message);
          wake();
        },
      );
    };
    begin({ bidiStream: (_, onBegun) => onBegun({ write }) });
    while (!signal.aborted) {
      if (responses.length > 0) yield responses.shift();
      else if (failure !== undefined) throw failure;
      else {
        await new Promise<void>((resolve) => {
          wake = resolve;
        });
      }
    }
  }

  #renewal(lease: string): object {
    const ttlMs = this.#store.renew(BigInt(lease));
    if (ttlMs !== undefined) {
      return { lease, ttl: { seconds: String(ttlMs / 1_000), nanos: 0 }, error: null };
    }
    const error = new WatchFanoutError("LEASE_NOT_FOUND", `There is no lease ${lease}.`);
    return { lease, ttl: null, error: wireStatus(error) };
  }
}

/** A google.rpc.Status as a decoded message has it. */
export function wireStatus(error: WatchFanoutError): unknown {
  const encoded = encodedStatus(statusOf(error));
  return statusType.deserialize(Buffer.from(encoded));
}

const statusType = definitions["google.rpc.Status"] as unknown as {
  deserialize(bytes: Buffer): unknown;
};
