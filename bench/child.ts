import { type ChildProcess, fork } from "node:child_process";
import { once } from "node:events";
import { fileURLToPath } from "node:url";

/** A message of the process: an answer, or the error that it ends with. */
type Said = { readonly answer: unknown } | { readonly fault: string };

/** Default deadline of one question, in milliseconds, after which the process counts as hanging. */
const defaultDeadlineMs = 5 * 60_000;

/** Runs a script of this folder in its own process, which answers each message with one message. */
export class Child<Question extends string | object> {
  readonly #script: string;
  readonly #child: ChildProcess;
  /** Why the process sends no further answers. */
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

  /** Asks one question at a time. Rejects when the process ends or does not answer, with its error if it sent one. */
  async ask(question: Question, deadlineMs = defaultDeadlineMs): Promise<unknown> {
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

  /** Of the process. */
  get pid(): number | undefined {
    return this.#child.pid;
  }

  #lose(error: Error): void {
    this.#lost ??= error;
    this.#asked?.reject(this.#lost);
  }

  /** Lets the process exit normally, so that Node.js writes its profiles. */
  async stop(): Promise<void> {
    if (!this.#child.connected) return;
    const exited = once(this.#child, "exit");
    this.#child.disconnect();
    await exited;
  }
}

/** Answers each message of the parent with the result of `answer`. Ends with the parent or with an error. */
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
