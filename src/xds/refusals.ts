import type { Logger } from "pino";
import type { Clock } from "../base/clock.ts";
import { LineLimit } from "../base/logger.ts";
import type { XdsResponse } from "./response.ts";
import type { TypeName } from "./types.ts";

/** Maximum number of refusals that are kept and shown, and number of resources that each names. */
const maxShown = 100;
const maxNamed = 8;

/** Minimum time between two lines about the refusals of a type, in milliseconds: a client chooses their texts. */
const logIntervalMs = 1_000;

/** What clients with one identity have refused, with the same text. */
export interface Refusal {
  readonly type: TypeName;
  /** Some of the resources of the response, as `NAME@VERSION`. */
  readonly resources: readonly string[];
  readonly message: string;
  /** Number of times; the identity; and the own id of the client that was the last one. */
  readonly count: number;
  readonly identity: string;
  readonly node: string;
}

/** The responses that clients refuse (NACK). Each is logged once, at most one a second of each type. */
export class Refusals {
  readonly #logger: Logger;
  /** By resources, text and identity, the oldest first. */
  readonly #known = new Map<string, Refusal>();
  readonly #lines: Readonly<Record<TypeName, LineLimit>>;
  /** Number of refusals since the start, by type. */
  readonly counts: Record<TypeName, number> = { cds: 0, eds: 0, lds: 0, rds: 0, sds: 0 };

  constructor(clock: Clock, logger: Logger) {
    this.#logger = logger;
    const line = (): LineLimit => new LineLimit(clock, logIntervalMs);
    this.#lines = { cds: line(), eds: line(), lds: line(), rds: line(), sds: line() };
  }

  /** Those that were seen last, the newest last. */
  get all(): readonly Refusal[] {
    return [...this.#known.values()];
  }

  /** A client has refused a response. `node`: its own id for itself, which is no identity. */
  add(
    type: TypeName,
    response: XdsResponse | undefined,
    message: string,
    { identity, node }: { readonly identity: string; readonly node: string },
  ): void {
    this.counts[type]++;
    const named = response?.resources.slice(0, maxNamed) ?? [];
    const resources = named.map(({ name, version }) => `${name}@${version}`);
    const key = JSON.stringify([type, resources, message, identity]);
    const known = this.#known.get(key);
    if (known === undefined && this.#lines[type].admit() !== undefined) {
      const fields = { type, resources, refusal: message, identity, node };
      this.#logger.warn(
        fields,
        "a client refuses resources; they are not sent again until they change",
      );
    }
    this.#known.delete(key);
    const count = (known?.count ?? 0) + 1;
    this.#known.set(key, { type, resources, message, count, identity, node });
    if (this.#known.size > maxShown) this.#dropOne();
  }

  /** Drops the oldest of the identity that has the most, so that no caller pushes out what others have refused. */
  #dropOne(): void {
    const ofIdentity = Map.groupBy(this.#known, ([, { identity }]) => identity);
    let most: readonly (readonly [string, Refusal])[] = [];
    for (const entries of ofIdentity.values()) if (entries.length > most.length) most = entries;
    const [oldest] = most;
    if (oldest !== undefined) this.#known.delete(oldest[0]);
  }
}
