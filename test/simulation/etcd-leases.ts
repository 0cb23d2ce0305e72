import type { Entry } from "./etcd-member.ts";
import type { EtcdStore } from "./etcd-store.ts";
import type { Agenda, ScheduledEvent } from "./scheduler.ts";

/** What leases need of the cluster. */
interface Leased {
  readonly state: EtcdStore;
  readonly hasLeader: boolean;
  commit(entry: Entry): unknown;
}

/** How long the leader takes from the end of a lease until it revokes it, in milliseconds (etcd looks twice a second). */
const lateMs = 500;

/** How long a lease lives, as the leader of the simulated etcd knows it (etcd's package lease). A new leader begins to count again. */
export class EtcdLeases {
  readonly #cluster: Leased;
  readonly #agenda: Agenda;
  /** Whether no lease ends. */
  isHeld = false;
  readonly #ends = new Map<number, { readonly atMs: number; readonly event: ScheduledEvent }>();

  constructor(cluster: Leased, agenda: Agenda) {
    this.#cluster = cluster;
    this.#agenda = agenda;
  }

  /** An entry has been applied. */
  committed(entry: Entry): void {
    if (entry.type === "grant") this.keepAlive(entry.id);
    else if (entry.type === "revoke") this.#forget(entry.id);
  }

  keepAlive(id: number): number {
    const ttl = this.#cluster.state.leases.get(id);
    this.#forget(id);
    if (ttl === undefined) return 0;
    const lifeMs = ttl * 1_000;
    const expire = (): void => {
      // Without a leader no lease ends.
      if (this.#cluster.hasLeader && !this.isHeld) this.#cluster.commit({ type: "revoke", id });
      else this.keepAlive(id);
    };
    const event = this.#agenda.after(lifeMs + lateMs, `lease ${id} ends`, expire);
    this.#ends.set(id, { atMs: this.#agenda.time + lifeMs, event });
    return ttl;
  }

  remainingMs(id: number): number | undefined {
    const end = this.#ends.get(id);
    return end && Math.max(0, end.atMs - this.#agenda.time);
  }

  /** The state was replaced: all leases of the new one live as long as when they were granted. */
  restored(): void {
    for (const id of [...this.#ends.keys()]) this.#forget(id);
    for (const id of this.#cluster.state.leases.keys()) this.keepAlive(id);
  }

  /** Nothing expires any more. */
  stop(): void {
    for (const id of [...this.#ends.keys()]) this.#forget(id);
  }

  #forget(id: number): void {
    this.#ends.get(id)?.event.cancel();
    this.#ends.delete(id);
  }
}
