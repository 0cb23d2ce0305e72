import type { Delivery } from "../../src/cacher/request/request.ts";

/** The delivery modes, by the numbers that they have in the contract. */
export const deliveries: Readonly<Record<Delivery, number>> = { EVERY_EVENT: 1, LATEST_STATE: 2 };
