import { setTimeout as delay } from "node:timers/promises";
import { WatchFanoutError } from "../../src/base/errors.ts";
import { type Client, connect } from "../../src/client/connect.ts";
import { LeaderElector } from "../../src/client/coordination/leader-elector.ts";
import { type Lock, Mutex } from "../../src/client/coordination/mutex.ts";
import { Session } from "../../src/client/coordination/session.ts";
import type { Endpoint } from "../faults/endpoint.ts";
import { Seeded } from "../faults/seeded.ts";
import type { Era } from "../faults/truth.ts";
import { resource } from "../faults/wire.ts";
import { fencingViolations, type GuardedWrite, OwnershipChecker } from "../guarantees/ownership.ts";
import type { EtcdCluster } from "./etcd-cluster.ts";

/** How many clients a simulation has of each kind: of a lock, and of an election. */
export interface Coordinating {
  readonly clients: number;
}

interface CoordinatingOptions {
  readonly endpoints: readonly Endpoint[];
  readonly cluster: EtcdCluster;
}

/** The length of the leases, the longest hold, and the longest wait for a lock, in milliseconds. */
const [ttlMs, heldMs, waitMs] = [2_000, 400, 5_000];

/** Interval between two samples of all holders, in milliseconds. */
const sampleMs = 10;

type Kind = "lock" | "election";

/** What a client has, until it does not hold it any more. */
interface Claim {
  readonly what: Kind;
  readonly owner: string;
  readonly lock: Lock;
}

interface AcceptedWrite extends GuardedWrite {
  readonly what: Kind;
  /** The key that its guard names. */
  readonly key: string;
}

/**
 * Clients of the library that acquire one lock or campaign in one election, write under its guard, also after they have lost it,
 * and release it, or close without that.
 */
export class CoordinatingClients {
  readonly #options: CoordinatingOptions;
  readonly #clients: readonly { readonly kind: Kind; readonly owner: string; random: Seeded }[];
  readonly #stopping = new AbortController();
  readonly #ownership = new OwnershipChecker(Number.POSITIVE_INFINITY);
  readonly #claims = new Set<Claim>();
  readonly #sessions = new Set<Session>();
  readonly #writes: AcceptedWrite[] = [];
  readonly #errors: string[] = [];
  /** Resolves when all have ended. Undefined: not started. */
  #running: Promise<unknown> | undefined;

