import { once } from "node:events";
import { mkdtempSync, readFileSync, rmSync } from "node:fs";
import { type AddressInfo, connect, createServer, type Socket } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { describe, expect, onTestFinished, test } from "vitest";
import { systemClock } from "../../../src/base/clock.ts";
import { bind } from "../../../src/server/listener/bind.ts";

/** The last one is not an address of this machine. */
const severalAddresses = ["127.0.0.2", "127.0.0.3", "192.0.2.1"];

async function bound(host: string, port: number = 0, addresses = severalAddresses) {
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
      lookup: async () => addresses.map((address) => ({ address })),
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

  test("is refused if none of them is one of this machine", async () => {
    await expect(bound("elsewhere.example", 0, ["192.0.2.1"])).rejects.toThrow("EADDRNOTAVAIL");
  });

  test("is refused without any address", async () => {
    const listening = bound("nowhere.example", 0, []);
    await expect(listening).rejects.toEqual(new Error("unknown host name"));
  });

  test("is refused if one of them is in use, and listened on at none", async () => {
    const other = createServer().listen(0, "127.0.0.3");
    onTestFinished(() => void other.close());
    await once(other, "listening");
    const { port } = other.address() as AddressInfo;
    await expect(bound("several.example", port)).rejects.toThrow("EADDRINUSE");
    const refused = connect(port, "127.0.0.2");
    await expect(once(refused, "connect")).rejects.toThrow("ECONNREFUSED");
  });
});

test("A Unix socket whose permissions can't be set is not listened on", async () => {
  const folder = mkdtempSync(join(tmpdir(), "bind-"));
  onTestFinished(() => rmSync(folder, { recursive: true }));
  const sockets = () => process.getActiveResourcesInfo().filter((name) => name === "PipeWrap");
  const before = sockets().length;
  const listening = bind(
    { path: join(folder, "s"), mode: -1 },
    { clock: systemClock, onConnection: () => {}, onError: () => {} },
  );
  await expect(listening).rejects.toThrow("mode");
  while (sockets().length > before) await new Promise(setImmediate);
});

test("What is closed twice accepts no more connections", async () => {
  const { port, close } = await bound("127.0.0.1");
  close();
  close();
  const refused = connect(port, "127.0.0.1");
  await expect(once(refused, "connect")).rejects.toThrow("ECONNREFUSED");
});

test.runIf(process.platform === "linux")(
  "The operating system probes a connection on which nothing is sent",
  async () => {
    const { promise: accepted, resolve } = Promise.withResolvers<Socket>();
    const { port, close } = await bind(
      { host: "127.0.0.1", port: 0 },
      { clock: systemClock, onConnection: resolve, onError: () => {} },
    );
    onTestFinished(close);
    const client = connect(port, "127.0.0.1");
    onTestFinished(() => void client.destroy());
    const socket = await accepted;
    onTestFinished(() => void socket.destroy());
    const hex = (of: number | undefined) => `:${of?.toString(16).toUpperCase().padStart(4, "0")} `;
    const line = readFileSync("/proc/net/tcp", "utf8")
      .split("\n")
      .find((each) => each.includes(`${hex(port)}0100007F${hex(socket.remotePort)}`));
    // Its timer is the one of keepalive.
    expect(line).toMatch(/ 01 \w+:\w+ 02:/);
  },
);
