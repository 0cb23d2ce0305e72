/**
 * Relays that share one process, started by relay-hosts.ts by IPC. Each is a whole service, as `serve --upstream` starts it,
 * with its own client, cache, gRPC port and admin port.
 */
import { setTimeout as delay } from "node:timers/promises";
import { pino } from "pino";
import { systemClock } from "../src/base/clock.ts";
import { type Service, startService } from "../src/cli/serve/main-process.ts";
import { loadConfig } from "../src/config/load-config.ts";
import { answerParent } from "./child.ts";
import { resource } from "./servers.ts";

/** The messages of the parent: first to start relays, then to wait until all of them have a revision. */
export type HostQuestion =
  | { readonly do: "start"; readonly upstream: string; readonly relays: number }
  | { readonly do: "await revision"; readonly revision: number };

const lookMs = 20;

/** One of the processes. */
class RelayHost {
  readonly #services: Service[] = [];

  async answer(question: HostQuestion): Promise<void> {
    if (question.do === "start") {
      for (let i = 0; i < question.relays; i++) await this.#start(question.upstream);
    }
    const revision = question.do === "start" ? 1 : question.revision;
    await Promise.all(this.#services.map((service) => reached(service, revision)));
  }

  async #start(upstream: string): Promise<void> {
    const free = ["127.0.0.1:0"];
    const config = loadConfig({
      flags: { upstream: [upstream], listen: free, admin: free },
      env: {},
      readFile: () => Buffer.of(),
    });
    const logger = pino({ level: "warn" }, process.stderr);
    this.#services.push(await startService(config, systemClock, logger));
  }
}

/** Resolves when the service is ready, and its cache has come to the revision. */
async function reached({ admin }: Service, revision: number): Promise<void> {
  const url = `http://${admin.host}:${admin.port}`;
  const found = new RegExp(`^watch_fanout_cache_revision\\{resource="${resource}"\\} (\\d+)`, "m");
  for (;;) {
    const { ok } = await fetch(`${url}/readyz`);
    const metrics = await (await fetch(`${url}/metrics`)).text();
    if (ok && Number(found.exec(metrics)?.[1] ?? 0) >= revision) return;
    await delay(lookMs);
  }
}

const host = new RelayHost();
answerParent<HostQuestion>((question) => host.answer(question));
