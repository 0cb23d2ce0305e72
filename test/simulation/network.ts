import { EventEmitter } from "node:events";
import type { NetConnectOpts, Server, Socket } from "node:net";
import { Duplex } from "node:stream";
import type { Seeded } from "../faults/seeded.ts";
import type { Scheduler } from "./scheduler.ts";

/** How many bytes the system holds for one direction of a connection, those on their way included. */
const windowBytes = 64 * 1024;

/** How the network between two hosts behaves, until that is changed. */
export interface LinkState {
  /** How long a chunk is under way, in milliseconds: between this and twice as much. */
  latencyMs: number;
  /** Nothing arrives until this ends, and nothing is lost. Connections are neither accepted nor refused. */
  isHeld: boolean;
  /** Connections are refused. */
  isRefused: boolean;
}

/** What TCP may do to the bytes of a connection, each with this probability for a chunk. */
export interface Chunking {
  /** It arrives in two parts. */
  readonly split: number;
  /** It arrives together with those that have arrived behind it. */
  readonly joined: number;
}

/**
 * The network of a simulation, in the place of `node:net`. Each host has a number, and each pair of hosts a link of its own: the
 * address 10.CLIENT.SERVER.1 is what host CLIENT calls host SERVER, so an address says whose connection it is.
 */
export class Network {
  readonly #scheduler: Scheduler;
  readonly #random: Seeded;
  readonly #chunking: Chunking;
  readonly #links = new Map<string, Link>();
  readonly #listeners = new Map<string, SimulatedServer>();
  readonly #latencyMs: number;
  #connections = 0;

  /** `latencyMs`: of each link, at first. */
  constructor(scheduler: Scheduler, random: Seeded, chunking: Chunking, latencyMs: number) {
    this.#scheduler = scheduler;
    this.#random = random;
    this.#chunking = chunking;
    this.#latencyMs = latencyMs;
  }

  /** Number of open ends of connections. */
  get openSockets(): number {
    let open = 0;
    for (const link of this.#links.values()) open += link.sockets.size;
    return open;
  }

  /** The address by which host `from` reaches host `to`. */
  static address(from: number, to: number): string {
    return `10.${from}.${to}.1`;
  }

  link(from: number, to: number): Link {
    const key = `${from}>${to}`;
    let link = this.#links.get(key);
    if (link === undefined) {
      link = new Link(key, this.#latencyMs);
      this.#links.set(key, link);
    }
    return link;
  }

  /** All links from or to a host. */
  *linksOf(host: number): Iterable<Link> {
    for (const [key, link] of this.#links) {
      const [from, to] = key.split(">");
      if (Number(from) === host || Number(to) === host) yield link;
    }
  }

  /** As `net.connect`. */
  connect(...given: readonly unknown[]): Socket {
    const { host, port } = destinationOf(given);
    const [, from, to] = host.split(".").map(Number);
    if (from === undefined || to === undefined) throw new Error(`No such host: ${host}`);
    const link = this.link(from, to);
    const name = `${link.name}#${this.#connections++}`;
    const client = this.#socket(link, `${name}c`, host, port);
    const onConnect = given.find((one) => typeof one === "function");
    if (onConnect !== undefined) client.once("connect", onConnect as () => void);
    this.#dial(client, link, name, `${to}:${port}`);
    return client as unknown as Socket;
  }

  /** As `net.createServer`. */
  createServer(...given: readonly unknown[]): Server {
    const onConnection = given.find((one) => typeof one === "function");
    const server = new SimulatedServer(this.#scheduler, this.#listeners);
    if (onConnection !== undefined) server.on("connection", onConnection as () => void);
    return server as unknown as Server;
  }

  /** Ends all connections of a link, with what is under way; or only one of the ends notices it. */
  cut(link: Link, who: "both" | "client" | "server" = "both"): void {
    for (const socket of [...link.sockets]) {
      if (who === "both" || socket.name.endsWith(who === "client" ? "c" : "s")) socket.reset();
    }
  }

  /** What was held arrives. */
  release(link: Link): void {
    link.state.isHeld = false;
    for (const resume of link.held.splice(0)) resume();
  }

  #dial(client: SimulatedSocket, link: Link, name: string, listener: string): void {
    this.#scheduler.after(link.delayMs(this.#random), `dial ${name}`, () => {
      if (client.destroyed) return;
      if (link.state.isHeld) {
        link.held.push(() => this.#dial(client, link, name, listener));
        return;
      }
      const server = this.#listeners.get(listener);
      if (server === undefined || link.state.isRefused) {
        const address = `${client.remoteAddress}:${client.remotePort}`;
        const error = new Error(`connect ECONNREFUSED ${address}`);
        client.destroy(Object.assign(error, { code: "ECONNREFUSED" }));
        return;
      }
      const accepted = this.#socket(link, `${name}s`, client.remoteAddress, 30_000);
      client.connectTo(accepted);
      accepted.connectTo(client);
      server.emit("connection", accepted);
    });
  }

  #socket(link: Link, name: string, address: string, port: number): SimulatedSocket {
    return new SimulatedSocket(this.#scheduler, this.#random, this.#chunking, link, {
      ...{ name, address, port },
    });
  }
}

