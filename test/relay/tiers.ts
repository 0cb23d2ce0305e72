import { mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { type Logger, pino } from "pino";
import { onTestFinished } from "vitest";
import { systemClock } from "../../src/base/clock.ts";
import { type Service, startService } from "../../src/cli/serve/main-process.ts";
import { type Client, connect } from "../../src/client/connect.ts";
import { loadConfig } from "../../src/config/load-config.ts";
import { portOf } from "../cli/serve/port-of.ts";
import { TestClient } from "../server/test-client.ts";
import { until } from "../until.ts";

export { until };

/** The options of a service, without dashes: a text, or several for a list. */
export type Options = Readonly<Record<string, string | readonly string[]>>;

export const silent: Logger = pino({ level: process.env["RELAY_LOG"] ?? "silent" });

/** A service within this process, as `watch-fanout serve` starts it, and clients of it. */
export class Tier {
  readonly service: Service;
  readonly #options: Options;
  readonly #closing: (() => void)[] = [];

  private constructor(service: Service, options: Options) {
    this.service = service;
    this.#options = options;
  }

  /** Resolves when all its caches are ready. */
  static async start(options: Options, logger: Logger = silent): Promise<Tier> {
    const free = "127.0.0.1:0";
    const isFollower = "etcd" in options || "upstream" in options;
    const own = { listen: free, admin: free, "shutdown-timeout": "1s" };
    const given = { ...own, ...(isFollower ? {} : { data: ":memory:" }), ...options };
    const flags = Object.entries(given).map(([name, value]) => [
      name,
      typeof value === "string" ? [value] : value,
    ]);
    const config = loadConfig({
      flags: Object.fromEntries(flags),
      env: {},
      readFile: (path) => readFileSync(path),
    });
    const tier = new Tier(await startService(config, systemClock, logger), options);
    await tier.untilReady();
    return tier;
  }

  /** A relay of these addresses. */
  static relay(
    addresses: readonly string[] | string,
    options: Options = {},
    logger: Logger = silent,
  ): Promise<Tier> {
    return Tier.start({ upstream: addresses, ...options }, logger);
  }

  get address(): string {
    return `127.0.0.1:${this.port}`;
  }

  get port(): number {
    return portOf(this.service);
  }

  /** A client of the library, closed with this. */
  client(options: { readonly token?: string; readonly maxAttempts?: number } = {}): Client {
    // On a busy machine this process may have no turn for longer than a ping may take, and calls take longer than by default.
    const patient = { keepaliveIntervalMs: 3_600_000, timeoutMs: 60_000 };
    const client = connect({ address: this.address, ...patient, ...options });
    this.#closing.push(() => client.close());
    return client;
  }

  /** A client that reports what comes, closed with this. */
  bare(): TestClient {
    const client = new TestClient(this.port);
    this.#closing.push(() => client.close());
    return client;
  }

  async readyz(): Promise<string> {
    return (await fetch(`http://127.0.0.1:${this.service.admin.port}/readyz?verbose`)).text();
  }

  /** The sum of a metric over its labels. */
  async metric(name: string): Promise<number> {
    return sumOf(await this.metrics(), name);
  }

  /** All metrics, in Prometheus' text format. */
  async metrics(): Promise<string> {
    return (await fetch(`http://127.0.0.1:${this.service.admin.port}/metrics`)).text();
  }

  async untilReady(): Promise<void> {
    await until(async () => (await this.readyz()).startsWith("ok"));
  }

  async stop(): Promise<void> {
    for (const close of this.#closing.splice(0)) close();
    await this.service.stop();
  }

  /** Ends it, and starts another with the same options on the same port. */
  async restart(): Promise<Tier> {
    const listen = this.address;
    await this.stop();
    return Tier.start({ ...this.#options, listen });
  }
}

/** The sum of a metric in Prometheus' text format, over its labels. */
export function sumOf(text: string, name: string): number {
  const values = text.matchAll(new RegExp(`^${name}(?:\\{[^}]*\\})? (\\S+)`, "gm"));
  return [...values].reduce((sum, [, value]) => sum + Number(value), 0);
}

/** Writes files into a folder that is deleted at the end of the test, or as `atEnd` says. Returns their paths. */
export function temporaryFiles<Name extends string>(
  contents: Readonly<Record<Name, string>>,
  atEnd: (remove: () => void) => void = onTestFinished,
): Record<Name, string> {
  const folder = mkdtempSync(join(tmpdir(), "watch-fanout-relay-"));
  atEnd(() => rmSync(folder, { recursive: true }));
  const paths = Object.entries<string>(contents).map(([name, content]) => {
    const path = join(folder, name);
    writeFileSync(path, content);
    return [name, path];
  });
  return Object.fromEntries(paths) as Record<Name, string>;
}
