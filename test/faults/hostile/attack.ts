import { once } from "node:events";
import { connect, type Socket } from "node:net";
import { setTimeout as delay } from "node:timers/promises";
import { Message } from "../../foreign/protobuf.ts";
import type { Seeded } from "../seeded.ts";
import type { CpuBudget } from "./cpu-budget.ts";
import { type ConnectionOptions, HostileConnection } from "./hostile-connection.ts";
import { getRequest, match, paths, putRequest } from "./requests.ts";
import type { ResponseCounts, Responses } from "./responses.ts";

/** Where an attack goes. */
export interface Target {
  readonly grpcPort: number;
  readonly adminPort: number;
  /** The address that attacks come from, on the loopback interface. Default: that of every client here. */
  readonly from?: string | undefined;
  /** The resource that honest clients use: few objects, written all the time. */
  readonly busy: string;
  /** Below which its keys are in etcd. */
  readonly busyPrefix: string;
  /** A resource of some MiB, whose older changes are known. */
  readonly bulk: Bulk;
}

export interface Bulk {
  readonly resource: string;
  /** Below which its keys are in etcd. */
  readonly prefix: string;
  /** An object of it. */
  readonly key: string;
  /** Revisions after which thousands of changes to it came, in order. */
  readonly past: readonly number[];
  /** Revisions that only etcd still has, in order. */
  readonly stored: readonly number[];
}

/**
 * An attack by a hostile client. `run` resolves when everything has been sent; open calls stay open until
 * the session ends. Counts and bytes are bounded by the attack, time by the session's signal.
 */
export interface Attack {
  /** How often it comes in a soak, relative to the others. */
  readonly weight: number;
  /** Maximum memory that a bounded server holds for it, in MiB: less than half of what an unbounded one would. */
  readonly mayHold: number;
  readonly run: (session: AttackSession) => Promise<void>;
}

/** Attacks by name. */
export type Attacks = Readonly<Record<string, Attack>>;

/** One attack that is under way: its connections, its chance, its budget, and the responses that it got. */
export class AttackSession {
  readonly target: Target;
  readonly random: Seeded;
  /** Aborted when the attack must end. */
  readonly signal: AbortSignal;
  readonly responses: Responses;
  readonly #budget: CpuBudget;
  readonly #connections: HostileConnection[] = [];
  readonly #sockets: Socket[] = [];

  constructor(
    target: Target,
    random: Seeded,
    signal: AbortSignal,
    responses: Responses,
    budget: CpuBudget,
  ) {
    this.target = target;
    this.random = random;
    this.signal = signal;
    this.responses = responses;
    this.#budget = budget;
  }

  connect(options?: ConnectionOptions): HostileConnection {
    this.signal.throwIfAborted();
    const { grpcPort, from } = this.target;
    const connection = new HostileConnection({ port: grpcPort, from }, this.responses, options);
    this.#connections.push(connection);
    return connection;
  }

  /** A TCP connection that sends nothing by itself. */
  dial(port: number): Socket {
    this.signal.throwIfAborted();
    const socket = connect({ port, host: "127.0.0.1", localAddress: this.target.from });
    this.#sockets.push(socket);
    this.responses.opened();
    let outcome = "socket: closed";
    socket.on("error", (error: NodeJS.ErrnoException) => {
      outcome = `socket: ${error.code ?? error.message}`;
    });
    socket.once("close", () => this.responses.closed(outcome));
    // The server's data is read, so that its FIN is seen.
    socket.resume();
    return socket;
  }

  /** Between batches of work: yields, and keeps to the CPU budget. Rejects once the attack has to end. */
  pace(): Promise<void> {
    return this.#budget.pace(this.signal);
  }

  /** Rejects once the attack must end. */
  async pause(ms: number): Promise<void> {
    await delay(ms, undefined, { signal: this.signal });
  }

  /** Does something `count` times, `batch` of them in one turn. */
  async times(count: number, batch: number, once: (index: number) => void): Promise<void> {
    for (let index = 0; index < count; index++) {
      once(index);
      if ((index + 1) % batch === 0) await this.pace();
    }
  }

  /** Resolves when all of these have ended, or the attack must end. */
  async untilAll(promises: readonly (Promise<unknown> | undefined)[]): Promise<void> {
    await this.orAborted(Promise.all(promises));
  }

  /** Resolves like `promise`, or rejects once the attack must end. */
  orAborted<T>(promise: Promise<T>): Promise<T> {
    const { signal } = this;
    return new Promise<T>((resolve, reject) => {
      const abort = (): void => reject(signal.reason);
      if (signal.aborted) return abort();
      signal.addEventListener("abort", abort, { once: true });
      promise.then(resolve, reject).finally(() => signal.removeEventListener("abort", abort));
    });
  }

  /** Writes an object, and resolves when that has completed. */
  async put(connection: HostileConnection, resource: string, key: string, value: string) {
    await this.orAborted(connection.unary(paths.put, putRequest(resource, key, value)));
  }

  /** The cache's revision now; 0 if the replica does not say. */
  async revision(connection: HostileConnection): Promise<number> {
    const { resource, key } = this.target.bulk;
    const request = getRequest({ resource, key, match: match.any });
    const response = await this.orAborted(connection.unary(paths.get, request));
    return response === undefined ? 0 : new Message(response).number(1);
  }

  /** Leaves: closes everything without a word. Resolves to what the responses were, when all of it is closed. */
  async end(): Promise<ResponseCounts> {
    const counts = this.responses.finish();
    await Promise.all([
      ...this.#connections.map((connection) => connection.close()),
      ...this.#sockets.map(closed),
    ]);
    return counts;
  }
}

async function closed(socket: Socket): Promise<void> {
  if (socket.closed) return;
  const closing = once(socket, "close");
  socket.destroy();
  await closing;
}
