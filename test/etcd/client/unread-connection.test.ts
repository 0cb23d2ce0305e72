import { once } from "node:events";
import { createServer } from "node:http2";
import { type AddressInfo, connect, createServer as createTcpServer, type Socket } from "node:net";
import { expect, onTestFinished, test } from "vitest";
import { Http2Connection } from "../../../src/etcd/client/upstream-connection.ts";
import { FakeClock } from "../../fake-clock.ts";

const settings = { initialWindowSize: 2 ** 30 };

/** A member that takes requests of any size, and reads nothing more after `hang`. */
async function startHanging() {
  const sockets: Socket[] = [];
  const member = createServer({ settings });
  member.on("session", (session) => session.setLocalWindowSize(2 ** 30));
  const server = createTcpServer((socket) => {
    sockets.push(socket);
    member.emit("connection", socket);
  });
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  const proxied: Socket[] = [];
  // What hangs is behind a socket that the test can stop reading.
  const proxy = createTcpServer((socket) => {
    const inner = connect((server.address() as AddressInfo).port, "127.0.0.1");
    proxied.push(socket, inner);
    for (const each of [socket, inner]) each.on("error", () => {});
    socket.pipe(inner).pipe(socket);
  });
  await new Promise<void>((resolve) => proxy.listen(0, "127.0.0.1", resolve));
  onTestFinished(() => {
    for (const socket of [...sockets, ...proxied]) socket.destroy();
    proxy.close();
    server.close();
  });
  const hang = (): void => {
    for (const socket of proxied) {
      socket.unpipe();
      socket.pause();
    }
  };
  return { port: (proxy.address() as AddressInfo).port, hang };
}

test("A connection whose member reads nothing is closed, also while it is being written to.", async () => {
  const clock = new FakeClock();
  const { port, hang } = await startHanging();
  const opened = connect(port, "127.0.0.1");
  onTestFinished(() => void opened.destroy());
  const connection = await Http2Connection.connect(clock, {
    ...{ endpoint: "http://localhost", isInUse: true, isLeftOut: false, open: () => opened },
    keepalive: { timeMs: 1_000, timeoutMs: 500, withoutCalls: false },
    ...{ refused: () => {}, idle: () => {}, lost: () => {} },
  });
  const request = connection.request({ ":method": "POST", ":path": "/a" });
  // More than all buffers of the kernel have room for.
  request.write(Buffer.alloc(1024 ** 2));
  await new Promise<void>((resolve) => request.write(Buffer.alloc(1024 ** 2), () => resolve()));
  hang();
  request.write(Buffer.alloc(64 * 1024 ** 2));
  await new Promise((resolve) => setImmediate(resolve));
  clock.advance(1_000);
  clock.advance(500);
  expect(connection.isUnresponsive).toBe(true);
  if (!opened.closed) await once(opened, "close");
  expect(opened.destroyed).toBe(true);
});
