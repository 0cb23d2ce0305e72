import { readFileSync } from "node:fs";
import { type Logger, pino } from "pino";
import { afterAll, onTestFinished } from "vitest";
import { systemClock } from "../../src/base/clock.ts";
import { startService } from "../../src/cli/serve/main-process.ts";
import { loadConfig } from "../../src/config/load-config.ts";
import { portOf } from "../cli/serve/port-of.ts";
import { until } from "../until.ts";
import type { FakeMember } from "./fake-member.ts";

export { until };

/** A service with --etcd-api, in this process. */
export interface Front {
  /** `http://127.0.0.1:PORT` */
  readonly url: string;
  /** `127.0.0.1:PORT`, or `unix:PATH` */
  readonly address: string;
  readonly admin: string;
  stop(): Promise<void>;
}

/** Starts a service that relays to the etcd at these URLs. `flags` are further options of `serve`, by name. */
export function startFront(
  etcdUrls: readonly string[],
  flags: Readonly<Record<string, readonly string[]>> = {},
  logger: Logger = pino({ level: "silent" }),
): Promise<Front> {
  return startWith({ etcd: etcdUrls, ...flags }, logger);
}

/**
 * Starts a service that relays to a fake member, answers the one question that a start waits for, and forgets that. It is stopped
 * with the test.
 */
export async function startBefore(
  member: FakeMember,
  flags: Readonly<Record<string, readonly string[]>>,
): Promise<Front> {
  const starting = startFront([member.url], { ...flags, "etcd-history-create": ["off"] });
  await until(() => member.calls.length > 0);
  member.calls.shift()?.answer(1);
  const front = await starting;
  onTestFinished(() => front.stop());
  return front;
}

/** Starts a service with an embedded store, which keeps nothing. */
export function startEmbedded(
  flags: Readonly<Record<string, readonly string[]>> = {},
  logger: Logger = pino({ level: "silent" }),
): Promise<Front> {
  return startWith({ data: [":memory:"], ...flags }, logger);
}

/** Starts a relay of the services at these addresses. */
export function startRelay(
  addresses: readonly string[],
  flags: Readonly<Record<string, readonly string[]>> = {},
  logger: Logger = pino({ level: "silent" }),
): Promise<Front> {
  return startWith({ upstream: addresses, ...flags }, logger);
}

async function startWith(
  flags: Readonly<Record<string, readonly string[]>>,
  logger: Logger,
): Promise<Front> {
  const config = loadConfig({
    flags: {
      "etcd-api": ["on"],
      listen: ["127.0.0.1:0"],
      admin: ["127.0.0.1:0"],
      "shutdown-timeout": ["1s"],
      ...flags,
    },
    env: {},
    readFile: (path) => readFileSync(path),
  });
  const service = await startService(config, systemClock, logger);
  const { grpc } = service;
  const address = "path" in grpc ? `unix:${grpc.path}` : `127.0.0.1:${portOf(service)}`;
  return {
    url: `http://${address}`,
    address,
    admin: `http://127.0.0.1:${service.admin.port}`,
    stop: () => service.stop(),
  };
}

/** One front for the tests of the file that calls this at its top. */
export function frontOfFile(start: () => Promise<Front>): () => Promise<Front> {
  let started: Promise<Front> | undefined;
  afterAll(async () => {
    await (await started)?.stop();
  });
  return () => {
    started ??= start();
    return started;
  };
}

/** The value of a metric of the service, with a label of this value. */
export async function metricOf({ admin }: Front, name: string, label = ""): Promise<number> {
  const text = await (await fetch(`${admin}/metrics`)).text();
  const pattern = label === "" ? "" : `\\{[^}]*"${label}"[^}]*\\}`;
  return Number(new RegExp(`^${name}${pattern} (\\S+)`, "m").exec(text)?.[1] ?? Number.NaN);
}

/** Resolves when its caches are ready. */
export function untilReady({ admin }: Front): Promise<void> {
  return until(async () => (await fetch(`${admin}/readyz`)).ok);
}
