import { setTimeout as delay } from "node:timers/promises";
import { BareStatus } from "../foreign/bare-grpc.ts";
import type { Accepted } from "../foreign/decompressed.ts";
import type { SeenRead } from "../guarantees/guarantees.ts";
import type { SeenObject } from "../guarantees/recording.ts";
import type { Endpoint } from "./endpoint.ts";
import { keys } from "./recorded-writer.ts";
import type { Seeded } from "./seeded.ts";
import { Connection, viewOf, type Wish } from "./wire.ts";

/** A response, and the histories of etcd that it may be of. */
export interface RecordedRead {
  readonly read: SeenRead;
  /** Of those, `notBefore` is of the first. */
  readonly fromEra: number;
  readonly toEra: number;
  readonly historyId: string;
  readonly what: string;
}

/** What a reader does and receives, in order. A Get is a List of one key. */
export type ReaderStep = { readonly wish: Wish } & (
  | {
      readonly step: "call";
      readonly server: string;
      readonly isLinearizable: boolean;
      /** 0: the response may be of any revision. */
      readonly notOlderThan: number;
    }
  | {
      readonly step: "response";
      readonly revision: number;
      readonly objects: readonly SeenObject[];
      readonly historyId: string;
    }
  | { readonly step: "failed" }
);

/** A read that failed. */
export interface FailedRead {
  readonly what: string;
  readonly code: number;
  readonly reason: string;
  readonly message: string;
}

export interface ReaderOptions {
  readonly endpoints: readonly Endpoint[];
  readonly random: Seeded;
  /** The index of the oldest of etcd's histories that may still be delivered, and of the newest. */
  readonly era: () => number;
  readonly newestEra: () => number;
  /** The newest revision that a write was acknowledged with. */
  readonly acknowledged: () => number;
  /** Pause after each read, in milliseconds at most. */
  readonly pauseMs: number;
  /** Gets each step. */
  readonly trace?: ((step: ReaderStep) => void) | undefined;
}

/** RevisionMatch, by number. */
const matches = { LINEARIZABLE: 1, ANY: 2, NOT_OLDER_THAN: 3 } as const;
type Match = keyof typeof matches;

const wishes: readonly Wish[] = [
  {},
  { prefix: "a/" },
  { labelSelector: "app=web" },
  { fieldSelector: "spec.node=n1" },
];

type RepeatedOptions = Pick<ReaderOptions, "endpoints" | "pauseMs" | "random"> & {
  /** The encoding of responses. Default: they are not compressed. */
  readonly accepts?: Accepted | undefined;
};

/** Reads again and again until it is stopped, with a pause after each time, and writes down what it gets. */
export abstract class RepeatedReads {
  readonly reads: RecordedRead[] = [];
  readonly failed: FailedRead[] = [];
  readonly #options: RepeatedOptions;
  #running: Promise<void> | undefined;
  #isStopped = true;
  #connection: Connection | undefined;

  constructor(options: RepeatedOptions) {
    this.#options = options;
  }

  protected get isStopped(): boolean {
    return this.#isStopped;
  }

  protected abstract readOnce(): Promise<void>;

  start(): void {
    if (!this.#isStopped) return;
    this.#isStopped = false;
    this.#running = this.#run();
  }

  /** Cancels the call in progress. */
  async stop(): Promise<void> {
    this.#isStopped = true;
    this.#connection?.close();
    await this.#running;
  }

  /** Any one of which nothing bad is known. */
  protected pickEndpoint(): Endpoint {
    const { random, endpoints } = this.#options;
    const well = endpoints.filter(({ isWell }) => isWell);
    return random.pick(well.length > 0 ? well : endpoints);
  }

  /** Makes a call on a connection of its own. Undefined: it has failed, which is written down. */
  protected async attempt<T>(
    what: string,
    endpoint: Endpoint,
    call: (connection: Connection) => Promise<T>,
  ): Promise<T | undefined> {
    const connection = new Connection(endpoint.relay.url, undefined, this.#options.accepts);
    this.#connection = connection;
    const unsettle = endpoint.onDisturbed(() => connection.close());
    try {
      return await call(connection);
    } catch (error) {
      if (!(error instanceof Error) || !("code" in error)) throw error;
      const known = error instanceof BareStatus ? error : new BareStatus(-1, error.message);
      const { code, reason, message } = known;
      this.failed.push({ what, code, reason, message });
      return undefined;
    } finally {
      unsettle();
      connection.close();
    }
  }

  async #run(): Promise<void> {
    const { random, pauseMs } = this.#options;
    while (!this.#isStopped) {
      await this.readOnce();
      await delay(random.between(0, pauseMs));
    }
  }
}

/** Reads until it is stopped, in every way, and writes down the responses. */
export class RecordedReader extends RepeatedReads {
  readonly #options: ReaderOptions;
  #completed = 0;

  constructor(options: ReaderOptions) {
    super(options);
    this.#options = options;
  }

  /** How many reads have been completed. */
  get completed(): number {
    return this.#completed;
  }

  forget(): void {
    this.reads.splice(0);
    this.failed.splice(0);
  }

  protected async readOnce(): Promise<void> {
    const { random, era, newestEra, acknowledged, trace } = this.#options;
    const endpoint = this.pickEndpoint();
    const match = random.pickWeighted<Match>({ LINEARIZABLE: 6, ANY: 2, NOT_OLDER_THAN: 2 });
    const wish = random.chance(0.5) ? { key: random.pick(keys) } : random.pick(wishes);
    const what = `${match} of ${JSON.stringify(wish)} by ${endpoint.name}`;
    const [fromEra, newest] = [era(), acknowledged()];
    const notBefore = match === "ANY" ? 0 : newest;
    // Nothing can be asked to be newer than nothing.
    const revision = match === "NOT_OLDER_THAN" ? Math.max(1, newest) : 0;
    const isLinearizable = match === "LINEARIZABLE";
    trace?.({ step: "call", wish, server: endpoint.name, isLinearizable, notOlderThan: revision });
    const found = await this.attempt(what, endpoint, (connection) =>
      wish.key === undefined
        ? connection.list(wish, matches[match], revision)
        : connection.get(wish.key, matches[match], revision),
    );
    if (found === undefined) {
      trace?.({ step: "failed", wish });
      return;
    }
    const { historyId, ...response } = found;
    trace?.({ step: "response", wish, historyId, ...response });
    const read = { view: viewOf(wish), notBefore, ...response };
    this.reads.push({ read, fromEra, toEra: newestEra(), historyId, what });
    this.#completed++;
  }
}
