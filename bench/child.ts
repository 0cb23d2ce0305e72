import { type ChildProcess, fork } from "node:child_process";
import { once } from "node:events";
import { fileURLToPath } from "node:url";

/** No question takes longer, unless something hangs. */
const deadlineMs = 5 * 60_000;

/** A script beside this one in a process of its own, which answers every message with one. */
export class Child<Question extends string | object> {
  readonly #script: string;
  readonly #child: ChildProcess;

  constructor(script: string, execArgv: readonly string[] = []) {
    this.#script = script;
    this.#child = fork(fileURLToPath(new URL(script, import.meta.url)), {
      execArgv: [...process.execArgv, "--disable-warning=ExperimentalWarning", ...execArgv],
    });
  }

  /** Rejects when the process is lost, or does not answer. */
  async ask(question: Question): Promise<unknown> {
    const failed = new AbortController();
    const lost = once(this.#child, "exit", { signal: failed.signal }).then(() => {
      throw new Error("A process of the benchmark ended before its time.");
    });
    const late = setTimeout(() => failed.abort(new Error(`${this.#script} hangs.`)), deadlineMs);
    try {
      const answer = once(this.#child, "message", { signal: failed.signal });
      this.#child.send(question);
      return (await Promise.race([answer, lost]))[0];
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
    process.stderr.write(`${error instanceof Error ? error.stack : String(error)}\n`);
    process.exit(1);
  };
  process.on("unhandledRejection", fail);
  process.on("disconnect", () => process.exit());
  process.on("message", (question: Question) => {
    answer(question).then((said) => process.send?.(said ?? "done"), fail);
  });
}
