import { Server, ServerCredentials } from "@grpc/grpc-js";
import { pino } from "pino";
import { onTestFinished } from "vitest";
import { Cacher } from "../../src/cacher/cacher.ts";
import type { CacherOptions } from "../../src/cacher/options.ts";
import { addTo } from "../../src/server/grpc-js/add-to.ts";
import {
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

interface ThingsOptions {
  readonly cacher?: Partial<CacherOptions>;
  readonly server?: Partial<ServerOptions>;
  readonly start?: boolean;
}

/** Serves the resource `things`, a Cacher over the embedded store, on its own port. */
export function serveThings(options: ThingsOptions = {}): Promise<Served> {
  return serveThingsBy(serve, options);
}

export type ServeBy<S extends ServedBy> = (
  resources: ReadonlyMap<string, ServedResource>,
  clock: ManualTimers,
  options?: Partial<ServerOptions>,
) => Promise<{ server: S; client: TestClient; recorder: Recorder }>;

/** Serves them as `by` does: `serve` or `serveAdded`. */
export async function serveThingsBy<S extends ServedBy>(
  by: ServeBy<S>,
  options: ThingsOptions = {},
): Promise<Omit<Served, "server"> & { readonly server: S }> {
  const clock = new ManualTimers();
  const storage = new MemoryStorage({ clock });
  const logger = pino({ level: "silent" });
  const cacher = new Cacher({ storage, clock, logger, name: "things", ...options.cacher });
  if (options.start !== false) await startReady(cacher);
  const { server, client, recorder } = await by(
    new Map([["things", cacher]]),
    clock,
    options.server,
  );
  onTestFinished(() => cacher.close());
  return { storage, cacher, server, clock, client, recorder };
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
    ...options,
    // The clock of a test may pass the time limit of a ping before its client has had a turn.
    limits: { keepaliveTimeMs: 24 * 3_600_000, ...options.limits },
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

/** What answers the calls: the service's own server, or a server of grpc-js that it was added to. */
export type ServedBy = Pick<RunningServer, "port" | "openStreams">;

/** As `serve`, added to a grpc-js server. `bindTo`: where it listens. */
export async function serveAdded(
  resources: ReadonlyMap<string, ServedResource>,
  clock: ManualTimers,
  { tls, ...options }: Partial<ServerOptions> = {},
  bindTo: string = "127.0.0.1:0",
): Promise<{ server: ServedBy; client: TestClient; recorder: Recorder }> {
  const recorder = new Recorder();
  const server = new Server({ "grpc.max_receive_message_length": 2 * 1024 ** 2 });
  const added = addTo(server, {
    ...{ resources, clock, logger: pino({ level: "error" }, recorder), observer: recorder },
    ...options,
  });
  const { cert: cert_chain, key: private_key, clientCa = null } = tls ?? {};
  const credentials =
    cert_chain === undefined || private_key === undefined
      ? ServerCredentials.createInsecure()
      : ServerCredentials.createSsl(clientCa, [{ cert_chain, private_key }], clientCa !== null);
  const port = await new Promise<number>((resolve, reject) => {
    server.bindAsync(bindTo, credentials, (error, bound) => {
      if (error === null) resolve(bound);
      else reject(error);
    });
  });
  const client = new TestClient(port);
  onTestFinished(() => {
    client.close();
    added.drain();
    server.forceShutdown();
  });
  const served: ServedBy = {
    port,
    get openStreams() {
      return added.openStreams;
    },
  };
  return { server: served, client, recorder };
}
