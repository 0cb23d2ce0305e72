/**
 * A load in its own process: opens streams, writes, and counts events. Started by the benchmarks, which send it
 * messages by IPC. It uses the same client for all servers.
 */
import { answerParent, Child } from "./child.ts";
import { LoadStreams, type StreamsTask } from "./load-streams.ts";
import { LoadWriter, type PacedWrites } from "./load-writer.ts";

/** The messages of the parent. */
type LoadQuestion =
  | { readonly do: "open"; readonly task: StreamsTask }
  | {
      readonly do: "connect writer";
      readonly etcdUrl: string;
      readonly valueBytes: number;
      readonly isJson: boolean;
    }
  | { readonly do: "write saturated" }
  | { readonly do: "stop writing" }
  | { readonly do: "write paced"; readonly perSecond: number; readonly count: number }
  | { readonly do: "await events"; readonly from: number; readonly to: number }
  | { readonly do: "count" };

/** The progress of the load. */
export interface LoadCounts {
  /** Events received by reading streams, all together. */
  readonly delivered: number;
  /** Messages that these events came in. */
  readonly messages: number;
  /** Events that all reading streams have received. */
  readonly completed: number;
  /** On all connections. */
  readonly receivedBytes: number;
  readonly written: number;
  readonly shutEnded: number;
  /** CPU of the load itself, in seconds. */
  readonly cpu: number;
}

/** The parent's side of a load. */
export class Load {
  readonly #child = new Child<LoadQuestion>("load.ts");

  /** Resolves when every stream is open. Rejects after `deadlineMs` milliseconds. */
  async open(task: StreamsTask, deadlineMs?: number): Promise<void> {
    await this.#child.ask({ do: "open", task }, deadlineMs);
  }

  async connectWriter(etcdUrl: string, valueBytes: number, isJson = false): Promise<void> {
    await this.#child.ask({ do: "connect writer", etcdUrl, valueBytes, isJson });
  }

  async writeSaturated(): Promise<void> {
    await this.#child.ask({ do: "write saturated" });
  }

  async stopWriting(): Promise<void> {
    await this.#child.ask({ do: "stop writing" });
  }

  async writePaced(perSecond: number, count: number): Promise<PacedWrites> {
    return (await this.#child.ask({ do: "write paced", perSecond, count })) as PacedWrites;
  }

  /** When the last of the reading streams received each event, in monotonicMs. Rejects as `open`. */
  async completedBetween(from: number, to: number, deadlineMs?: number): Promise<number[]> {
    return (await this.#child.ask({ do: "await events", from, to }, deadlineMs)) as number[];
  }

  async count(): Promise<LoadCounts> {
    return (await this.#child.ask({ do: "count" })) as LoadCounts;
  }

  stop(): Promise<void> {
    return this.#child.stop();
  }
}

/** Calls `use` with a new load, and stops the load. */
export async function withLoad<T>(use: (load: Load) => Promise<T>): Promise<T> {
  const load = new Load();
  try {
    return await use(load);
  } finally {
    await load.stop();
  }
}

/** The load in its own process. */
class LoadProcess {
  #streams: LoadStreams | undefined;
  #writer: LoadWriter | undefined;

  async answer(question: LoadQuestion): Promise<unknown> {
    switch (question.do) {
      case "open":
        this.#streams = new LoadStreams(question.task);
        return this.#streams.open();
      case "connect writer":
        this.#writer = await LoadWriter.to(question.etcdUrl, question.valueBytes, question.isJson);
        return undefined;
      case "write saturated":
        return this.#writer?.writeSaturated(() => this.#streams?.completed ?? 0);
      case "stop writing":
        return this.#writer?.stop();
      case "write paced":
        return this.#writer?.writePaced(question.perSecond, question.count);
      case "await events":
        return this.#streams?.completedBetween(question.from, question.to);
      case "count":
        return this.#count();
    }
  }

  #count(): LoadCounts {
    const { user, system } = process.cpuUsage();
    return {
      delivered: this.#streams?.delivered ?? 0,
      messages: this.#streams?.messages ?? 0,
      completed: this.#streams?.completed ?? 0,
      receivedBytes: this.#streams?.receivedBytes ?? 0,
      written: this.#writer?.written ?? 0,
      shutEnded: this.#streams?.shutEnded ?? 0,
      cpu: (user + system) / 1e6,
    };
  }
}

if (import.meta.main) {
  const load = new LoadProcess();
  answerParent<LoadQuestion>((question) => load.answer(question));
}
