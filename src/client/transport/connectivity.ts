import { stateOnceConnecting } from "../../base/grpc-channel.ts";
import { type Channel, connectivity } from "../../base/grpc-codes.ts";
import { endlessMs } from "./transport.ts";

/**
 * Resolves to true when the channel is connected or has failed to connect, so that a call is sent or fails
 * immediately; to false after `timeoutMs`. A call on a channel that connects waits for its whole timeout, even if
 * other servers would respond. `isPatient`: a channel that has failed is not decided, as it connects again by itself.
 */
export async function isDecided(
  channel: Channel,
  timeoutMs: number,
  isPatient: boolean,
): Promise<boolean> {
  const deadline = Date.now() + Math.min(timeoutMs, endlessMs);
  for (;;) {
    const state = stateOnceConnecting(channel);
    const { READY, TRANSIENT_FAILURE, SHUTDOWN } = connectivity;
    const hasFailed = state === TRANSIENT_FAILURE && !isPatient;
    if (state === READY || state === SHUTDOWN || hasFailed) return true;
    const isLate = await new Promise<boolean>((resolve) => {
      channel.watchConnectivityState(state, deadline, (late) => resolve(late !== undefined));
    });
    if (isLate) return false;
  }
}

/** Whether a channel has a connection. */
export function isConnected(channel: Channel): boolean {
  return channel.getConnectivityState(false) === connectivity.READY;
}

/** Whether a channel connects, or waits to connect again after a failure. */
export function isConnecting(channel: Channel): boolean {
  const state = channel.getConnectivityState(false);
  return state === connectivity.CONNECTING || state === connectivity.TRANSIENT_FAILURE;
}
