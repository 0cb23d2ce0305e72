import { hasReason, toError } from "../../base/errors.ts";
import { textBytes, textOf } from "../../protobuf/text.ts";
import { followPrefix } from "./follow-prefix.ts";
import { leaseLost } from "./lease.ts";
import { type LeaseClient, persist, putLeased, read } from "./leased-keys.ts";
import { acquire, Lock, type LockOptions } from "./mutex.ts";
import type { Session } from "./session.ts";

/** Options of a LeaderElector. */
export interface LeaderElectorOptions {
  readonly session: Session;
  /** The resource of the keys. */
  readonly resource: string;
  /** The name of the election: what the keys begin with, followed by a slash. */
  readonly name: string;
  /** What others learn of this candidate, such as its host name. */
  readonly identity: string;
  /**
   * Called when this candidate has become the leader. It leads until the signal is aborted: on a loss, and at the end of `run`.
   * The returned promise resolves when its work has ended: the leadership is not handed over before, if it is not lost. If it
   * resolves earlier, the leadership is given up; if it rejects, `run` does.
   */
  readonly onStartedLeading: (signal: AbortSignal, leadership: Leadership) => Promise<void>;
  /** Called when it does not lead any more and its work has ended, before the next candidate leads. Default: ignored. */
  readonly onStoppedLeading?: (() => void) | undefined;
  /** Called with each leader that is seen, this one included. Default: ignored. */
  readonly onNewLeader?: ((leader: Leader) => void) | undefined;
}

/** The candidate that leads. */
export interface Leader {
  /** What it has last proclaimed: at first its identity. */
  readonly value: string;
  readonly fencingToken: number;
}

/** The leadership of a candidate, which is a lock. */
export class Leadership extends Lock {
  readonly #session: Session;

  /** @internal */
  constructor(session: Session, lock: Lock) {
    super(session, lock.lease, lock, lock.fencingToken);
    this.#session = session;
  }

  /** Replaces the value that others observe. Rejects with LEASE_NOT_FOUND if this leadership is lost. */
  async proclaim(value: string): Promise<void> {
    const { lease, signal, fencingToken } = this;
    const { client } = this.#session;
    const bytes = textBytes(value);
    const replace = async (): Promise<void> => {
      const own = await read(client, this, signal);
      if (own?.createRevision !== fencingToken) {
        throw leaseLost(lease.id, `${this.key} was deleted`);
      }
      // A put before this one, whose response was lost.
      if (textOf(own.value) === value) return;
      const options = { expectedModRevision: own.modRevision, signal };
      await putLeased(client, lease, this, bytes, options);
    };
    await persist(replace, client.leases.site, signal);
  }
}

/**
 * Elects one leader among the candidates of a name, in the order in which they have come: client-go's leaderelection, on the
 * keys of a Mutex.
 *
 *     const elector = new LeaderElector({ session, resource: "locks", name: "job", identity: hostname(), onStartedLeading });
 *     await elector.run(stopping.signal);
 *
 * At each moment at most one candidate has `isHeld`, if clocks are as Lease says. What a leader does may still take effect after
 * its end, as any message may be late. So give writes the `guard` of the leadership, and send its fencing token elsewhere.
 */
export class LeaderElector {
  readonly #options: LeaderElectorOptions;

  /** Sends nothing before `run`, `campaign` or `observe`. */
  constructor(options: LeaderElectorOptions) {
    this.#options = options;
  }

  /**
   * Campaigns and leads, again after each loss, until the signal is aborted, which ends the leadership in order: the work ends
   * first, then the next candidate leads. Rejects with what the work rejects with, and if the session has ended.
   */
  async run(signal: AbortSignal): Promise<void> {
    const observing = new AbortController();
    const observed = this.#reportLeaders(AbortSignal.any([signal, observing.signal]));
    try {
      while (!signal.aborted) await this.#leadOnce(signal);
    } finally {
      observing.abort();
      await observed;
    }
  }

  /** Waits until this candidate leads. Rejects as `Mutex.lock` does. For programs that do without `run`. */
  async campaign({ signal }: LockOptions = {}): Promise<Leadership> {
    const { session, resource, name, identity } = this.#options;
    const value = textBytes(identity);
    const lock = await acquire(session, { resource, key: name }, value, { signal });
    return new Leadership(session, lock as Lock);
  }

  /**
   * Yields the leader, and each change of it; undefined: no candidate leads. It may be late, as all that is observed: only the leader
   * itself can rely on it. Returns when the signal is aborted.
   */
  observe(signal: AbortSignal): AsyncGenerator<Leader | undefined, void, void> {
    const { session, resource, name } = this.#options;
    return observeLeader(session.client, resource, name, signal);
  }

  async #leadOnce(signal: AbortSignal): Promise<void> {
    let leadership: Leadership;
    try {
      leadership = await this.campaign({ signal });
    } catch (error) {
      const { session } = this.#options;
      // The lease was lost, or the key was deleted. The session may have another lease already, or the next campaign waits for it.
      if (signal.aborted || (hasReason(error, "LEASE_NOT_FOUND") && !session.hasEnded)) return;
      throw error;
    }
    const { onStartedLeading, onStoppedLeading } = this.#options;
    const leading = AbortSignal.any([signal, leadership.signal]);
    try {
      await onStartedLeading(leading, leadership);
    } catch (error) {
      if (!leading.aborted) throw error;
    } finally {
      try {
        onStoppedLeading?.();
      } finally {
        await leadership.unlock();
      }
    }
  }

  async #reportLeaders(signal: AbortSignal): Promise<void> {
    const { onNewLeader, session } = this.#options;
    if (onNewLeader === undefined) return;
    try {
      for await (const leader of this.observe(signal)) if (leader) onNewLeader(leader);
    } catch (error) {
      session.report(toError(error));
    }
  }
}

/** See `LeaderElector.observe`. It needs no session. */
export async function* observeLeader(
  client: LeaseClient,
  resource: string,
  name: string,
  signal: AbortSignal,
): AsyncGenerator<Leader | undefined, void, void> {
  let last: { token: number; modRevision: number } | undefined | null = null;
  for await (const { objects } of followPrefix(client, resource, `${name}/`, signal)) {
    let first: { createRevision: number; modRevision: number; value: Uint8Array } | undefined;
    for (const [key, object] of objects) {
      if (key.includes("/", name.length + 1)) continue;
      if (first === undefined || object.createRevision < first.createRevision) first = object;
    }
    const isSame =
      last !== null &&
      first?.createRevision === last?.token &&
      first?.modRevision === last?.modRevision;
    if (isSame) continue;
    last = first && { token: first.createRevision, modRevision: first.modRevision };
    yield first && {
      value: textOf(first.value) ?? "",
      fencingToken: first.createRevision,
    };
  }
}
