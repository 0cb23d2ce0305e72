import { Client, connectivityState, credentials } from "@grpc/grpc-js";
import { expect, test, vi } from "vitest";
import { stateOnceConnecting } from "../../src/base/server-reachability.ts";

test("An idle channel connects, and one that is closed meanwhile does not connect again.", () => {
  const client = new Client("127.0.0.1:1", credentials.createInsecure());
  const channel = client.getChannel();
  const get = vi.spyOn(channel, "getConnectivityState");
  expect(stateOnceConnecting(channel)).toBe(connectivityState.IDLE);
  expect(get).toHaveBeenLastCalledWith(true);
  get.mockClear();
  client.close();
  expect(stateOnceConnecting(channel)).toBe(connectivityState.SHUTDOWN);
  expect(get).not.toHaveBeenCalledWith(true);
});
