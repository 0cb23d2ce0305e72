import { Fifo } from "../base/fifo.ts";

/** A call of `LeaseRenewals.renew`. */
export class RenewalRequest {
  /** Its renewals that are ready to be sent, and those among them that have an outcome meanwhile. */
  readonly ready = new Fifo<Renewal>();
  readonly answer = Promise.withResolvers<readonly (number | Error)[]>();
  readonly #outcomes: (number | Error)[];
  #left: number;

  constructor(leases: number) {
    this.#outcomes = new Array<number | Error>(leases).fill(0);
    this.#left = leases;
  }

  settle(position: number, outcome: number | Error): void {
    this.#outcomes[position] = outcome;
    this.#left--;
    if (this.#left === 0) this.answer.resolve(this.#outcomes);
  }
}

/** One renewal of a lease, for one or several requests. */
export class Renewal {
  readonly lease: bigint;
  /** The first request, whose turns it takes. */
  readonly owner: RenewalRequest;
  readonly #requests: RenewalRequest[] = [];
  /** Its positions in them. */
  readonly #positions: number[] = [];
  /** When it was asked for first. This and the following in the clock's milliseconds. */
  readonly askedAt: number;
  /** When it may be sent. */
  dueAt = 0;
  sentAt = 0;
  isOver = false;

  constructor(lease: bigint, owner: RenewalRequest, askedAt: number) {
    this.lease = lease;
    this.owner = owner;
    this.askedAt = askedAt;
  }

  add(request: RenewalRequest, position: number): void {
    this.#requests.push(request);
    this.#positions.push(position);
  }

  /** Takes over the requests of another renewal of the lease. */
  join(other: Renewal): void {
    for (const request of other.#requests) this.#requests.push(request);
    for (const position of other.#positions) this.#positions.push(position);
    other.isOver = true;
  }

  settle(outcome: number | Error): void {
    this.isOver = true;
    for (let i = 0; i < this.#requests.length; i++) {
      this.#requests[i]?.settle(this.#positions[i] as number, outcome);
    }
  }
}
