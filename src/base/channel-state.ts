import { type Client, connectivityState } from "@grpc/grpc-js";

type Channel = Pick<ReturnType<Client["getChannel"]>, "getConnectivityState">;

/**
 * The state of a channel, which connects if it is idle. One that was closed stays closed: `getConnectivityState(true)` of
 * grpc-js would make it connect, and connect again whenever that fails, until the process ends.
 */
export function stateOnceConnecting(channel: Channel): connectivityState {
  const state = channel.getConnectivityState(false);
  return state === connectivityState.SHUTDOWN ? state : channel.getConnectivityState(true);
}
