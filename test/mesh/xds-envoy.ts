import { type ChildProcess, spawn } from "node:child_process";
import { once } from "node:events";
import { mkdtemp, readFile, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { until } from "../testing/patient-until.ts";

/** The last characters of Envoy's log that an error shows. */
const maxLog = 4_000;

/** How an Envoy is configured. */
export interface XdsEnvoyOptions {
  /** The Envoy binary. */
  readonly envoy: string;
  /** Where xDS is served, `127.0.0.1:PORT` each. */
  readonly servers: readonly string[];
  readonly protocol: "DELTA_GRPC" | "GRPC";
}

/** An Envoy that has everything but where xDS is from there. */
export class XdsEnvoy implements AsyncDisposable {
  readonly #process: ChildProcess;
  readonly #exited: Promise<unknown>;
  readonly #folder: string;
  readonly #admin: string;
  readonly log: () => string;

  private constructor(
    started: { process: ChildProcess; exited: Promise<unknown>; folder: string; admin: string },
    log: () => string,
  ) {
    this.#process = started.process;
    this.#exited = started.exited;
    this.#folder = started.folder;
    this.#admin = started.admin;
    this.log = log;
  }

  /** Starts it, and waits until its admin port answers. */
  static async start(options: XdsEnvoyOptions): Promise<XdsEnvoy> {
    const folder = await mkdtemp(join(tmpdir(), "watch-fanout-xds-"));
    const config = join(folder, "envoy.json");
    const adminPath = join(folder, "admin");
    await writeFile(config, JSON.stringify(bootstrap(options)));
    const quiet = ["--use-dynamic-base-id", "--concurrency", "1", "--log-level", "warn"];
    const args = ["--config-path", config, "--admin-address-path", adminPath, ...quiet];
    const child = spawn(options.envoy, args, { stdio: ["ignore", "ignore", "pipe"] });
    let log = "";
    child.stderr?.setEncoding("utf8").on("data", (text: string) => {
      log = (log + text).slice(-maxLog);
    });
    const exited = once(child, "close");
    const admin = await until(
      () => `Envoy's admin port: ${log}`,
      // It is there for a moment before it has something in it.
      async () => (await readFile(adminPath, "utf8")) || undefined,
      { timeoutMs: 30_000 },
    );
    return new XdsEnvoy({ process: child, exited, folder, admin }, () => log);
  }

  /** It does nothing until `resume`, as on a machine that is too busy. */
  pause(): void {
    this.#process.kill("SIGSTOP");
  }

  resume(): void {
    this.#process.kill("SIGCONT");
  }

  /** The value of a counter or gauge. */
  async stat(name: string): Promise<number> {
    const { stats } = (await this.#get(`/stats?filter=^${name}$&format=json`)) as {
      readonly stats: readonly { readonly name: string; readonly value?: number }[];
    };
    return stats.find((stat) => stat.name === name)?.value ?? 0;
  }

  /** What it was configured with: the parts of /config_dump, without when each was received. */
  async configDump(): Promise<readonly Record<string, unknown>[]> {
    const { configs } = (await this.#get("/config_dump?include_eds")) as {
      readonly configs: readonly Record<string, unknown>[];
    };
    return configs;
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.#process.kill("SIGKILL");
    await this.#exited;
    await rm(this.#folder, { recursive: true, force: true });
  }

  async #get(path: string): Promise<unknown> {
    const response = await fetch(`http://${this.#admin}${path}`);
    return response.json();
  }
}

function bootstrap({ servers, protocol }: XdsEnvoyOptions): object {
  const ads = { ads: {}, resource_api_version: "V3" };
  const http2 = {
    "@type": "type.googleapis.com/envoy.extensions.upstreams.http.v3.HttpProtocolOptions",
    explicit_http_config: {
      http2_protocol_options: { connection_keepalive: { interval: "5s", timeout: "5s" } },
    },
  };
  return {
    node: { id: "test-envoy", cluster: "test" },
    admin: { address: { socket_address: { address: "127.0.0.1", port_value: 0 } } },
    dynamic_resources: {
      ads_config: {
        ...{ api_type: protocol, transport_api_version: "V3" },
        grpc_services: [{ envoy_grpc: { cluster_name: "xds" } }],
      },
      cds_config: ads,
      lds_config: ads,
    },
    static_resources: {
      clusters: [
        {
          ...{ name: "xds", type: "STATIC", connect_timeout: "1s" },
          typed_extension_protocol_options: {
            "envoy.extensions.upstreams.http.v3.HttpProtocolOptions": http2,
          },
          load_assignment: {
            cluster_name: "xds",
            endpoints: [{ lb_endpoints: servers.map(endpointOf) }],
          },
        },
      ],
    },
  };
}

function endpointOf(hostAndPort: string): object {
  const [address, port] = hostAndPort.split(":");
  const socketAddress = { address, port_value: Number(port) };
  return { endpoint: { address: { socket_address: socketAddress } } };
}
