import { readFileSync } from "node:fs";
import { createServer, type IncomingMessage } from "node:http";
import type { AddressInfo } from "node:net";
import { json, text } from "node:stream/consumers";
import { pino } from "pino";
import { systemClock } from "../../src/base/clock.ts";
import { ChangeableLevel } from "../../src/cli/serve/logger.ts";
import { type Service, startService } from "../../src/cli/serve/main-process.ts";
import { loadWithSnapshot } from "../../src/config/load-config.ts";

/**
 * How a front is built: one process; with two workers, except before further members of a cluster, whose processes would
 * take most of the time of a run; a relay of another service, which follows the member.
 */
export const forms = ["process", "workers", "relay"] as const;
export type Form = (typeof forms)[number];

/** Flags of `serve`, without dashes. */
type Flags = Readonly<Record<string, string>>;

/** What front.go asks for: the flags by which a service finds the member, and those of certificates for clients. */
interface FrontRequest {
  /** Of the member: m0 is the first of its cluster. */
  readonly name: string;
  readonly member: Flags;
  readonly clients: Flags;
}

/** The fronts of a run. */
interface Fronts {
  readonly url: string;
  close(): Promise<void>;
}

/**
 * Starts and stops fronts by HTTP, all in this process (workers are processes of their own): a process takes longer to start
 * than most tests take. POST with a {@link FrontRequest} responds with `GRPC_PORT ADMIN_PORT`, DELETE with GRPC_PORT stops that front.
 */
export async function serveFronts(form: Form): Promise<Fronts> {
  const running = new Map<string, readonly Service[]>();
  const respond = async (request: IncomingMessage): Promise<string> => {
    if (request.method === "DELETE") {
      const port = await text(request);
      for (const service of running.get(port) ?? []) await service.stop();
      running.delete(port);
      return "";
    }
    const services = await start((await json(request)) as FrontRequest, form);
    const [{ grpc, admin }] = services;
    if (!("port" in grpc)) throw new Error(`the front listens on ${grpc.path}`);
    running.set(`${grpc.port}`, services);
    return `${grpc.port} ${admin.port}`;
  };
  const server = createServer((request, response) => {
    respond(request).then(
      (body) => response.end(body),
      (error: unknown) => response.writeHead(500).end(String(error)),
    );
  });
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  return {
    url: `http://127.0.0.1:${(server.address() as AddressInfo).port}/`,
    // A test that panics leaves its fronts.
    close: async () => {
      server.close();
      for (const service of [...running.values()].flat()) await service.stop();
    },
  };
}

/** The services of a front, that for clients first. */
async function start(
  { name, member, clients }: FrontRequest,
  form: Form,
): Promise<readonly [Service, ...Service[]]> {
  if (form !== "relay") {
    const workers = form === "workers" && name === "m0" ? "2" : "1";
    return [await service({ ...ofRoot, ...member, ...clients, workers })];
  }
  const root = await service({ ...ofRoot, ...member, "watch-fanout-api": "on" });
  if (!("port" in root.grpc)) throw new Error("the upstream of the relay has no port");
  return [await service({ upstream: `127.0.0.1:${root.grpc.port}`, ...clients }), root];
}

/** As etcd-proxy. */
const ofRoot: Flags = { resource: "all=", "watch-fanout-api": "off", "etcd-history-create": "off" };

async function service(own: Flags): Promise<Service> {
  const flags = {
    "etcd-api": "on",
    listen: "127.0.0.1:0",
    admin: "127.0.0.1:0",
    "shutdown-timeout": "1s",
    ...own,
  };
  const { config, snapshot } = loadWithSnapshot({
    flags: Object.fromEntries(Object.entries(flags).map(([name, value]) => [name, [value]])),
    env: {},
    readFile: (path) => readFileSync(path),
  });
  const level = new ChangeableLevel("error");
  const onFailure = (message: string): void => void process.stderr.write(`${message}\n`);
  const logger = pino({ level: "fatal" });
  return startService(config, systemClock, logger, {
    snapshot,
    logFormat: "json",
    level,
    onFailure,
  });
}
