import { hash } from "node:crypto";
import type { Clock, Timer } from "../base/clock.ts";
import { compareKeys } from "../model/key-order.ts";
import type { StoredObject } from "../model/object.ts";
import { InvalidValue } from "./any-types.ts";
import { type EncodedInstance, encodeAssignment, encodeInstance } from "./assignment.ts";
import type { Catalog } from "./catalog.ts";
import type { FeedTarget } from "./feed.ts";
import { readInstance } from "./instance.ts";
import { encodeAny, type ResourceContent, type XdsResource } from "./response.ts";
import type { XdsType } from "./types.ts";

/** Number of characters of the hash that is the version of an assignment. */
const versionLength = 16;

/** What the services need. */
export interface ServicesOptions {
  readonly catalog: Catalog;
  readonly clock: Clock;
  /** How long changes are collected, in milliseconds; 0: they are not, beyond a round. */
  readonly debounceMs: number;
}

/**
 * Computes one assignment for each service, from the keys of its instances, `SERVICE/INSTANCE`. A change rebuilds the
 * assignment once for all clients. The version of an assignment is a hash of its content, so that all replicas, now and after
 * a restart, have the same.
 */
export class Services implements FeedTarget {
  readonly #options: ServicesOptions;
  /** The instances by service and key. None is empty. */
  readonly #services = new Map<string, Map<string, EncodedInstance>>();
  /** What `commit` changes, by key, so that a timer never sends half a transaction; undefined: the instance is removed. */
  readonly #taken = new Map<string, EncodedInstance | undefined>();
  /** The services whose instances have changed, and whose assignments have not. */
  readonly #changed = new Set<string>();
  #timer: Timer | undefined;
  #revision = 0;
  /** Resolves once each client's stream knows the current assignments; undefined: before the first ones. */
  #notified: Promise<unknown> | undefined;

  constructor(options: ServicesOptions) {
    this.#options = options;
  }

  /** Number of instances. */
  get instances(): number {
    let count = 0;
    for (const instances of this.#services.values()) count += instances.size;
    return count;
  }

  *keys(): Iterable<string> {
    for (const instances of this.#services.values()) yield* instances.keys();
    yield* this.#taken.keys();
  }

  put({ key, value, modRevision }: StoredObject): void {
    if (serviceOf(key) === undefined) {
      throw new InvalidValue(
        "Its key is not SERVICE/INSTANCE, with the instance behind the last slash.",
      );
    }
    this.#taken.set(key, encodeInstance(readInstance(value), modRevision));
  }

  remove(key: string): void {
    this.#taken.set(key, undefined);
  }

  commit(revision: number): Promise<unknown> | undefined {
    const { clock, debounceMs, catalog } = this.#options;
    this.#revision = revision;
    for (const [key, instance] of this.#taken) this.#change(key, instance);
    this.#taken.clear();
    if (this.#changed.size === 0 && catalog.isSynced) return undefined;
    if (debounceMs === 0 || !catalog.isSynced) return this.#commit();
    this.#timer ??= clock.setTimeout(() => this.#commit(), debounceMs);
    return undefined;
  }

  /** What was collected is committed now: a route may refer to it. */
  flush(): Promise<unknown> | undefined {
    if (this.#timer === undefined) return this.#notified;
    this.#timer.cancel();
    return this.#commit();
  }

  /** Commits nothing more. Idempotent. */
  close(): void {
    this.#timer?.cancel();
  }

  #change(key: string, instance: EncodedInstance | undefined): void {
    const service = serviceOf(key) ?? "";
    const instances = this.#services.get(service) ?? new Map<string, EncodedInstance>();
    if (instance !== undefined) instances.set(key, instance);
    else if (!instances.delete(key)) return;
    if (instances.size === 0) this.#services.delete(service);
    else this.#services.set(service, instances);
    this.#changed.add(service);
  }

  #commit(): Promise<unknown> | undefined {
    const { catalog } = this.#options;
    this.#timer = undefined;
    const resources: XdsResource[] = [];
    const removed: string[] = [];
    for (const service of this.#changed) {
      const instances = this.#services.get(service);
      const current = catalog.resources.get(service);
      if (instances === undefined) {
        if (current !== undefined) removed.push(service);
        continue;
      }
      const sorted = [...instances].sort(([a], [b]) => compareKeys(a, b));
      const content = assignmentOf(
        catalog.type,
        service,
        sorted.map(([, instance]) => instance),
      );
      if (current?.version === content.version) continue;
      resources.push(catalog.make(service, content, this.#revision));
    }
    this.#changed.clear();
    const notified = catalog.commit(resources, removed, this.#revision);
    const before = this.#notified;
    // Of two commits the later one may be known first.
    if (notified !== undefined) this.#notified = notified.then(() => before);
    return this.#notified;
  }
}

/**
 * The assignment of a service to instances. A client that asks for a service without any gets one, too: in the
 * state-of-the-world protocol it could not learn that the last instance is gone otherwise.
 */
export function assignmentOf(
  type: XdsType,
  service: string,
  instances: Iterable<EncodedInstance>,
): ResourceContent {
  const content = encodeAssignment(service, instances);
  const version = hash("sha256", content).slice(0, versionLength);
  return { version, any: encodeAny(type.url, content) };
}

/** The service of an instance's key; undefined: it is no key of an instance. */
function serviceOf(key: string): string | undefined {
  const slash = key.lastIndexOf("/");
  return slash <= 0 || slash === key.length - 1 ? undefined : key.slice(0, slash);
}
