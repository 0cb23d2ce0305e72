import { type Transferable, Worker } from "node:worker_threads";
import {
  messageOf,
  revisionTooOld,
  upstreamUnavailable,
  WatchFanoutError,
} from "../../base/errors.ts";
import { Gate } from "../../base/gate.ts";
import { waitFor } from "../../base/wait.ts";
import { JournalFault } from "./journal.ts";
import type { Reply, Sent, ThreadCall, ThreadFailure, ThreadTask } from "./messages.ts";

/** Reads that the thread has at once, and those that wait for these. Each holds a page. */
const readsAtOnce = 8;
const maxWaitingReads = 256;

const thread = import.meta.url.endsWith(".ts")
  ? "./thread/journal-thread.ts"
  : "./thread/journal-thread.js";

interface Pending {
  readonly resolve: (reply: Reply) => void;
  readonly reject: (error: unknown) => void;
}

/** The calls of a journal to its thread. */
export class JournalCalls {
  readonly file: string;
  readonly #worker: Worker;
  /** By the number of the call. Commits and ticks come one at a time; reads are bounded by the gate. */
  readonly #pending = new Map<number, Pending>();
  readonly #reads = new Gate({ concurrent: readsAtOnce });
  #lastId = 0;
  /** Why no call is possible any more. */
  #end: Error | undefined;

  /** Starts the thread. */
  constructor(task: ThreadTask) {
    this.file = task.type === "journal" ? task.options.file : task.to;
    this.#worker = new Worker(new URL(thread, import.meta.url), {
      workerData: task,
      // SQLite is a module that Node.js 22 and 24 still call experimental.
      execArgv: ["--disable-warning=ExperimentalWarning"],
    });
    this.#worker.on("message", (reply: Reply) => this.#receive(reply));
    this.#worker.on("error", (error: unknown) => this.#fail(`has failed: ${messageOf(error)}`));
    this.#worker.on("exit", () => this.#fail("has ended"));
  }

  /** The thread's first reply: it has the file open. The thread is ended if that fails, or the signal is aborted. */
  async started(signal?: AbortSignal): Promise<Reply> {
    try {
      return await this.#wait(0, signal);
    } catch (error) {
      await this.#worker.terminate();
      throw error;
    }
  }

  /** Executes a call. `moved`: the buffers of the call, which can't be used here afterwards. */
  async call(call: ThreadCall, signal?: AbortSignal, moved?: Transferable[]): Promise<Reply> {
    if (!isRead(call)) return this.#send(call, signal, moved);
    if (this.#reads.queued >= maxWaitingReads) {
      throw upstreamUnavailable(
        `${maxWaitingReads} reads of the data file ${this.file} are waiting, the maximum. Try again soon.`,
      );
    }
    if (!this.#reads.enter(this)) await this.#reads.wait(this, 0, { signal });
    try {
      return await this.#send(call, signal, moved);
    } finally {
      this.#reads.leave(this);
    }
  }

  /** Executes a call, and rejects with the signal's reason only after the thread has ended what it had begun. */
  async callToEnd(call: ThreadCall, signal?: AbortSignal): Promise<void> {
    signal?.throwIfAborted();
    const ended = this.#send(call);
    const id = this.#lastId;
    const cancel = (): void => this.#cancel(id);
    signal?.addEventListener("abort", cancel);
    try {
      await ended;
    } catch (error) {
      signal?.throwIfAborted();
      throw error;
    } finally {
      signal?.removeEventListener("abort", cancel);
    }
  }

  /** Closes the file, after what was called before, and ends the thread. */
  async close(): Promise<void> {
    if (this.#end === undefined) {
      const closing = this.#send({ type: "close" });
      this.#end = new Error(`The data file ${this.file} is closed.`);
      // A thread that has failed has nothing left to close.
      await closing.catch(() => {});
    }
    await this.#worker.terminate();
  }

  #send(call: ThreadCall, signal?: AbortSignal, moved?: Transferable[]): Promise<Reply> {
    if (this.#end !== undefined) return Promise.reject(this.#end);
    if (signal?.aborted === true) return Promise.reject(signal.reason);
    const id = ++this.#lastId;
    this.#worker.postMessage({ id, call } satisfies Sent, moved);
    return this.#wait(id, signal);
  }

  #wait(id: number, signal: AbortSignal | undefined): Promise<Reply> {
    return waitFor<Reply>(
      (resolve, reject) => {
        this.#pending.set(id, { resolve, reject });
        // A call keeps the process alive, an idle thread does not.
        this.#worker.ref();
        return () => this.#forget(id);
      },
      { signal },
    );
  }

  #forget(id: number): void {
    // Still there: the wait was aborted.
    if (this.#pending.delete(id)) this.#cancel(id);
    if (this.#pending.size === 0) this.#worker.unref();
  }

  #cancel(id: number): void {
    this.#worker.postMessage({ id, call: { type: "cancel" } } satisfies Sent);
  }

  #receive(reply: Reply): void {
    const { id, failure } = reply;
    const pending = this.#pending.get(id);
    this.#pending.delete(id);
    if (failure === undefined) pending?.resolve(reply);
    else pending?.reject(errorOf(failure));
  }

  #fail(why: string): void {
    this.#end ??= new JournalFault(`The thread of the data file ${this.file} ${why}.`);
    for (const [id, { reject }] of [...this.#pending]) {
      this.#pending.delete(id);
      reject(this.#end);
    }
  }
}

function isRead({ type }: ThreadCall): boolean {
  return type === "objects" || type === "changes" || type === "page" || type === "history";
}

function errorOf({ kind, message, requested, oldest }: ThreadFailure): Error {
  switch (kind) {
    case "full":
      return new WatchFanoutError("STORAGE_FULL", message);
    case "detached":
      return upstreamUnavailable(message);
    case "fault":
      return new JournalFault(message);
    case "damaged":
      return new WatchFanoutError("INTERNAL", message);
    case "too old":
      return revisionTooOld(requested ?? 0, oldest);
    case "refused":
      return new Error(message);
  }
}
