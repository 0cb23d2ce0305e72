import { createServer, get, type Server } from "node:http";
import type { AddressInfo } from "node:net";
import { setTimeout as pause } from "node:timers/promises";
import { describe, expect, onTestFinished, test } from "vitest";
import { envoyBinary } from "../../scripts/envoy.ts";
import { hasReason } from "../../src/base/errors.ts";
import { type Client, connect } from "../../src/client/connect.ts";
import { type Served, startServe } from "../cli/serve/serve-process.ts";
import { type Etcd, startEtcd } from "../etcd/etcd.ts";
import { freePorts } from "../etcd/free-ports.ts";
import { until } from "../testing/patient-until.ts";
import { XdsEnvoy, type XdsEnvoyOptions } from "./xds-envoy.ts";

const envoy = await envoyBinary().catch((error: Error) => {
  process.stderr.write(`Skipped, since the tests of xDS need Envoy. ${error.message}\n`);
  return undefined;
});

const resources = ["clusters", "listeners", "routes", "instances"].flatMap((name) => [
  "--resource",
  `${name}=/mesh/${name}/`,
]);
const xds = ["--xds", "cds=clusters,lds=listeners,rds=routes,eds=instances"];

async function startService(...args: readonly string[]): Promise<Served> {
  const served = await startServe(args);
  onTestFinished(() => served.process[Symbol.asyncDispose]());
  return served;
}

async function startStore(): Promise<Etcd> {
  const etcd = await startEtcd();
  onTestFinished(() => etcd.stop());
  return etcd;
}

function connectTo({ grpc }: Served): Client {
  const client = connect({ address: grpc });
  onTestFinished(() => client.close());
  return client;
}

async function startEnvoy(options: Omit<XdsEnvoyOptions, "envoy">): Promise<XdsEnvoy> {
  const started = await XdsEnvoy.start({ envoy: envoy ?? "", ...options });
  onTestFinished(() => started[Symbol.asyncDispose]());
  return started;
}

/** A backend that answers with its name. */
async function startBackend(name: string): Promise<{ readonly port: number; stop(): void }> {
  const server: Server = createServer((_, response) => response.end(name));
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  const stop = (): void => {
    server.close();
    server.closeAllConnections();
  };
  onTestFinished(stop);
  return { port: (server.address() as AddressInfo).port, stop };
}

const any = "type.googleapis.com/envoy";

function clusterNamed(name: string): object {
  return {
    "@type": `${any}.config.cluster.v3.Cluster`,
    ...{ name, type: "EDS", connect_timeout: "1s" },
    circuit_breakers: { thresholds: [{ max_retries: 100 }] },
    eds_cluster_config: { eds_config: { ads: {}, resource_api_version: "V3" } },
  };
}

function listenerAt(port: number): object {
  return {
    "@type": `${any}.config.listener.v3.Listener`,
    name: "inbound",
    address: { socket_address: { address: "127.0.0.1", port_value: port } },
    filter_chains: [
      {
        filters: [
          {
            name: "envoy.filters.network.http_connection_manager",
            typed_config: {
              "@type": `${any}.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager`,
              stat_prefix: "inbound",
              rds: {
                config_source: { ads: {}, resource_api_version: "V3" },
                route_config_name: "main",
              },
              http_filters: [
                {
                  name: "envoy.filters.http.router",
                  typed_config: { "@type": `${any}.extensions.filters.http.router.v3.Router` },
                },
              ],
            },
          },
        ],
      },
    ],
  };
}

function routeTo(cluster: string): object {
  const retryPolicy = {
    ...{ retry_on: "connect-failure,reset,refused-stream", num_retries: 5 },
    retry_host_predicate: [
      {
        name: "envoy.retry_host_predicates.previous_hosts",
        typed_config: {
          "@type": `${any}.extensions.retry.host.previous_hosts.v3.PreviousHostsPredicate`,
        },
      },
    ],
    host_selection_retry_max_attempts: "10",
  };
  return {
    "@type": `${any}.config.route.v3.RouteConfiguration`,
    name: "main",
    virtual_hosts: [
      {
        ...{ name: "all", domains: ["*"] },
        routes: [{ match: { prefix: "/" }, route: { cluster, retry_policy: retryPolicy } }],
      },
    ],
  };
}

function isNotFound(error: unknown): boolean {
  return hasReason(error, "OBJECT_NOT_FOUND");
}

