import { pino } from "pino";
import { systemClock } from "../../src/base/clock.ts";
import { Cacher } from "../../src/cacher/cacher.ts";
import type { CacherOptions } from "../../src/cacher/options.ts";
import { type RunningServer, type ServerOptions, startServer } from "../../src/server/server.ts";
import type { Storage } from "../../src/storage/storage.ts";
import type { Store } from "../../src/storage/store.ts";
import { ConnectDoor } from "../../src/web/connect-door.ts";
import { startReady } from "../cacher/ready.ts";

const logger = pino({ level: "silent" });

/** A storage, cached and served as the resource `things` on its own port. */
export class CachedServer {
  readonly cacher: Cacher;
  readonly #server: RunningServer;

  private constructor(cacher: Cacher, server: RunningServer) {
    this.cacher = cacher;
    this.#server = server;
  }

  /** The Cacher closes the storage. `store`: that of the storage. Any page may call. */
  static async over(
    storage: Storage,
    options: Partial<CacherOptions> = {},
    port: number = 0,
    store?: Store,
    server?: Pick<ServerOptions, "tls">,
  ): Promise<CachedServer> {
    const clock = systemClock;
    const cacher = new Cacher({ storage, clock, logger, name: "things", ...options });
    const running = await startServer({
      ...{ resources: new Map([["things", cacher]]), store },
      listen: { host: "127.0.0.1", port },
      clock,
      logger,
      webDoor: new ConnectDoor({ allowedOrigins: ["*"] }),
      ...server,
    });
    await startReady(cacher);
    return new CachedServer(cacher, running);
  }

  get port(): number {
    return this.#server.port;
  }

  get address(): string {
    return `127.0.0.1:${this.port}`;
  }

  async close(): Promise<void> {
    await this.#server.drain(0);
    await this.cacher.close();
  }
}
