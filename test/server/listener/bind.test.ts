import { once } from "node:events";
import { connect, createServer } from "node:net";
import { describe, expect, onTestFinished, test } from "vitest";
import { systemClock } from "../../../src/base/clock.ts";
import { bind } from "../../../src/server/listener/bind.ts";

/** The last one is not an address of this machine. */
const addresses = ["127.0.0.2", "127.0.0.3", "192.0.2.1"].map((address) => ({ address }));

async function bound(host: string, port: number = 0) {
  const connections: string[] = [];
  const result = await bind(
    { host, port },
    {
      clock: systemClock,
      onConnection: (socket) => {
        connections.push(socket.localAddress ?? "");
        socket.destroy();
      },
      onError: () => {},
      lookup: async () => addresses,
    },
  );
  onTestFinished(() => result.close());
  return { ...result, connections };
}

async function connected(host: string, port: number): Promise<void> {
  const socket = connect(port, host).resume();
  await once(socket, "close");
}

describe("A name with several addresses", () => {
  test("is listened on at all of them that this machine has, with one port", async () => {
    const { port, connections } = await bound("several.example");
    await connected("127.0.0.2", port);
    await connected("127.0.0.3", port);
    expect(connections).toEqual(["127.0.0.2", "127.0.0.3"]);
  });

  test("is refused if all of them are in use or of other machines", async () => {
    const taken: { port: number; close(): void }[] = [];
    const first = await bound("127.0.0.2");
    taken.push(first);
    const other = createServer().listen(first.port, "127.0.0.3");
    onTestFinished(() => void other.close());
    await once(other, "listening");
    await expect(bound("several.example", first.port)).rejects.toThrow("EADDRINUSE");
  });
});

test("What is closed twice accepts no more connections", async () => {
  const { port, close } = await bound("127.0.0.1");
  close();
  close();
  const refused = connect(port, "127.0.0.1");
  await expect(once(refused, "connect")).rejects.toThrow("ECONNREFUSED");
});