/** Puts objects by JSON. */
function writer(client: Client) {
  return async (resource: string, key: string, value: object, ttlMs?: number): Promise<void> => {
    await client.put(resource, key, Buffer.from(JSON.stringify(value)), { ttlMs });
  };
}

/** Requests without a pause at a port, until `stop`. */
class Traffic {
  readonly failures: string[] = [];
  /** Number of answers of each backend. */
  readonly answers = new Map<string, number>();
  #isStopped = false;
  readonly #running: Promise<void>[] = [];

  constructor(port: number, concurrency = 4) {
    for (let i = 0; i < concurrency; i++) this.#running.push(this.#request(port));
  }

  /** Resolves once these backends, and no others, answer. */
  async onlyFrom(...names: readonly string[]): Promise<void> {
    await until(
      () => `answers of ${names.join()} alone: ${[...this.answers].join()}`,
      async () => {
        this.answers.clear();
        await until("answers", () => [...this.answers.values()].reduce((a, b) => a + b, 0) > 40);
        return [...this.answers.keys()].sort().join() === [...names].sort().join();
      },
      { timeoutMs: 60_000 },
    );
  }

  async stop(): Promise<void> {
    this.#isStopped = true;
    await Promise.all(this.#running);
  }

  async #request(port: number): Promise<void> {
    while (!this.#isStopped) {
      const answer = await answerOf(port);
      if (answer.status === 200) {
        this.answers.set(answer.text, (this.answers.get(answer.text) ?? 0) + 1);
      } else {
        this.failures.push(`${answer.status} ${answer.text}`);
      }
      await pause(2);
    }
  }
}

function answerOf(port: number): Promise<{ readonly status: number; readonly text: string }> {
  return new Promise((resolve) => {
    const request = get({ host: "127.0.0.1", port, path: "/" }, (response) => {
      let text = "";
      response.setEncoding("utf8").on("data", (part: string) => {
        text += part;
      });
      response.on("end", () => resolve({ status: response.statusCode ?? 0, text }));
    });
    request.on("error", (error) => resolve({ status: 0, text: error.message }));
  });
}

type Dump = Record<string, unknown>;

/** The dynamic resources of a part of Envoy's configuration. */
function dynamic<T>(
  configs: readonly Dump[],
  part: string,
  list: string,
  member: (entry: Dump) => unknown,
): readonly T[] {
  const dump = configs.find((config) => String(config["@type"]).endsWith(`.${part}`));
  const entries = (dump?.[list] ?? []) as readonly Dump[];
  return entries.map((entry) => member(entry) as T);
}

function byName(resources: readonly { readonly name: string }[]): Record<string, unknown> {
  return Object.fromEntries(resources.map((resource) => [resource.name, resource]));
}

interface DumpedAssignment {
  readonly cluster_name: string;
  readonly endpoints?: readonly {
    readonly lb_endpoints: readonly {
      readonly endpoint: { readonly address: { readonly socket_address: SocketAddress } };
    }[];
  }[];
}

interface SocketAddress {
  readonly address: string;
  readonly port_value: number;
}

/** What Envoy has by xDS: what is stored, and the addresses of the instances of each cluster. */
function dumped(configs: readonly Dump[]): Record<string, Record<string, unknown>> {
  const assignments = dynamic<DumpedAssignment>(
    ...([configs, "EndpointsConfigDump", "dynamic_endpoint_configs"] as const),
    (e) => e["endpoint_config"],
  );
  const addresses = ({ endpoints = [] }: DumpedAssignment): string[] =>
    endpoints
      .flatMap(({ lb_endpoints }) => lb_endpoints)
      .map(({ endpoint }) => endpoint.address.socket_address)
      .map(({ address, port_value }) => `${address}:${port_value}`)
      .sort();
  return {
    clusters: byName(
      dynamic(configs, "ClustersConfigDump", "dynamic_active_clusters", (e) => e["cluster"]),
    ),
    listeners: byName(
      dynamic(
        ...([configs, "ListenersConfigDump", "dynamic_listeners"] as const),
        (e) => (e["active_state"] as Dump)["listener"],
      ),
    ),
    routes: byName(
      dynamic(configs, "RoutesConfigDump", "dynamic_route_configs", (e) => e["route_config"]),
    ),
    endpoints: Object.fromEntries(assignments.map((each) => [each.cluster_name, addresses(each)])),
  };
}