/** The network from one host to another, for the connections that the first makes. */
export class Link {
  readonly name: string;
  readonly state: LinkState;
  readonly sockets = new Set<SimulatedSocket>();
  /** What continues when the link is no longer held. */
  readonly held: (() => void)[] = [];

  constructor(name: string, latencyMs: number) {
    this.name = name;
    this.state = { latencyMs, isHeld: false, isRefused: false };
  }

  delayMs(random: Seeded): number {
    return this.state.latencyMs * (1 + random.next());
  }
}

type Done = (error?: Error | null) => void;

/**
 * One end of a simulated connection, in the place of a `net.Socket`. For Node.js it is a stream of JavaScript, so no microtask
 * runs between two HTTP/2 frames of one chunk, unlike with a socket of the system, and as in Deno.
 */
export class SimulatedSocket extends Duplex {
  readonly name: string;
  readonly remoteAddress: string;
  readonly remotePort: number;
  connecting = true;
  readonly #scheduler: Scheduler;
  readonly #random: Seeded;
  readonly #chunking: Chunking;
  readonly #link: Link;
  #peer: SimulatedSocket | undefined;
  /** Sends what was written before it is connected. */
  #early: (() => void)[] = [];
  /** What was sent and the other end has not taken, in its order: chunks, and `null` for the end. */
  readonly #sent: (Buffer | null)[] = [];
  #sentBytes = 0;
  /** How many of those have arrived at the other end. */
  #arrived = 0;
  /** When the last of them arrives, in the scheduler's milliseconds; later if the link is held. */
  #arrivesAt = 0;
  /** The writes that wait for room. */
  #waiting: Done[] = [];
  /** Whether the code under test takes more. */
  #isWanted = false;

  constructor(
    scheduler: Scheduler,
    random: Seeded,
    chunking: Chunking,
    link: Link,
    { name, address, port }: { name: string; address: string; port: number },
  ) {
    super({ allowHalfOpen: false });
    this.#scheduler = scheduler;
    this.#random = random;
    this.#chunking = chunking;
    this.#link = link;
    this.name = name;
    this.remoteAddress = address;
    this.remotePort = port;
    link.sockets.add(this);
  }

