import { type ChildProcess, fork } from "node:child_process";
import type { Socket } from "node:net";
import type { Clock } from "../../base/clock.ts";
import type { LogLevel } from "../../config/config.ts";
import type { ReadinessCheck } from "../../server/admin/admin.ts";
import type { StreamQuery } from "../../server/admin/status/stream-query.ts";
import type { ConnectionTaker } from "./connection-distributor.ts";
import type { FromWorker, StartWorker, ToWorker, WorkerAnswers, WorkerStatus } from "./messages.ts";

/** How long a worker may take to respond, in milliseconds. Collectors of metrics have a deadline of 10 s by default. */
const responseTimeoutMs = 2_000;

/** How a process ended. */
export interface WorkerExit {
  readonly code: number | null;
  readonly signal: NodeJS.Signals | null;
}

/** What a worker reports. */
export interface WorkerEvents {
  started(): void;
  /** It can't start, for a reason that does not pass: a sentence for the user. It ends. */
  failed(message: string): void;
  taken(): void;
  status(status: WorkerStatus): void;
  /** Called once, and nothing after it. */
  ended(exit: WorkerExit): void;
}

/** A worker, as its main process sees it. It writes to the same log. */
export class WorkerProcess implements ConnectionTaker {
  readonly #child: ChildProcess;
  readonly #clock: Clock;
  readonly #events: WorkerEvents;
  /** What is called with the answer, by the number of the question. */
  readonly #asked = new Map<number, (value: unknown) => void>();
  #requests = 0;
  #messages = 0;
  #readiness: readonly ReadinessCheck[] | undefined;
  #hasEnded = false;

  /** Starts a process with the script. */
  constructor(script: URL, message: StartWorker, clock: Clock, events: WorkerEvents) {
    this.#clock = clock;
    this.#events = events;
    this.#child = fork(script, [], {
      // Structured clones: the configuration has buffers.
      serialization: "advanced",
      stdio: ["ignore", "inherit", "inherit", "ipc"],
    });
    this.#child.on("message", (received) => this.#receive(received as FromWorker));
    this.#child.on("exit", (code, signal) => this.#ended({ code, signal }));
    // It could not be started, or a message could not be sent since it is ending.
    this.#child.on("error", () => {
      if (this.#child.pid === undefined) this.#ended({ code: null, signal: null });
    });
    this.#send(message);
  }

  /** Undefined if it could not be started. */
  get pid(): number | undefined {
    return this.#child.pid;
  }

  /** Number of messages that were received. */
  get messages(): number {
    return this.#messages;
  }

  /** Its checks, by its last status. Undefined: it has not sent any. */
  get readiness(): readonly ReadinessCheck[] | undefined {
    return this.#readiness;
  }

  take(socket: Socket): void {
    if (!this.#child.connected) return;
    // This process closes its own handle when the worker has taken the connection. Without `keepOpen` Node.js does, but
    // never if the worker dies before.
    this.#child.send({ kind: "connection" } satisfies ToWorker, socket, { keepOpen: true }, ignore);
  }

  drainOldest(connections: number): void {
    this.#send({ kind: "drain-oldest", connections });
  }

  /** The answer to a question; undefined if it does not come within 2 s, or has no value. Never rejects. */
  ask<Kind extends keyof WorkerAnswers>(
    kind: Kind,
    query?: StreamQuery,
  ): Promise<WorkerAnswers[Kind] | undefined> {
    this.#requests++;
    const request = this.#requests;
    return new Promise((resolve) => {
      const done = (value: unknown): void => {
        timer.cancel();
        this.#asked.delete(request);
        resolve(value as WorkerAnswers[Kind] | undefined);
      };
      const timer = this.#clock.setTimeout(() => done(undefined), responseTimeoutMs);
      this.#asked.set(request, done);
      this.#send({ kind, request, query });
      if (this.#hasEnded) done(undefined);
    });
  }

  /** Changes the level of its log. */
  setLogLevel(level: LogLevel): void {
    this.#send({ kind: "log-level", level });
  }

  /** Lets it shut down gracefully. */
  drain(): void {
    this.#send({ kind: "drain" });
  }

  kill(): void {
    this.#child.kill("SIGKILL");
  }

  #send(message: ToWorker): void {
    if (this.#child.connected) this.#child.send(message, ignore);
  }

  #receive(message: FromWorker): void {
    if (this.#hasEnded) return;
    this.#messages++;
    if (message.kind === "taken") this.#events.taken();
    else if (message.kind === "status") {
      this.#readiness = message.readiness;
      this.#events.status(message);
    } else if (message.kind === "answer") this.#asked.get(message.request)?.(message.value);
    else if (message.kind === "started") this.#events.started();
    else this.#events.failed(message.message);
  }

  #ended(exit: WorkerExit): void {
    if (this.#hasEnded) return;
    this.#hasEnded = true;
    for (const done of [...this.#asked.values()]) done(undefined);
    this.#events.ended(exit);
  }
}

/** A message that can't be sent: the worker is ending, which its exit shows. */
function ignore(): void {}
