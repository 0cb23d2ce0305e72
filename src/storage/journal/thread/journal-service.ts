import type { MessagePort } from "node:worker_threads";
import type {
  FoundRecords,
  JournalFacts,
  Reply,
  Sent,
  ThreadCall,
  ThreadOptions,
  ThreadTask,
} from "../messages.ts";
import { Backup, restore } from "./copies.ts";
import type { DataFile } from "./data-file.ts";
import { JournalFailure, readFailure } from "./failures.ts";
import { FilePlace } from "./file-place.ts";
import type { Steps } from "./key-index.ts";
import { openDataFile, refused } from "./open-file.ts";
import { JournalReader } from "./reader.ts";
import { Retention } from "./retention.ts";
import { JournalWriter, readLeases, readRequests } from "./writer.ts";

/** How long a read may take before other calls are executed, in milliseconds. */
const sliceMs = 2;

/** The write-ahead log is moved to the data file when commits have written about this number of pages since. */
const checkpointPages = 2_000;

/** The history is cleaned when this number of records was added since, or at a `tick`. */
const cleanRecords = 256;

/** Executes the task of a thread, and answers its calls. */
export function serveJournal(task: ThreadTask, port: MessagePort): void {
  try {
    if (task.type === "journal") {
      const service = new JournalService(task.options, port);
      port.on("message", (sent: Sent) => service.receive(sent));
    } else {
      restore(task.from, task.to, task.historyId);
      port.postMessage({ id: 0 } satisfies Reply);
    }
  } catch (error) {
    const file = task.type === "journal" ? task.options.file : task.to;
    port.postMessage(replyOf(0, failureOf(file, error)));
  }
}

/** A read that has begun. */
interface Running {
  readonly id: number;
  readonly steps: Steps<FoundRecords>;
}

interface RunningBackup {
  readonly id: number;
  readonly copy: Backup;
  readonly ended: Promise<void>;
}

class JournalService {
  readonly #port: MessagePort;
  readonly #data: DataFile;
  readonly #place: FilePlace;
  /** What `#place` has found last. */
  #detached: string | undefined;
  readonly #retention: Retention;
  readonly #writer: JournalWriter;
  readonly #reader: JournalReader;
  /** In the order of their calls. SqliteJournal bounds them. */
  readonly #running: Running[] = [];
  /** The check of the index, which all reads of the history wait for. */
  #checking: Steps<void> | undefined;
  /** What was removed when it began. */
  #cleanedId = 0;
  /** The state is being read: the check must not delay it. */
  #isLoading = true;
  /** What the check has found. */
  #damage: JournalFailure | undefined;
  #isScheduled = false;
  #pagesWritten = 0;
  #recordsAdded = 0;
  #backup: RunningBackup | undefined;
  /** Of the last `tick`, if it has not been processed. */
  #elapsedMs: number | undefined;

