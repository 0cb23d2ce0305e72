import {
  type PoolOptions,
  type PoolRunnerInitializer,
  type PoolWorker,
  ThreadsPoolWorker,
  type WorkerRequest,
} from "vitest/node";

type Listener = Parameters<PoolWorker["on"]>[1];

/**
 * A worker thread that outlives a run of tests. Vitest starts one for each run, and Stryker makes a run for each mutant:
 * to load the modules again takes ten times as long as the tests. With mutants that are switched at run time the
 * modules can stay loaded; those that act on load only ("static") are left out by stryker.config.json.
 */
class WarmThread extends ThreadsPoolWorker {
  readonly #listeners: [event: string, listener: Listener][] = [];
  #started = false;
  #settings: { readonly config: unknown } | undefined;
  #isOver = false;

  /** Whether the thread has ended, and can't serve another run. */
  get isOver(): boolean {
    return this.#isOver;
  }

  override async start(): Promise<void> {
    if (this.#started) return;
    this.#started = true;
    await super.start();
    super.on("exit", () => {
      this.#isOver = true;
    });
  }

  override on(event: string, listener: Listener): void {
    this.#listeners.push([event, listener]);
    super.on(event, listener);
  }

  /**
   * The thread receives its first start only, and no end, after which it would serve no run. The configuration, with the
   * names of the tests to run, is part of the start: the run brings it instead.
   */
  override send(message: WorkerRequest): void {
    if (message.type === "run") {
      super.send({ ...message, context: { ...message.context, ...this.#settings } });
    } else if (message.type === "stop") {
      this.#answer("stopped");
    } else if (message.type === "start") {
      const isSetUp = this.#settings !== undefined;
      this.#settings = { config: message.context.config };
      if (isSetUp) this.#answer("started");
      else super.send(message);
    } else {
      super.send(message);
    }
  }

  #answer(type: "started" | "stopped"): void {
    const answer = { type, __vitest_worker_response__: true };
    const listeners = this.#listeners.filter(([event]) => event === "message");
    queueMicrotask(() => {
      for (const [, listener] of listeners) listener(answer);
    });
  }

  /** The end of a run: the thread stays, without the listeners of the run. */
  override async stop(): Promise<void> {
    if (!this.#isOver) for (const [event, listener] of this.#listeners) super.off(event, listener);
    this.#listeners.length = 0;
  }
}

let warm: WarmThread | undefined;

export const warmThreads: PoolRunnerInitializer = {
  name: "threads that stay warm",
  createPoolWorker(options: PoolOptions): PoolWorker {
    if (warm === undefined || warm.isOver) warm = new WarmThread(options);
    return warm;
  },
};