  connectTo(peer: SimulatedSocket): void {
    this.#peer = peer;
    this.connecting = false;
    for (const send of this.#early.splice(0)) send();
    this.emit("connect");
    this.emit("ready");
  }

  /** The connection is lost, and this end learns of it. */
  reset(): void {
    if (this.destroyed) return;
    this.#scheduler.trace(`reset ${this.name}`);
    this.destroy(Object.assign(new Error("read ECONNRESET"), { code: "ECONNRESET" }));
  }

  override _write(chunk: Buffer, _encoding: string, done: Done): void {
    this.#scheduler.active();
    if (this.connecting) this.#early.push(() => this.#send(chunk, done));
    else this.#send(chunk, done);
  }

  override _writev(chunks: { chunk: Buffer }[], done: Done): void {
    this._write(Buffer.concat(chunks.map(({ chunk }) => chunk)), "buffer", done);
  }

  override _final(done: Done): void {
    this.#scheduler.active();
    const end = (): void => {
      this.#enqueue(null);
      done();
    };
    if (this.connecting) this.#early.push(end);
    else end();
  }

  override _read(): void {
    this.#scheduler.active();
    this.#isWanted = true;
    this.#peer?.deliver();
  }

  override _destroy(error: Error | null, done: Done): void {
    this.#scheduler.active();
    this.#link.sockets.delete(this);
    this.#early = [];
    const peer = this.#peer;
    // What arrived here and was not read makes the system send a reset; otherwise the end follows what was sent.
    if (peer !== undefined && !peer.destroyed) {
      if (peer.#sent.length > 0 || error !== null) {
        this.#later("reset", () => peer.reset());
      } else if (!this.writableFinished) {
        this.#enqueue(null);
      }
    }
    for (const waiting of this.#waiting.splice(0)) waiting(error);
    done(error);
  }

  #send(chunk: Buffer, done: Done): void {
    const peer = this.#peer;
    if (peer === undefined || peer.destroyed) {
      // The other end does not exist any more, and resets what it receives.
      this.#later("reset", () => this.reset());
      done();
      return;
    }
    this.#sentBytes += chunk.length;
    const cut =
      chunk.length > 1 && this.#random.chance(this.#chunking.split)
        ? this.#random.between(1, chunk.length - 1)
        : chunk.length;
    // A copy: its writer may use the buffer again.
    const bytes = Buffer.from(chunk);
    this.#enqueue(bytes.subarray(0, cut));
    if (cut < bytes.length) this.#enqueue(bytes.subarray(cut));
    if (this.#sentBytes <= windowBytes) done();
    else this.#waiting.push(done);
  }

  #enqueue(chunk: Buffer | null): void {
    this.#sent.push(chunk);
    const arrivesAt = this.#scheduler.time + this.#link.delayMs(this.#random);
    this.#arrivesAt = Math.max(this.#arrivesAt, arrivesAt);
    this.#later(chunk === null ? "end" : `${chunk.length}`, () => {
      this.#arrived++;
      this.deliver();
    });
  }

  /** Behind everything that was sent before, and behind the end of a held link. */
  #later(what: string, run: () => void): void {
    const delayMs = this.#arrivesAt - this.#scheduler.time;
    this.#scheduler.after(delayMs, `${this.name} ${what}`, () => {
      if (this.#link.state.isHeld) this.#link.held.push(run);
      else run();
    });
  }

  /** Passes on what has arrived, as far as the other end takes it. */
  deliver(): void {
    const peer = this.#peer;
    while (this.#arrived > 0 && peer !== undefined && !peer.destroyed && peer.#isWanted) {
      let chunk = this.#sent.shift();
      this.#arrived--;
      if (chunk === undefined) return;
      if (chunk === null) {
        peer.push(null);
        return;
      }
      while (this.#arrived > 0 && this.#sent[0] && this.#random.chance(this.#chunking.joined)) {
        chunk = Buffer.concat([chunk, this.#sent.shift() ?? Buffer.of()]);
        this.#arrived--;
      }
      this.#sentBytes -= chunk.length;
      this.#scheduler.trace(`${peer.name} reads`, chunk);
      peer.#isWanted = false;
      if (peer.push(chunk)) peer.#isWanted = true;
    }
    if (this.#sentBytes <= windowBytes) for (const done of this.#waiting.splice(0)) done();
  }

  destroySoon(): void {
    if (this.writable) this.end();
    if (this.writableFinished) this.destroy();
    else this.once("finish", () => this.destroy());
  }

  setNoDelay(): this {
    return this;
  }

  setKeepAlive(): this {
    return this;
  }

  setTimeout(): this {
    return this;
  }

  ref(): this {
    return this;
  }

  unref(): this {
    return this;
  }
}

/** In the place of a `net.Server`. */
class SimulatedServer extends EventEmitter {
  readonly #scheduler: Scheduler;
  readonly #listeners: Map<string, SimulatedServer>;
  #address: { readonly address: string; readonly port: number } | undefined;
  #key = "";
  #isClosed = false;

  constructor(scheduler: Scheduler, listeners: Map<string, SimulatedServer>) {
    super();
    this.#scheduler = scheduler;
    this.#listeners = listeners;
  }

  listen(
    { host, port }: { readonly host: string; readonly port: number },
    done?: () => void,
  ): this {
    const [, , own] = host.split(".").map(Number);
    this.#key = `${own}:${port}`;
    if (done !== undefined) this.once("listening", done);
    this.#scheduler.after(0, `listen ${this.#key}`, () => {
      if (this.#isClosed) return;
      if (this.#listeners.has(this.#key)) {
        const error = new Error(`listen EADDRINUSE ${host}:${port}`);
        this.emit("error", Object.assign(error, { code: "EADDRINUSE" }));
        return;
      }
      this.#listeners.set(this.#key, this);
      this.#address = { address: host, port };
      this.emit("listening");
    });
    return this;
  }

  address(): { readonly address: string; readonly port: number } | null {
    return this.#address ?? null;
  }

  close(): this {
    this.#isClosed = true;
    if (this.#listeners.get(this.#key) === this) this.#listeners.delete(this.#key);
    return this;
  }
}

/** Of the arguments of `net.connect`: options, or port and host. */
function destinationOf([first, second]: readonly unknown[]): { host: string; port: number } {
  if (typeof first === "object" && first !== null) {
    const { host = "localhost", port } = first as NetConnectOpts & { host?: string; port?: number };
    return { host, port: Number(port) };
  }
  return { host: String(second), port: Number(first) };
}
