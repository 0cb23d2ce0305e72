import { type ChildProcess, fork } from "node:child_process";
import { once } from "node:events";
import { connect } from "node:net";
import { describe, expect, it } from "vitest";
import { type Etcd, startEtcd } from "./etcd.ts";

/** The JSON of etcd's HTTP gateway: bytes are in base64. */
async function call(etcd: Etcd, path: string, body: object): Promise<unknown> {
  const response = await fetch(`${etcd.url}/v3/${path}`, {
    method: "POST",
    body: JSON.stringify(body),
    signal: AbortSignal.timeout(60_000),
  });
  return response.json();
}

const base64 = (text: string): string => Buffer.from(text).toString("base64");

function refusesConnections(url: string): Promise<boolean> {
  const { hostname, port } = new URL(url);
  return new Promise((resolve) => {
    const socket = connect(Number(port), hostname);
    socket.on("connect", () => {
      socket.destroy();
      resolve(false);
    });
    socket.on("error", () => resolve(true));
  });
}

describe("an etcd for tests", () => {
  it("keeps its data and its address when it is killed and started again", async () => {
    const etcd = await startEtcd();
    try {
      await call(etcd, "kv/put", { key: base64("a"), value: base64("1") });
      await etcd.kill();
      expect(await refusesConnections(etcd.url)).toBe(true);
      await etcd.start();
      const found = await call(etcd, "kv/range", { key: base64("a") });
      expect(found).toMatchObject({ kvs: [{ value: base64("1") }] });
    } finally {
      await etcd.stop();
    }
  });

  it("answers nothing while it is paused, and what it was asked afterwards", async () => {
    const etcd = await startEtcd();
    try {
      for (let i = 0; i < 20; i++) {
        await etcd.pause();
        let isCompleted = false;
        const response = call(etcd, "kv/put", { key: base64("a") }).then(() => {
          isCompleted = true;
        });
        // A round trip to another server; etcd's response would have come before its end.
        await refusesConnections(etcd.url);
        expect(isCompleted).toBe(false);
        etcd.resume();
        await response;
      }
    } finally {
      await etcd.stop();
    }
  });

  it("asks for a password when it is started with one", async () => {
    const etcd = await startEtcd({ rootPassword: "secret" });
    try {
      const refused = await call(etcd, "kv/range", { key: base64("a") });
      expect(refused).toMatchObject({ message: "etcdserver: user name is empty" });
      const token = await call(etcd, "auth/authenticate", { name: "root", password: "secret" });
      expect(token).toMatchObject({ token: expect.any(String) });
    } finally {
      await etcd.stop();
    }
  });

  it("dies with the process that started it, however that dies", async () => {
    const parent: ChildProcess = fork(new URL("started-elsewhere.ts", import.meta.url), {
      stdio: ["ignore", "ignore", "inherit", "ipc"],
      execArgv: [],
    });
    const [{ url }] = await once(parent, "message");
    expect(await refusesConnections(url)).toBe(false);
    const socket = connect(Number(new URL(url).port), "127.0.0.1");
    await once(socket, "connect");
    socket.resume();
    socket.on("error", () => undefined); // a reset is as good as an end
    const closed = new Promise((resolve) => socket.on("close", resolve));
    parent.kill("SIGKILL");
    await closed; // which only the end of etcd can do
  });
});