  constructor(seed: number, { clients }: Coordinating, options: CoordinatingOptions) {
    const random = new Seeded(seed ^ 0x10c4);
    this.#options = options;
    this.#clients = Array.from({ length: 2 * clients }, (_, i) => {
      const kind = i < clients ? "lock" : "election";
      return { kind, owner: `${kind} ${i}`, random: random.fork() };
    });
  }

  /** No effect after the first time. */
  start(): void {
    if (this.#clients.length === 0) return;
    this.#running ??= this.#runAll();
  }

  /** Resolves when no call is under way. */
  async stop(): Promise<void> {
    this.#stopping.abort();
    await this.#running;
  }

  /** What contradicts the contract. `era`: etcd's history. */
  wrong({ changes }: Pick<Era, "changes">): string[] {
    const unguarded = this.#writes.flatMap(({ owner, key, revision, fencingToken }) => {
      const before = changes.findLast((each) => each.key === key && each.revision < revision);
      if (before?.after?.createRevision === fencingToken) return [];
      return [`Exclusive: ${owner} wrote at ${revision}, although ${key} did not exist`];
    });
    const perKind = (["lock", "election"] as const).flatMap((kind) =>
      fencingViolations(this.#writes.filter(({ what }) => what === kind)),
    );
    return [
      ...this.#errors,
      ...[...this.#ownership.violations, ...perKind].map((what) => `Exclusive: ${what}`),
      ...unguarded,
    ];
  }

  async #runAll(): Promise<void> {
    const sampling = setInterval(() => this.#sample(), sampleMs);
    await Promise.all(this.#clients.map((each) => this.#run(each.kind, each.owner, each.random)));
    clearInterval(sampling);
  }

  /** One client after the other, each with a session of its own. */
  async #run(kind: Kind, owner: string, random: Seeded): Promise<void> {
    const { signal } = this.#stopping;
    const address = this.#options.endpoints.map(({ relay }) => new URL(relay.url).host);
    while (!signal.aborted) {
      const client = connect({ address });
      try {
        const session = await Session.open(client, { ttlMs, signal, onError: () => {} });
        this.#sessions.add(session);
        for (let turns = random.between(1, 8); turns > 0 && !signal.aborted; turns--) {
          await this.#turn(kind, owner, session, random).catch((error) => this.#failed(error));
          await delay(random.between(1, 50));
        }
        // Otherwise its lease and its keys remain until the lease ends.
        if (signal.aborted || random.chance(0.7)) await session.close();
      } catch (error) {
        this.#failed(error);
        await delay(random.between(1, 200));
      }
      await client.close();
    }
  }

  async #turn(kind: Kind, owner: string, session: Session, random: Seeded): Promise<void> {
    const signal = AbortSignal.any([this.#stopping.signal, AbortSignal.timeout(waitMs)]);
    const { client } = session;
    const hold = (lock: Lock): Promise<void> => this.#hold({ what: kind, owner, lock }, random);
    const write = (lock: Lock): Promise<void> =>
      this.#write(client as Client, { what: kind, owner, lock });
    if (kind === "lock") {
      const lock = await new Mutex(session, resource, "lock").lock({ signal });
      await hold(lock);
      await write(lock);
      await lock.unlock();
      await write(lock);
      return;
    }
    let last: Lock | undefined;
    const elector = new LeaderElector({
      ...{ session, resource, name: "election", identity: owner },
      onStartedLeading: async (leading, leadership) => {
        last = leadership;
        await hold(leadership);
        if (!leading.aborted) await write(leadership);
      },
    });
    await elector.run(signal);
    if (last !== undefined) await write(last);
  }

  async #hold(claim: Claim, random: Seeded): Promise<void> {
    this.#claims.add(claim);
    this.#sample();
    await delay(random.between(0, heldMs));
  }

  async #write(client: Client, { what, owner, lock }: Claim): Promise<void> {
    const value = Buffer.from(JSON.stringify({ write: owner }));
    const put = { type: "put", resource, key: `guarded by ${what}`, value } as const;
    const request = { compares: [lock.guard()], operations: [put] };
    const { succeeded, revision } = await client.transaction(request, { timeoutMs: 1_000 });
    const { key, fencingToken } = lock;
    if (succeeded) this.#writes.push({ what, owner, key, revision, fencingToken });
  }

  /** What all believe to hold, at one time, and whether the leases exist that they rely on. */
  #sample(): void {
    const { leases } = this.#options.cluster.state;
    for (const session of this.#sessions) {
      if (session.hasEnded) this.#sessions.delete(session);
      const { id, isHeld } = session.lease;
      if (!isHeld || leases.has(Number(id))) continue;
      this.#errors.push(`Leased: the lease ${id} is kept alive, and has ended`);
      this.#sessions.delete(session);
    }
    const beliefs = Array.from(this.#claims, (claim) => {
      if (!claim.lock.isHeld) this.#claims.delete(claim);
      return claim;
    }).filter(({ lock }) => lock.isHeld);
    this.#ownership.sample(
      performance.now(),
      beliefs.map(({ what, owner, lock: { fencingToken } }) => ({ what, owner, fencingToken })),
      [],
    );
  }

  /** Any call may fail, but none by a defect. */
  #failed(error: unknown): void {
    if (error instanceof WatchFanoutError && error.reason === "INTERNAL") {
      this.#errors.push(`Internal: ${error.message}`);
    }
  }
}
