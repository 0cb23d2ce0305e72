import { type ChildProcess, fork } from "node:child_process";
import { once } from "node:events";
import { fileURLToPath } from "node:url";

/** What a process says: an answer, or what it ends of. */
type Said = { readonly answer: unknown } | { readonly fault: string };

/** No question takes longer, unless something hangs. */
const deadlineMs = 5 * 60_000;

/** A script beside this one in a process of its own, which answers every message with one. */
export class Child<Question extends string | object> {
  readonly #script: string;
  readonly #child: ChildProcess;
  /** Why there will be no more answers. */
  #lost: Error | undefined;
  #asked: PromiseWithResolvers<unknown> | undefined;

  constructor(script: string, execArgv: readonly string[] = []) {
    this.#script = script;
    this.#child = fork(fileURLToPath(new URL(script, import.meta.url)), {
      execArgv: [...process.execArgv, "--disable-warning=ExperimentalWarning", ...execArgv],
    });
    this.#child.on("message", (said: Said) => {
      if ("fault" in said) this.#lose(new Error(said.fault));
      else this.#asked?.resolve(said.answer);
    });
    this.#child.on("exit", () => this.#lose(new Error(`${script} ended before its time.`)));
  }

  /**
   * One question at a time. Rejects when the process is lost or does not answer, with what it ended of if
   * it said so.
   */
  async ask(question: Question): Promise<unknown> {
    if (this.#lost !== undefined) throw this.#lost;
    this.#asked = Promise.withResolvers();
    const late = setTimeout(() => this.#lose(new Error(`${this.#script} hangs.`)), deadlineMs);
    try {
      this.#child.send(question);
      return await this.#asked.promise;
    } finally {
      clearTimeout(late);
    }
  }

  #lose(error: Error): void {
    this.#lost ??= error;
    this.#asked?.reject(this.#lost);
  }

  /** Has it exit in order, so that what Node.js was asked to profile is written. */
  async stop(): Promise<void> {
    if (!this.#child.connected) return;
    const exited = once(this.#child, "exit");
    this.#child.disconnect();
    await exited;
  }
}

/** Answers the parent's messages with what `answer` resolves to, and ends with the parent or a fault. */
export function answerParent<Question>(answer: (question: Question) => Promise<unknown>): void {
  const fail = (error: unknown): void => {
    const fault = error instanceof Error ? (error.stack ?? error.message) : String(error);
    process.send?.({ fault } satisfies Said, () => process.exit(1));
  };
  process.on("unhandledRejection", fail);
  process.on("uncaughtException", fail);
  process.on("disconnect", () => process.exit());
  process.on("message", (question: Question) => {
    answer(question).then(
      (said) => process.send?.({ answer: said ?? "done" } satisfies Said),
      fail,
    );
  });
}
