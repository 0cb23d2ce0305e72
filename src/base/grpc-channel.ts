import { type Channel, connectivity } from "./grpc-codes.ts";

/**
 * The state of a channel, which connects if it is idle. One that was closed stays closed: `getConnectivityState(true)` of
 * grpc-js would make it connect, and connect again whenever that fails, until the process ends.
 */
export function stateOnceConnecting(channel: Channel): number {
  const state = channel.getConnectivityState(false);
  return state === connectivity.SHUTDOWN ? state : channel.getConnectivityState(true);
}

/**
 * Closes a client of grpc-js. Where a channel is closed in the turn in which it begins to connect, grpc-js gets the address a
 * turn later, and connects, again and again as long as the process lives. So it is closed again behind that.
 */
export function closeForGood(client: { close(): void }): void {
  client.close();
  setImmediate(() => client.close());
}