describe.runIf(envoy !== undefined)("Envoy, by xDS", () => {
  test.each(["DELTA_GRPC", "GRPC"] as const)(
    "serves traffic without a failed request while instances come and go, and servers end (%s)",
    { timeout: 240_000 },
    async (protocol) => {
      const etcd = await startStore();
      const root = await startService("--etcd", etcd.url, ...resources);
      const relay = await startService("--upstream", root.grpc, ...xds);
      const client = connectTo(root);
      const put = writer(client);
      const [port = 0] = await freePorts(1);
      const [one, two, three] = [
        await startBackend("one"),
        await startBackend("two"),
        await startBackend("three"),
      ];
      const stored = {
        clusters: { web: clusterNamed("web") },
        listeners: { inbound: listenerAt(port) },
        routes: { main: routeTo("web") },
      };
      for (const [resource, values] of Object.entries(stored)) {
        for (const [key, value] of Object.entries(values)) await put(resource, key, value);
      }
      await put("instances", "web/1", { address: "127.0.0.1", port: one.port });
      const running = await startEnvoy({ servers: [relay.grpc], protocol });
      await until("the listener", async () => (await answerOf(port)).status === 200, {
        timeoutMs: 60_000,
      });

      const first = { web: [`127.0.0.1:${one.port}`] };
      expect(dumped(await running.configDump())).toEqual({ ...stored, endpoints: first });

      const traffic = new Traffic(port);
      onTestFinished(() => traffic.stop());
      await traffic.onlyFrom("one");
      // In etcd's own format.
      await put("instances", "web/2", { Op: 0, Addr: `127.0.0.1:${two.port}`, Metadata: null });
      await traffic.onlyFrom("one", "two");
      // One leaves: it answers until no more traffic comes.
      await client.delete("instances", "web/1");
      await traffic.onlyFrom("two");
      // One whose lease expires.
      await put("instances", "web/3", { address: "127.0.0.1", port: three.port }, 5_000);
      await traffic.onlyFrom("two", "three");
      await traffic.onlyFrom("two");
      // One that dies without a word, and expires: others answer in its place.
      await put("instances", "web/3", { address: "127.0.0.1", port: three.port }, 5_000);
      await traffic.onlyFrom("two", "three");
      three.stop();
      await traffic.onlyFrom("two");
      await until(
        "its end",
        async () => (await running.stat("cluster.web.membership_total")) === 1,
        { timeoutMs: 60_000 },
      );

      // The root is killed, and etcd restarted: the relay serves what it has.
      root.process.kill("SIGKILL");
      await root.process.exit;
      await etcd.kill();
      await traffic.onlyFrom("two");
      await etcd.start();
      const again = await startService("--etcd", etcd.url, "--listen", root.grpc, ...resources);
      const writeAgain = writer(connectTo(again));
      await writeAgain("instances", "web/1", { address: "127.0.0.1", port: one.port });
      await traffic.onlyFrom("one", "two");

      // The route moves to a new cluster, and the old one goes, in one transaction, while Envoy stands still for some time.
      const moved = connectTo(again);
      await writeAgain("instances", "web-2/2", { address: "127.0.0.1", port: two.port });
      await writeAgain("instances", "other/1", { address: "127.0.0.1", port: two.port }, 2_000);
      running.pause();
      await moved.transact(async (tx) => {
        tx.put("routes", "main", Buffer.from(JSON.stringify(routeTo("web-2"))));
        tx.put("clusters", "web-2", Buffer.from(JSON.stringify(clusterNamed("web-2"))));
        tx.delete("clusters", "web");
      });
      await until(
        "the end of a lease",
        () => moved.get("instances", "other/1").then(() => false, isNotFound),
        { timeoutMs: 60_000 },
      );
      running.resume();
      await traffic.onlyFrom("two");
      await until(
        "the old cluster's end",
        async () => dumped(await running.configDump())["clusters"]?.["web"] === undefined,
        { timeoutMs: 60_000 },
      );
      expect(dumped(await running.configDump())).toEqual({
        clusters: { "web-2": clusterNamed("web-2") },
        listeners: stored.listeners,
        routes: { main: routeTo("web-2") },
        endpoints: { "web-2": [`127.0.0.1:${two.port}`] },
      });
      await traffic.stop();
      expect(traffic.failures).toEqual([]);
    },
  );
});
