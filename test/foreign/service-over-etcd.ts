import { setTimeout as delay } from "node:timers/promises";
import { pino } from "pino";
import { systemClock } from "../../src/base/clock.ts";
import { type Service, startService } from "../../src/cli/serve/main-process.ts";
import { loadConfig } from "../../src/config/load-config.ts";
import { formatAddress } from "../../src/config/value-types.ts";

export interface RunningService {
  /** As in http://127.0.0.1:41234. */
  readonly url: string;
  stop(): Promise<void>;
}

/** Starts the whole service on a free port, over the etcd at `etcdUrl`, with resources as NAME=PREFIX. */
export async function serveOver(
  etcdUrl: string,
  ...resources: readonly string[]
): Promise<RunningService> {
  const config = loadConfig({
    flags: {
      etcd: [etcdUrl],
      resource: resources,
      listen: ["127.0.0.1:0"],
      admin: ["127.0.0.1:0"],
      "shutdown-timeout": ["1s"],
    },
    env: {},
    readFile: () => {
      throw new Error("No file is needed.");
    },
  });
  const service = await startService(config, systemClock, pino({ level: "silent" }));
  await ready(service);
  return {
    url: `http://${formatAddress(service.grpc)}`,
    stop: () => service.stop(),
  };
}

/** Requests /readyz until it succeeds. */
async function ready(service: Service): Promise<void> {
  const url = `http://127.0.0.1:${service.admin.port}/readyz`;
  while (!(await fetch(url)).ok) await delay(5);
}
