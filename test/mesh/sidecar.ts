import { type ChildProcess, spawn } from "node:child_process";
import { once } from "node:events";
import { mkdtemp, readFile, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { parseDocument } from "yaml";

/** What the test changes in a configuration of deploy/envoy: addresses, and where the certificates are. */
export interface SidecarOptions {
  /** The Envoy binary. */
  readonly envoy: string;
  /** A file of deploy/envoy. */
  readonly config: string;
  /** The folder with tls.crt, tls.key and ca.crt. */
  readonly certificates: string;
  /** Where its cluster's endpoints are, `127.0.0.1:PORT` each. */
  readonly endpoints: readonly string[];
}

/** A running Envoy with a configuration of deploy/envoy, on free ports of loopback. */
export class Sidecar implements AsyncDisposable {
  readonly #process: ChildProcess;
  readonly #exited: Promise<unknown>;
  readonly #folder: string;
  readonly #admin: string;
  /** Its listener, `127.0.0.1:PORT`. */
  readonly address: string;

  private constructor(
    started: { process: ChildProcess; exited: Promise<unknown>; folder: string; admin: string },
    address: string,
  ) {
    this.#process = started.process;
    this.#exited = started.exited;
    this.#folder = started.folder;
    this.#admin = started.admin;
    this.address = address;
  }

  /** Starts it, and waits until it listens. Rejects with its log if it ends before. */
  static async start(options: SidecarOptions): Promise<Sidecar> {
    const folder = await mkdtemp(join(tmpdir(), "watch-fanout-mesh-"));
    const adminPath = join(folder, "admin");
    await writeFile(join(folder, "envoy.yaml"), await adjusted(options));
    const args = ["--config-path", join(folder, "envoy.yaml"), "--admin-address-path", adminPath];
    const child = spawn(options.envoy, [...args, ...quiet], {
      stdio: ["ignore", "ignore", "pipe"],
    });
    let log = "";
    child.stderr?.setEncoding("utf8").on("data", (text: string) => {
      log = (log + text).slice(-maxLog);
    });
    let running = true;
    const exited = once(child, "close").then(() => {
      running = false;
    });
    while (running) {
      const admin = await readFile(adminPath, "utf8").catch(() => "");
      const address = admin === "" ? undefined : await listenerOf(admin).catch(() => undefined);
      if (address !== undefined)
        return new Sidecar({ process: child, exited, folder, admin }, address);
    }
    throw new Error(`Envoy ended before it listened: ${log}`);
  }

  /** Waits until exactly this many endpoints are healthy. */
  async untilHealthy(count: number): Promise<void> {
    while ((await this.#healthyEndpoints()) !== count);
  }

  /** The value of a counter or gauge. */
  async stat(name: string): Promise<number> {
    const response = await fetch(`http://${this.#admin}/stats?filter=^${name}$&format=json`);
    const { stats } = (await response.json()) as { stats: { name: string; value?: number }[] };
    return stats.find((stat) => stat.name === name)?.value ?? 0;
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.#process.kill("SIGKILL");
    await this.#exited;
    await rm(this.#folder, { recursive: true, force: true });
  }

  #healthyEndpoints(): Promise<number> {
    return this.stat("cluster.watch-fanout.membership_healthy");
  }
}

/** Several of them run on one machine: no shared memory, and one worker thread. */
const quiet = ["--use-dynamic-base-id", "--concurrency", "1", "--log-level", "warn"];

/** The last characters of Envoy's log that an error shows. */
const maxLog = 4_000;

const certificates = "/etc/envoy/certs";

/** The configuration on free ports of loopback, with the test's certificates and endpoints. */
async function adjusted({
  config,
  certificates: folder,
  endpoints,
}: SidecarOptions): Promise<string> {
  const source = await readFile(config, "utf8");
  if (!source.includes(certificates)) throw new Error(`${config} does not name ${certificates}.`);
  const document = parseDocument(source.replaceAll(certificates, folder));
  const free = { address: "127.0.0.1", port_value: 0 };
  const listener = ["static_resources", "listeners", 0, "address", "socket_address"];
  const cluster = ["static_resources", "clusters", 0, "load_assignment", "endpoints", 0];
  for (const path of [["admin", "address", "socket_address"], listener, cluster]) {
    if (!document.hasIn(path)) throw new Error(`${config} has no ${path.join(".")}.`);
  }
  document.setIn(["admin", "address", "socket_address"], free);
  document.setIn(listener, free);
  document.setIn([...cluster, "lb_endpoints"], endpoints.map(endpointOf));
  return document.toString();
}

function endpointOf(hostAndPort: string): unknown {
  const [address, port] = hostAndPort.split(":");
  return { endpoint: { address: { socket_address: { address, port_value: Number(port) } } } };
}

/** Where its listener is, as soon as it listens. */
async function listenerOf(admin: string): Promise<string | undefined> {
  const response = await fetch(`http://${admin}/listeners?format=json`);
  const { listener_statuses: [listener] = [] } = (await response.json()) as {
    listener_statuses?: { local_address: { socket_address: { port_value: number } } }[];
  };
  const port = listener?.local_address.socket_address.port_value;
  return port === undefined || port === 0 ? undefined : `127.0.0.1:${port}`;
}
