import { setImmediate as nextTurn } from "node:timers/promises";
import { Client, connectivityState, credentials } from "@grpc/grpc-js";
import { expect, test, vi } from "vitest";
import { closeForGood, stateOnceConnecting } from "../../src/base/grpc-channel.ts";

const clientOf = (target: string): Client => new Client(target, credentials.createInsecure());

test("An idle channel connects, and one that is closed meanwhile does not connect again.", () => {
  const client = clientOf("127.0.0.1:1");
  const channel = client.getChannel();
  const get = vi.spyOn(channel, "getConnectivityState");
  expect(stateOnceConnecting(channel)).toBe(connectivityState.IDLE);
  expect(get).toHaveBeenLastCalledWith(true);
  get.mockClear();
  closeForGood(client);
  expect(stateOnceConnecting(channel)).toBe(connectivityState.SHUTDOWN);
  expect(get).not.toHaveBeenCalledWith(true);
});

test.each(["127.0.0.1:1", "ipv4:127.0.0.1:1", "unix:/tmp/no-server", "localhost:1"])(
  "A channel to %s that is closed in the turn in which it begins to connect stays closed.",
  async (target) => {
    const client = clientOf(target);
    const channel = client.getChannel();
    channel.getConnectivityState(true);
    closeForGood(client);
    expect(channel.getConnectivityState(false)).toBe(connectivityState.SHUTDOWN);
    await nextTurn();
    await nextTurn();
    expect(channel.getConnectivityState(false)).toBe(connectivityState.SHUTDOWN);
  },
);
