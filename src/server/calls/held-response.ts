import { status } from "@grpc/grpc-js";
import type { WireStatus } from "../../wire/errors.ts";
import type { SendBudget, SendReservation } from "../limits/send-budget.ts";
import { refused } from "./refusals.ts";

/** By how much what is held may differ from what is charged, in bytes. */
const chargedBytes = 64 * 1024;

const noRoom = "the responses that clients have not accepted take too much memory";

/** Counts in the send budget what is held of a response that has not arrived completely, and so can't be sent. */
export class HeldResponse {
  readonly #budget: SendBudget;
  readonly #connection: object;
  readonly #end: (why: WireStatus) => void;
  #reservation: SendReservation | undefined;

  /** `end` ends the call, when all that is held is too much and this call holds most of it. */
  constructor(budget: SendBudget, connection: object, end: (why: WireStatus) => void) {
    this.#budget = budget;
    this.#connection = connection;
    this.#end = end;
  }

  /** Charges the number of bytes that are held now. May end the call. */
  charge(heldBytes: number): void {
    const charged = this.#reservation?.bytes ?? 0;
    const bytes = heldBytes < chargedBytes ? 0 : heldBytes;
    if (bytes === charged || (bytes > 0 && Math.abs(bytes - charged) < chargedBytes)) return;
    this.release();
    if (bytes === 0) return;
    this.#reservation = this.#budget.force(this.#connection);
    this.#reservation.send([], () => this.#end(refused(status.UNAVAILABLE, noRoom)), bytes);
  }

  /** Nothing is held. */
  release(): void {
    this.#reservation?.release();
    this.#reservation = undefined;
  }
}
