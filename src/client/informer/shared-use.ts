import { abortable } from "../../base/wait.ts";
import type { TypedObject } from "../values/typed-object.ts";
import type { ClientCalls } from "../watch/client-calls.ts";
import type {
  EventHandler,
  EventHandlerOptions,
  EventHandlerRegistration,
} from "./handlers/handler-registration.ts";
import { InformerStopped } from "./handlers/informer-errors.ts";
import type { ReadonlyIndexer } from "./indexer/indexer.ts";
import type { Lister, ListerOptions } from "./indexer/lister.ts";
import type { InformerStats } from "./informer-metrics.ts";
import type { InformerListeners, RevisionWaitOptions, StopOptions } from "./informer-options.ts";
import type { SharedInformer } from "./shared-informer.ts";

/** A SharedInformer, or the use of one that other parts of the program use as well. */
export type Informer<T> = Omit<SharedInformer<T>, "addHandlerOf" | "drain" | "removeHandlersOf">;

/** An informer, and the parts of the program that use it. */
interface Shared<T> {
  readonly options: object;
  readonly informer: SharedInformer<T>;
  readonly users: Set<object>;
}

/** The informers of a client that have users. */
const sharedOf = new WeakMap<ClientCalls, Set<Shared<unknown>>>();

/**
 * Returns a use of the informer of this client with these options: of the one that is in use already, or else of one that
 * `create` makes. Options are the same if each member is, or, for plain objects, if each of their members is.
 */
export function useInformer<T>(
  client: ClientCalls,
  options: object,
  listeners: InformerListeners,
  create: () => SharedInformer<T>,
): Informer<T> {
  const ofClient = sharedOf.get(client) ?? new Set();
  sharedOf.set(client, ofClient);
  const known = [...ofClient].find((each) => hasSame(each.options, options, isSameMember));
  // The codec is one of the options, so it is of the same type.
  if (known !== undefined) return new InformerUse(known as Shared<T>, listeners);
  const shared: Shared<T> = { options, informer: create(), users: new Set() };
  ofClient.add(shared as Shared<unknown>);
  shared.informer.stopped.addEventListener("abort", () => {
    ofClient.delete(shared as Shared<unknown>);
  });
  return new InformerUse(shared, listeners);
}

/** What one part of a program has of an informer that it shares: its own handlers and listeners, and its own end. */
class InformerUse<T> implements Informer<T> {
  readonly #informer: SharedInformer<T>;
  readonly #users: Set<object>;
  /** Remove its listeners. */
  readonly #listening = new Set<() => void>();
  readonly #stopping = new AbortController();
  readonly stopped: AbortSignal;

  constructor({ informer, users }: Shared<T>, listeners: InformerListeners) {
    this.#informer = informer;
    this.#users = users;
    users.add(this);
    this.listen(listeners);
    this.stopped = AbortSignal.any([this.#stopping.signal, informer.stopped]);
  }

  get name(): string {
    return this.#informer.name;
  }

  get indexer(): ReadonlyIndexer<TypedObject<T>> {
    return this.#informer.indexer;
  }

  get hasSynced(): boolean {
    return this.#informer.hasSynced;
  }

  get revision(): number | undefined {
    return this.#informer.revision;
  }

  get historyId(): string {
    return this.#informer.historyId;
  }

  get silentMs(): number | undefined {
    return this.#informer.silentMs;
  }

  get failure(): SharedInformer<T>["failure"] {
    return this.#informer.failure;
  }

  get isStopped(): boolean {
    return this.stopped.aborted;
  }

  stats(): InformerStats {
    return this.#informer.stats();
  }

  start(): void {
    this.#stopping.signal.throwIfAborted();
    this.#informer.start();
  }

  waitForSync(signal?: AbortSignal): Promise<void> {
    return abortable(this.#informer.waitForSync(this.stopped), signal);
  }

  waitForRevision(revision: number, options: RevisionWaitOptions = {}): Promise<void> {
    const { stopped } = this;
    const signal = options.signal ? AbortSignal.any([options.signal, stopped]) : stopped;
    return this.#informer.waitForRevision(revision, { ...options, signal });
  }

  addEventHandler(
    handler: EventHandler<T>,
    options: EventHandlerOptions = {},
  ): EventHandlerRegistration {
    this.#stopping.signal.throwIfAborted();
    return this.#informer.addHandlerOf(this, handler, options);
  }

  listen(listeners: InformerListeners): () => void {
    const remove = this.#informer.listen(listeners);
    this.#listening.add(remove);
    return () => {
      remove();
      this.#listening.delete(remove);
    };
  }

  lister(options?: ListerOptions<T>): Lister<T> {
    return this.#informer.lister(options);
  }

  /** Removes its handlers and listeners. The last use of an informer stops it. */
  async stop(options: StopOptions = {}): Promise<void> {
    const { drain = false, signal } = options;
    const isFirst = !this.#stopping.signal.aborted;
    this.#stopping.abort(
      new InformerStopped(`The informer ${JSON.stringify(this.name)} was stopped.`),
    );
    this.#users.delete(this);
    try {
      if (this.#users.size === 0) await this.#informer.stop(options);
      else if (drain && isFirst) await abortable(this.#informer.drain(), signal);
    } finally {
      for (const remove of this.#listening) remove();
      await this.#informer.removeHandlersOf(this, signal);
    }
  }

  [Symbol.asyncDispose](): Promise<void> {
    return this.stop();
  }
}

function isSameMember(one: unknown, other: unknown): boolean {
  return (
    Object.is(one, other) || (isPlain(one) && isPlain(other) && hasSame(one, other, Object.is))
  );
}

function isPlain(value: unknown): value is object {
  return value?.constructor === Object;
}

/** Whether both have the same members. One that is undefined counts as absent. */
function hasSame(
  one: object,
  other: object,
  isSame: (one: unknown, other: unknown) => boolean,
): boolean {
  const members = new Map<string, unknown>(Object.entries(one));
  const others = new Map<string, unknown>(Object.entries(other));
  return [...members.keys(), ...others.keys()].every((name) =>
    isSame(members.get(name), others.get(name)),
  );
}
