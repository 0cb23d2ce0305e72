import { once } from "node:events";
import { connect, createServer, type Server, type Socket } from "node:net";

export interface RelayOptions {
  /** Default: any free one. */
  readonly port?: number;
  /** The name of the dialling client, from the first bytes that it sends. Default: unknown. */
  readonly dialerOf?: (firstBytes: Buffer) => string | undefined;
}

/** Whose connections a fault concerns; undefined: all. */
type Dialer = string | undefined;

/**
 * A TCP relay that treats what passes through it as bad networks do. Everything that it does is undone by
 * `heal`, except for lost data.
 */
export class Relay {
  readonly #server: Server;
  readonly #options: RelayOptions;
  readonly #pairs = new Set<Pair>();
  readonly #refused = new Set<Dialer>();
  #target: number;
  #isHeld = false;
  #losesResponses = false;
  #delayMs = 0;
  /** How many bytes of responses may still pass before every connection is reset. */
  #allowance = Number.POSITIVE_INFINITY;
  #passed = 0;
  #cuts = 0;
  #accepted = 0;

  private constructor(target: number, options: RelayOptions) {
    this.#target = target;
    this.#options = options;
    this.#server = createServer((client) => this.#accept(client));
  }

  /** `target` is a port of 127.0.0.1. */
  static async to(target: number, options: RelayOptions = {}): Promise<Relay> {
    const relay = new Relay(target, options);
    relay.#server.listen(options.port ?? 0, "127.0.0.1");
    await once(relay.#server, "listening");
    return relay;
  }

  get port(): number {
    const address = this.#server.address();
    if (address === null || typeof address === "string") throw new Error("The relay is closed.");
    return address.port;
  }

  get url(): string {
    return `http://127.0.0.1:${this.port}`;
  }

  /** Bytes of responses that have gone through. */
  get passed(): number {
    return this.#passed;
  }

  /** How often connections were cut because so many bytes had passed. */
  get cuts(): number {
    return this.#cuts;
  }

  get connections(): number {
    return this.#pairs.size;
  }

  /** How many connections have been accepted so far. */
  get accepted(): number {
    return this.#accepted;
  }

  /** New connections go there from now on. */
  aimAt(target: number): void {
    this.#target = target;
  }

  /** Resets every connection. New ones are let through. */
  cut(): void {
    this.#allowance = Number.POSITIVE_INFINITY;
    for (const pair of this.#pairs) pair.reset();
  }

  /** Lets so many more bytes of responses through, then ends every connection, once. */
  cutAfter(bytes: number): void {
    this.#allowance = bytes;
  }

  /** Nothing passes any more in either direction, and the sockets stay open. */
  hold(): void {
    this.#isHeld = true;
    for (const pair of this.#pairs) pair.hold();
  }

  /** From now on requests pass and responses are lost. */
  loseResponses(): void {
    this.#losesResponses = true;
  }

  /** Delays all later data by this time, in order. */
  delay(ms: number): void {
    this.#delayMs = ms;
  }

  /** Resets the connections of this dialer, or all, and every new one at once. */
  refuse(dialer?: string): void {
    this.#refused.add(dialer);
    for (const pair of this.#pairs) if (this.#isRefused(pair.dialer)) pair.reset();
  }

  /** Lets everything pass again that is still there to pass. */
  heal(): void {
    this.#allowance = Number.POSITIVE_INFINITY;
    this.#delayMs = 0;
    this.#refused.clear();
    this.#isHeld = false;
    // Data lost in the middle of a connection can't be recovered.
    if (this.#losesResponses) this.cut();
    this.#losesResponses = false;
    for (const pair of this.#pairs) pair.release();
  }

  async close(): Promise<void> {
    const closed = once(this.#server, "close");
    this.#server.close();
    this.cut();
    await closed;
  }

  #isRefused(dialer: Dialer): boolean {
    return this.#refused.has(undefined) || (dialer !== undefined && this.#refused.has(dialer));
  }

  #accept(client: Socket): void {
    this.#accepted++;
    const pair = new Pair(client, connect({ port: this.#target, host: "127.0.0.1" }), {
      onRequest: (chunk) => this.#onRequest(pair, chunk),
      onResponse: (chunk) => this.#onResponse(pair, chunk),
      onClose: () => this.#pairs.delete(pair),
    });
    this.#pairs.add(pair);
    if (this.#isRefused(undefined)) pair.reset();
    else if (this.#isHeld) pair.hold();
  }

  #onRequest(pair: Pair, chunk: Buffer): void {
    pair.dialer ??= this.#options.dialerOf?.(chunk);
    if (this.#isRefused(pair.dialer)) pair.reset();
    else pair.toServer(chunk, this.#delayMs);
  }

  #onResponse(pair: Pair, chunk: Buffer): void {
    if (this.#losesResponses) return;
    this.#passed += Math.min(chunk.byteLength, this.#allowance);
    this.#allowance -= chunk.byteLength;
    if (this.#allowance >= 0) {
      pair.toClient(chunk, this.#delayMs);
      return;
    }
    const rest = chunk.subarray(0, chunk.byteLength + this.#allowance);
    this.#allowance = Number.POSITIVE_INFINITY;
    this.#cuts++;
    for (const other of this.#pairs) if (other !== pair) other.reset();
    pair.endWith(rest);
  }
}

interface PairListeners {
  onRequest(chunk: Buffer): void;
  onResponse(chunk: Buffer): void;
  onClose(): void;
}

/** A client's connection and the one that continues it. */
class Pair {
  /** The name of the dialling client, once known. */
  dialer: Dialer;
  readonly #toServer: Way;
  readonly #toClient: Way;

  constructor(client: Socket, server: Socket, listeners: PairListeners) {
    this.#toServer = new Way(client, server);
    this.#toClient = new Way(server, client);
    let open = 2;
    for (const [one, other] of [
      [client, server],
      [server, client],
    ] as const) {
      one.setNoDelay(true);
      one.on("error", () => other.resetAndDestroy());
      one.on("close", () => {
        // Data already written is sent first.
        other.end();
        open--;
        if (open === 0) listeners.onClose();
      });
    }
    client.on("data", (chunk) => listeners.onRequest(chunk));
    server.on("data", (chunk) => listeners.onResponse(chunk));
  }

  toServer(chunk: Buffer, delayMs: number): void {
    this.#toServer.pass(chunk, delayMs);
  }

  toClient(chunk: Buffer, delayMs: number): void {
    this.#toClient.pass(chunk, delayMs);
  }

  hold(): void {
    this.#toServer.hold();
    this.#toClient.hold();
  }

  release(): void {
    this.#toServer.release();
    this.#toClient.release();
  }

  reset(): void {
    this.#toServer.from.resetAndDestroy();
    this.#toClient.from.resetAndDestroy();
  }

  /** The client gets these last bytes and then the end: a reset could overtake them. */
  endWith(rest: Buffer): void {
    const { from: server, to: client } = this.#toClient;
    server.removeAllListeners("data");
    server.resetAndDestroy();
    client.end(rest);
  }
}

/** One direction of a pair. */
class Way {
  readonly from: Socket;
  readonly to: Socket;
  /** Delayed data, in order. */
  readonly #late: Buffer[] = [];
  #isHeld = false;
  #isFull = false;

  constructor(from: Socket, to: Socket) {
    this.from = from;
    this.to = to;
    to.on("drain", () => {
      this.#isFull = false;
      this.#flow();
    });
  }

  /** Reads no more than it can pass on, so that a reader's back-pressure reaches the source. */
  pass(chunk: Buffer, delayMs: number): void {
    if (delayMs === 0 && this.#late.length === 0) {
      this.#isFull = !this.to.write(chunk);
      this.#flow();
      return;
    }
    this.#late.push(chunk);
    // Whichever chunk it was set for: what came first goes first.
    setTimeout(() => {
      const first = this.#late.shift();
      if (first !== undefined && this.to.writable) this.to.write(first);
    }, delayMs).unref();
  }

  hold(): void {
    this.#isHeld = true;
    this.#flow();
  }

  release(): void {
    this.#isHeld = false;
    this.#flow();
  }

  #flow(): void {
    if (this.#isHeld || this.#isFull) this.from.pause();
    else this.from.resume();
  }
}
