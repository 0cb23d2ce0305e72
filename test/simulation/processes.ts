import { EventEmitter } from "node:events";
import type { FromWorker, StartWorker, ToWorker } from "../../src/cli/workers/messages.ts";
import type { SimulatedSocket } from "./network.ts";
import type { Scheduler } from "./scheduler.ts";

/** How long a message between two processes is under way, in milliseconds: up to twice as much. */
const channelMs = 0.05;

/** What runs in a child process. */
export interface Program {
  receive(message: ToWorker, connection: SimulatedSocket | undefined): void;
  /** The process is killed. */
  killed(): void;
}

/** The child processes of a simulation, in the place of `node:child_process`. Their programs are found by their first message. */
export class Processes {
  readonly #scheduler: Scheduler;
  readonly #programs = new Map<string, (child: SimulatedChild, start: StartWorker) => Program>();
  #count = 0;

  constructor(scheduler: Scheduler) {
    this.#scheduler = scheduler;
  }

  /** `socket`: the path of the main process, which the first message to a child has. */
  define(socket: string, program: (child: SimulatedChild, start: StartWorker) => Program): void {
    this.#programs.set(socket, program);
  }

  /** As `fork`. */
  fork(): SimulatedChild {
    return new SimulatedChild(this.#scheduler, ++this.#count, (child, start) => {
      const program = this.#programs.get(start.socket.path);
      if (program === undefined) throw new Error(`There is no program of ${start.socket.path}.`);
      return program(child, start);
    });
  }
}

/** The handle that a main process has of a connection, until a worker has taken it. */
export class ConnectionHandle extends EventEmitter {
  readonly socket: SimulatedSocket;
  #isClosed = false;
  /** Whether a worker has a handle of its own. */
  isShared = false;

  constructor(socket: SimulatedSocket) {
    super();
    this.socket = socket;
    socket.on("error", () => {});
  }

  get destroyed(): boolean {
    return this.#isClosed || this.socket.destroyed;
  }

  destroy(): void {
    this.#isClosed = true;
    if (!this.isShared) this.socket.destroy();
  }
}

/** A child process, as its parent sees it. Both ends of its channel, and its end. */
export class SimulatedChild extends EventEmitter {
  readonly pid: number;
  readonly #scheduler: Scheduler;
  readonly #begin: (child: SimulatedChild, start: StartWorker) => Program;
  readonly #connections = new Set<SimulatedSocket>();
  #program: Program | undefined;
  #isAlive = true;
  /** Messages of both directions that wait, while the channel is held. */
  #held: (() => void)[] | undefined;
  #arrivesAt = 0;

  constructor(
    scheduler: Scheduler,
    pid: number,
    begin: (child: SimulatedChild, start: StartWorker) => Program,
  ) {
    super();
    this.#scheduler = scheduler;
    this.pid = pid;
    this.#begin = begin;
  }

  get connected(): boolean {
    return this.#isAlive;
  }

  /** As of a ChildProcess, with a connection or without. */
  send(message: ToWorker, ...given: readonly unknown[]): boolean {
    const [handle] = given;
    const connection = handle instanceof ConnectionHandle ? handle.socket : undefined;
    if (handle instanceof ConnectionHandle) handle.isShared = true;
    if (connection !== undefined) {
      this.#connections.add(connection);
      connection.once("close", () => this.#connections.delete(connection));
    }
    this.#pass(`to ${this.pid}: ${message.kind}`, () => {
      if (message.kind === "start") this.#program = this.#begin(this, message);
      else this.#program?.receive(message, connection?.destroyed === true ? undefined : connection);
    });
    return true;
  }

  /** From the program to its parent. Returns whether the process lives. */
  report(message: FromWorker): boolean {
    if (this.#isAlive)
      this.#pass(`from ${this.pid}: ${message.kind}`, () => this.emit("message", message));
    return this.#isAlive;
  }

  /** SIGKILL. */
  kill(): void {
    if (this.#isAlive) this.#end(null, "SIGKILL");
  }

  /** The program ends by itself. */
  exit(code: number): void {
    if (this.#isAlive) this.#end(code, null);
  }

  /** Nothing passes its channel until `release`. */
  hold(): void {
    this.#held ??= [];
  }

  release(): void {
    const held = this.#held;
    this.#held = undefined;
    for (const pass of held ?? []) pass();
  }

  #end(code: number | null, signal: string | null): void {
    this.#isAlive = false;
    this.#held = undefined;
    for (const connection of [...this.#connections]) connection.reset();
    if (signal !== null) this.#program?.killed();
    this.#scheduler.after(channelMs, `${this.pid} has ended`, () =>
      this.emit("exit", code, signal),
    );
  }

  /** In their order. */
  #pass(what: string, arrive: () => void): void {
    const { time, random } = this.#scheduler;
    this.#arrivesAt = Math.max(this.#arrivesAt, time + channelMs * (1 + random.next()));
    this.#scheduler.after(this.#arrivesAt - time, what, () => {
      if (!this.#isAlive) return;
      if (this.#held === undefined) arrive();
      else this.#held.push(arrive);
    });
  }
}
