/**
 * The least that a Node.js process pays to deliver the same bytes: a server that writes them to plain sockets, one write
 * per connection and event, and a reader that counts them. Two processes, started by messages.ts, which sends them
 * messages by IPC.
 */
import { once } from "node:events";
import { readFileSync } from "node:fs";
import { type AddressInfo, createServer, type Socket } from "node:net";
import { setTimeout as delay } from "node:timers/promises";
import { createServer as createTlsServer } from "node:tls";
import { answerParent } from "./child.ts";
import { connectTo } from "./http2-connection.ts";
import { monotonicMs } from "./monotonic-clock.ts";
import { cpuSeconds } from "./process-usage.ts";
import { tlsFiles } from "./servers.ts";

export type PlainQuestion =
  /** Listens. The answer is the URL. */
  | { readonly do: "listen"; readonly isTls: boolean }
  /** Writes `bytes` to each of the connections, `count` times. The answer is when each of these writes began. */
  | {
      readonly do: "write";
      readonly connections: number;
      readonly bytes: number;
      readonly perSecond: number;
      readonly count: number;
    }
  /** CPU seconds of the process. */
  | { readonly do: "cpu" }
  /** Connects. `bytes` are those of one event on one connection. */
  | {
      readonly do: "read";
      readonly url: string;
      readonly connections: number;
      readonly bytes: number;
    }
  /** When each event was complete on all connections. */
  | { readonly do: "completed"; readonly from: number; readonly to: number };

class PlainProcess {
  readonly #sockets = new Set<Socket>();
  readonly #completedAt: number[] = [];
  readonly #had: number[] = [];
  #onCompleted: (() => void) | undefined;

  async answer(question: PlainQuestion): Promise<unknown> {
    switch (question.do) {
      case "listen":
        return this.#listen(question.isTls);
      case "write":
        // A client may be connected before the server has accepted it.
        while (this.#sockets.size < question.connections) await delay(1);
        return this.#write(question.bytes, question.perSecond, question.count);
      case "cpu":
        return cpuSeconds(process.pid);
      case "read":
        return this.#read(question.url, question.connections, question.bytes);
      case "completed":
        while (this.#completedAt.length < question.to) {
          await new Promise<void>((resolve) => {
            this.#onCompleted = resolve;
          });
        }
        return this.#completedAt.slice(question.from, question.to);
    }
  }

  async #listen(isTls: boolean): Promise<string> {
    const take = (socket: Socket): void => {
      socket.setNoDelay();
      socket.on("error", () => {});
      this.#sockets.add(socket);
    };
    const tls = { cert: readFileSync(tlsFiles.cert), key: readFileSync(tlsFiles.key) };
    const server = isTls
      ? createTlsServer({ ...tls, ALPNProtocols: ["h2"] }, take)
      : createServer(take);
    server.listen(0, "127.0.0.1");
    await once(server, "listening");
    const { port } = server.address() as AddressInfo;
    return `${isTls ? "https" : "http"}://127.0.0.1:${port}`;
  }

  async #write(bytes: number, perSecond: number, count: number): Promise<number[]> {
    const event = Buffer.alloc(bytes, 1);
    const sentAt: number[] = [];
    const started = monotonicMs();
    for (let i = 0; i < count; i++) {
      const wait = started + (i * 1_000) / perSecond - monotonicMs();
      if (wait > 0) await delay(wait);
      sentAt.push(monotonicMs());
      for (const socket of this.#sockets) socket.write(event);
    }
    return sentAt;
  }

  async #read(url: string, connections: number, bytes: number): Promise<void> {
    const connected = new URL(url).protocol === "https:" ? "secureConnect" : "connect";
    for (let i = 0; i < connections; i++) {
      let received = 0;
      const socket = connectTo(url, (chunk) => {
        const before = Math.floor(received / bytes);
        received += chunk.length;
        const after = Math.floor(received / bytes);
        for (let n = before; n < after; n++) this.#took(n, connections);
      });
      await once(socket, connected);
    }
  }

  #took(event: number, connections: number): void {
    const had = (this.#had[event] ?? 0) + 1;
    this.#had[event] = had;
    if (had < connections) return;
    this.#completedAt[event] = monotonicMs();
    this.#onCompleted?.();
  }
}

if (import.meta.main) {
  const plain = new PlainProcess();
  answerParent<PlainQuestion>((question) => plain.answer(question));
}