  constructor(options: ThreadOptions, port: MessagePort) {
    const { file, maxHistoryMs, maxHistoryBytes, maxBytes } = options;
    this.#port = port;
    this.#data = openDataFile(options);
    this.#place = new FilePlace(file, `${this.#data.file}-wal`);
    this.#retention = new Retention(this.#data, maxHistoryMs, maxHistoryBytes);
    this.#writer = new JournalWriter(this.#data, this.#retention, maxBytes);
    this.#reader = new JournalReader(this.#data);
    this.#beginCheck();
    port.postMessage({ id: 0, facts: this.#facts } satisfies Reply);
    this.#schedule();
  }

  receive({ id, call }: Sent): void {
    if (call.type === "cancel") {
      if (id === this.#backup?.id) this.#backup.copy.cancel();
      const at = this.#running.findIndex((running) => running.id === id);
      if (at >= 0) this.#running.splice(at, 1);
      return;
    }
    try {
      this.#execute(id, call);
    } catch (error) {
      this.#fail(id, error);
    }
  }

  #execute(id: number, call: ThreadCall): void {
    switch (call.type) {
      case "commit":
        this.#isLoading = false;
        this.#checkPlace();
        if (this.#detached !== undefined) throw new JournalFailure("detached", this.#detached);
        this.#writer.commit(call);
        this.#reply({ id, facts: this.#facts });
        this.#recordsAdded += call.replaced.length;
        // A record is in a page of each table; the numbers are in one, too.
        this.#pagesWritten += 2 + 2 * call.replaced.length + call.records.length / 4_000;
        this.#schedule();
        return;
      case "tick":
        this.#checkPlace();
        this.#elapsedMs = call.elapsedMs;
        this.#schedule();
        this.#reply({ id, facts: this.#facts });
        return;
      case "objects":
        this.#load(id, call.after);
        return;
      case "leases":
        this.#reply({ id, leases: readLeases(this.#data) });
        return;
      case "requests":
        this.#reply({ id, requests: readRequests(this.#data) });
        return;
      case "changes":
        this.#begin({ id, steps: this.#reader.changes(call) });
        return;
      case "page":
        this.#begin({ id, steps: this.#reader.page(call) });
        return;
      case "history":
        this.#begin({ id, steps: this.#reader.history(call) });
        return;
      case "backup":
        this.#beginBackup(id, call.path);
        return;
      case "close":
        void this.#close(id);
        return;
    }
  }

  get #facts(): JournalFacts {
    return { ...this.#data.facts, detached: this.#detached };
  }

  /**
   * Looks whether the file is still the one at its path. When it is not, what is in the write-ahead log is moved to the file at
   * once: after a kill, another file at the path would get it.
   */
  #checkPlace(): void {
    const before = this.#detached;
    this.#detached = this.#place.problem();
    if (this.#detached === undefined || before !== undefined) return;
    try {
      this.#data.emptyLog();
    } catch (error) {
      this.#writer.failMaintenance(error);
    }
  }

  #load(id: number, after: Uint8Array | undefined): void {
    const found = this.#reader.objects(after);
    this.#isLoading = found.nextKey !== undefined;
    this.#replyFound(id, found);
    this.#schedule();
  }

  #beginBackup(id: number, path: string): void {
    if (this.#backup !== undefined) {
      throw refused("Another backup of the data file is in progress. Wait until it has ended.");
    }
    const copy = new Backup(this.#data.db, path);
    const end = (reply: Reply): void => {
      this.#backup = undefined;
      this.#reply(reply);
    };
    const ended = copy.ended.then(
      () => end({ id }),
      (error: unknown) => end(replyOf(id, failureOf(this.#data.file, error))),
    );
    this.#backup = { id, copy, ended };
  }

  async #close(id: number): Promise<void> {
    this.#backup?.copy.cancel();
    await this.#backup?.ended;
    this.#data.close();
    this.#reply({ id });
  }

  #begin(running: Running): void {
    if (this.#damage !== undefined) throw this.#damage;
    this.#isLoading = false;
    this.#running.push(running);
    this.#schedule();
  }

  #schedule(): void {
    if (this.#isScheduled || this.#isLoading) return;
    this.#isScheduled = true;
    setImmediate(() => {
      this.#isScheduled = false;
      if (this.#data.db.isOpen) this.#work();
    });
  }

  /** What is done between commits: one step of each kind, then the calls that have arrived meanwhile are executed. */
  #work(): void {
    if (this.#checking === undefined) this.#continueRead();
    this.#maintain();
    if (this.#checking !== undefined || this.#running.length > 0) this.#schedule();
  }

  /** Reads take turns. */
  #continueRead(): void {
    const running = this.#running.shift();
    if (running === undefined) return;
    try {
      const found = inSlice(running.steps);
      if (found === undefined) this.#running.push(running);
      else this.#replyFound(running.id, found.value);
    } catch (error) {
      this.#fail(running.id, error);
    }
  }

  #cleanHistory(): void {
    if (this.#elapsedMs !== undefined) {
      this.#retention.tick(this.#elapsedMs);
      this.#elapsedMs = undefined;
      this.#recordsAdded = Infinity;
    }
    const mustFree = this.#writer.isNearlyFull;
    if (this.#recordsAdded < cleanRecords && !mustFree) return;
    if (this.#retention.clean(mustFree)) this.#pagesWritten += 64;
    if (this.#retention.hasWork(mustFree)) this.#schedule();
    else this.#recordsAdded = 0;
  }

  #beginCheck(): void {
    const { keys, lastId, cleanedId } = this.#data.numbers;
    this.#checking = this.#data.index.check(keys, lastId);
    this.#cleanedId = cleanedId;
  }

  #check(checking: Steps<void>): void {
    // A commit has removed rows to make room for its own.
    if (this.#cleanedId !== this.#data.numbers.cleanedId) {
      this.#beginCheck();
      return;
    }
    try {
      if (inSlice(checking) !== undefined) this.#checking = undefined;
    } catch (error) {
      this.#checking = undefined;
      this.#damage = failureOf(this.#data.file, error);
      for (const { id } of this.#running.splice(0)) this.#fail(id, this.#damage);
      throw error;
    }
  }

  #maintain(): void {
    try {
      if (this.#checking !== undefined) this.#check(this.#checking);
      else if (this.#detached === undefined) this.#cleanHistory();
      if (this.#pagesWritten < checkpointPages) return;
      this.#data.checkpoint();
      this.#pagesWritten = 0;
    } catch (error) {
      this.#writer.failMaintenance(error);
    }
  }

  #replyFound(id: number, found: FoundRecords): void {
    const reply: Reply = { id, found, facts: this.#facts };
    this.#port.postMessage(reply, [found.records.buffer]);
  }

  #reply(reply: Reply): void {
    this.#port.postMessage(reply);
  }

  #fail(id: number, error: unknown): void {
    this.#reply(replyOf(id, failureOf(this.#data.file, error)));
  }
}

/** Continues for a slice of time. Returns the result, or undefined if there is more. */
function inSlice<T>(steps: Steps<T>): { readonly value: T } | undefined {
  const until = performance.now() + sliceMs;
  for (;;) {
    const step = steps.next();
    if (step.done === true) return step;
    if (performance.now() > until) return undefined;
  }
}

function failureOf(file: string, error: unknown): JournalFailure {
  if (error instanceof JournalFailure) return error;
  return readFailure(file, error);
}

function replyOf(id: number, { kind, message, requested, oldest }: JournalFailure): Reply {
  return { id, failure: { kind, message, requested, oldest } };
}
