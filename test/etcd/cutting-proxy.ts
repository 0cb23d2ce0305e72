import { once } from "node:events";
import { connect, createServer, type Server, type Socket } from "node:net";

/** A TCP proxy that drops connections, or the bytes on them, on request. */
export class CuttingProxy {
  readonly #server: Server;
  readonly #target: URL;
  readonly #sockets = new Set<Socket>();
  /** Number of response bytes that still pass before every connection is reset. */
  #allowance = Number.POSITIVE_INFINITY;
  #losesResponses = false;
  #refuses = false;

  private constructor(target: URL) {
    this.#target = target;
    this.#server = createServer((client) => this.#join(client));
  }

  static async to(url: string): Promise<CuttingProxy> {
    const proxy = new CuttingProxy(new URL(url));
    proxy.#server.listen(0, "127.0.0.1");
    await once(proxy.#server, "listening");
    return proxy;
  }

  get url(): string {
    const address = this.#server.address();
    if (address === null || typeof address === "string") throw new Error("The proxy is closed.");
    return `http://127.0.0.1:${address.port}`;
  }

  /** Lets this many more response bytes pass, then resets every connection once. */
  cutAfter(bytes: number): void {
    this.#allowance = bytes;
  }

  /** From now on requests pass and responses are dropped. */
  loseResponses(): void {
    this.#losesResponses = true;
  }

  /** Resets every connection, and each new one, until `accept`. */
  refuse(): void {
    this.#refuses = true;
    for (const socket of this.#sockets) socket.resetAndDestroy();
  }

  accept(): void {
    this.#refuses = false;
  }

  /** Resets every connection, and passes everything from now on. */
  reset(): void {
    this.#allowance = Number.POSITIVE_INFINITY;
    this.#losesResponses = false;
    for (const socket of this.#sockets) socket.resetAndDestroy();
  }

  async close(): Promise<void> {
    this.#server.close();
    this.reset();
  }

  #join(client: Socket): void {
    if (this.#refuses) {
      client.resetAndDestroy();
      return;
    }
    const upstream = connect(Number(this.#target.port), this.#target.hostname);
    for (const [one, other] of [
      [client, upstream],
      [upstream, client],
    ] as const) {
      this.#sockets.add(one);
      one.on("error", () => other.destroy());
      one.on("close", () => {
        this.#sockets.delete(one);
        other.destroy();
      });
    }
    client.on("data", (chunk) => upstream.write(chunk));
    upstream.on("data", (chunk) => {
      if (this.#losesResponses) return;
      this.#allowance -= chunk.byteLength;
      if (this.#allowance >= 0) this.#pass(chunk, upstream, client);
      else this.#cut(chunk, client);
    });
  }

  /** Reads no more than it can write, so that a reader's back-pressure reaches the source. */
  #pass(chunk: Buffer, from: Socket, to: Socket): void {
    if (to.write(chunk)) return;
    from.pause();
    to.once("drain", () => from.resume());
  }

  #cut(chunk: Buffer, client: Socket): void {
    const rest = chunk.subarray(0, chunk.byteLength + this.#allowance);
    this.#allowance = Number.POSITIVE_INFINITY;
    client.end(rest, () => this.reset());
  }
}
