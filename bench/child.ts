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
  #fault: Error | undefined;

  constructor(script: string, execArgv: readonly string[] = []) {
    this.#script = script;
    this.#child = fork(fileURLToPath(new URL(script, import.meta.url)), {
      execArgv: [...process.execArgv, "--disable-warning=ExperimentalWarning", ...execArgv],
    });
    this.#child.on("message", (said: Said) => {
      if ("fault" in said) this.#fault = new Error(said.fault);
    });
  }

  /** Rejects when the process is lost or does not answer, with what it said last if it did. */
  async ask(question: Question): Promise<unknown> {
    const failed = new AbortController();
    const lost = once(this.#child, "exit", { signal: failed.signal }).then(() => {
      throw this.#fault ?? new Error(`${this.#script} ended before its time.`);
    });
    const late = setTimeout(() => failed.abort(new Error(`${this.#script} hangs.`)), deadlineMs);
    try {
      const answer = once(this.#child, "message", { signal: failed.signal });
      if (this.#fault !== undefined) throw this.#fault;
      this.#child.send(question);
      const [said] = (await Promise.race([answer, lost])) as [Said];
      if ("fault" in said) throw new Error(said.fault);
      return said.answer;
    } finally {
      clearTimeout(late);
      lost.catch(() => {});
      failed.abort();
    }
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
