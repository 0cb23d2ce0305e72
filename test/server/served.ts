import { pino } from "pino";
import { onTestFinished } from "vitest";
import { Cacher } from "../../src/cacher/cacher.ts";
import type { CacherOptions } from "../../src/cacher/options.ts";
import {
  type Framing,
  type RpcObserver,
  type RunningServer,
  type ServedResource,
  type ServerOptions,
  startServer,
} from "../../src/server/server.ts";
import { MemoryStorage } from "../../src/storage/memory/memory-storage.ts";
import { startReady } from "../cacher/ready.ts";
import { ManualTimers } from "./limits/manual-timers.ts";
import { TestClient } from "./test-client.ts";

/** Records the calls of an observer and the lines of a logger. */
export class Recorder implements RpcObserver {
  readonly calls: { method: string; code: string }[] = [];
  readonly logged: string[] = [];
  sentMessages = 0;
  open = 0;
  #waiting: (() => void)[] = [];

  started(): void {
    this.open++;
    this.#wake();
  }

  ended(method: string, code: string): void {
    this.open--;
    this.calls.push({ method, code });
    this.#wake();
  }

  sent(_method: string, messages: number): void {
    this.sentMessages += messages;
  }

  write(line: string): void {
    this.logged.push(line);
  }

  /** Resolves when `count` calls have started, including those that have ended. */
  async untilStarted(count: number): Promise<void> {
    while (this.open + this.calls.length < count) {
      await new Promise<void>((resolve) => this.#waiting.push(resolve));
    }
  }

  /** Resolves when `count` calls have ended. */
  async untilEnded(count: number): Promise<void> {
    while (this.calls.length < count) {
      await new Promise<void>((resolve) => this.#waiting.push(resolve));
    }
  }

  #wake(): void {
    for (const wake of this.#waiting.splice(0)) wake();
  }
}

export interface Served {
  readonly storage: MemoryStorage;
  readonly cacher: Cacher;
  readonly server: RunningServer;
  readonly clock: ManualTimers;
  readonly client: TestClient;
  readonly recorder: Recorder;
}

/** Serves the resource `things`, a Cacher over the embedded store, on its own port. */
export async function serveThings(
  options: {
    readonly cacher?: Partial<CacherOptions>;
    readonly server?: Partial<ServerOptions>;
    readonly start?: boolean;
  } = {},
): Promise<Served> {
  const clock = new ManualTimers();
  const storage = new MemoryStorage({ clock });
  const logger = pino({ level: "silent" });
  const cacher = new Cacher({ storage, clock, logger, name: "things", ...options.cacher });
  if (options.start !== false) await startReady(cacher);
  const { server, client, recorder } = await serve(
    new Map([["things", cacher]]),
    clock,
    options.server,
  );
  onTestFinished(() => cacher.close());
  return { storage, cacher, server, clock, client, recorder };
}

/** vitest.config.ts runs some tests again, with another writer of frames. */
export function testedFraming(): Framing {
  return process.env["TEST_FRAMING"] === "node" ? "node" : "direct";
}

/** Serves these resources. */
export async function serve(
  resources: ReadonlyMap<string, ServedResource>,
  clock: ManualTimers,
  options: Partial<ServerOptions> = {},
): Promise<{ server: RunningServer; client: TestClient; recorder: Recorder }> {
  const recorder = new Recorder();
  const server = await startServer({
    resources,
    listen: { host: "127.0.0.1", port: 0 },
    clock,
    logger: pino({ level: "error" }, recorder),
    observer: recorder,
    framing: testedFraming(),
    ...options,
  });
  const client = new TestClient(server.port);
  onTestFinished(async () => {
    client.close();
    const drained = server.drain(0);
    clock.advance(0);
    await drained;
  });
  return { server, client, recorder };
}
