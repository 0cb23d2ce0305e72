import type { WaitBounds } from "../../base/wait.ts";
import type { CallContext } from "./call-context.ts";
import { outOfRequestRoom } from "./refusals.ts";
import { RefusedRequest } from "./server-call.ts";

/**
 * Charges a connection with a request of it that waits, like with one that is incomplete. Its wait rejects with a
 * `RefusedRequest` if the charge is evicted.
 */
export function chargeOfRequest(
  {
    requestPool,
    maxUnreadBytesPerConnection,
  }: Pick<CallContext, "requestPool" | "maxUnreadBytesPerConnection">,
  connection: object,
  bytes: number,
): NonNullable<WaitBounds<void>["charge"]> {
  return (evict) =>
    requestPool.reserve(connection, bytes, () =>
      evict(new RefusedRequest(outOfRequestRoom(maxUnreadBytesPerConnection))),
    );
}
