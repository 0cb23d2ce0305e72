import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { type TestAPI, test } from "vitest";
import { etcdBinaries } from "../../scripts/etcd.ts";
import { EtcdProcess } from "./etcd-process.ts";
import { freePorts } from "./free-ports.ts";

export interface EtcdOptions {
  /** Enables authentication, with the user `root` and this password. Not together with `tls`. */
  readonly rootPassword?: string;
  /** Paths of PEM files. With `clientCa`, clients must have a certificate that it has signed. */
  readonly tls?: { readonly cert: string; readonly key: string; readonly clientCa?: string };
  /** The space quota, in bytes. */
  readonly quotaBytes?: number;
  /** Further arguments of etcd, as on its command line. */
  readonly args?: readonly string[];
}

/** A real etcd of one member, on free ports of 127.0.0.1 and in a temporary folder. */
export interface Etcd {
  /** Such as "http://127.0.0.1:41234". The same after each start. */
  readonly url: string;
  /** The version that is running, and its tool if there is one. */
  readonly bin: string;
  readonly etcdctl: string | undefined;
  readonly version: string;
  /** Its process, while it runs. */
  readonly pid: number | undefined;
  /** Kills it (-9) and waits until it has exited. The data stays. */
  kill(): Promise<void>;
  /** Starts it again after `kill`, on the same ports and data, and waits until it is healthy. */
  start(): Promise<void>;
  /**
   * Stops it without closing its connections (SIGSTOP), as a machine that has lost its network, and waits until it has
   * stopped.
   */
  pause(): Promise<void>;
  /** Ends `pause`. */
  resume(): void;
  /** Kills it and deletes its data. Idempotent. */
  stop(): Promise<void>;
}

/** Whether the embedded store stands in for etcd. */
const isEmbedded = process.env["TEST_ETCD"] === "embedded";

/** A test of what the embedded store has not: it is left out there. */
export function testWithEtcd(_has: "users" | "metrics" | "snapshots" | "a member's name"): TestAPI {
  return isEmbedded ? (test.skip as TestAPI) : test;
}

/** Starts an etcd and waits until it is healthy. With the variable TEST_ETCD it is the embedded store. */
export async function startEtcd(options: EtcdOptions = {}): Promise<Etcd> {
  if (isEmbedded) {
    // Most tests need no service beside etcd.
    const { startAsEtcd } = await import("../etcd-server/as-etcd.ts");
    return startAsEtcd(options);
  }
  const { etcd: bin, etcdctl, version } = await etcdBinaries();
  const folder = await mkdtemp(join(tmpdir(), "etcd-test-"));
  const { member, port } = await firstStart(bin, folder, options);
  const scheme = options.tls === undefined ? "http" : "https";
  const etcd: Etcd = {
    url: `${scheme}://127.0.0.1:${port}`,
    bin,
    etcdctl,
    version,
    get pid() {
      return member.pid;
    },
    kill: () => member.kill(),
    start: () => member.start(),
    pause: () => member.pause(),
    resume: () => member.resume(),
    stop: async () => {
      await member.kill();
      await rm(folder, { recursive: true, force: true });
    },
  };
  if (options.rootPassword !== undefined) await enableAuth(etcd.url, options.rootPassword);
  return etcd;
}

interface Ports {
  readonly client: number;
  readonly peer: number;
}

/** Another process may take a free port before etcd does: then other ports are tried. */
async function firstStart(
  bin: string,
  folder: string,
  options: EtcdOptions,
): Promise<{ readonly member: EtcdProcess; readonly port: number }> {
  for (let attempt = 1; ; attempt++) {
    const [client = 0, peer = 0] = await freePorts(2);
    const member = new EtcdProcess(bin, folder, etcdArgs(folder, { client, peer }, options));
    try {
      await member.start();
      return { member, port: client };
    } catch (error) {
      await member.kill();
      if (attempt === 5 || !member.output.includes("address already in use")) throw error;
    }
  }
}

function etcdArgs(folder: string, ports: Ports, options: EtcdOptions): readonly string[] {
  const { tls, quotaBytes, args = [] } = options;
  const client = `${tls === undefined ? "http" : "https"}://127.0.0.1:${ports.client}`;
  const peer = `http://127.0.0.1:${ports.peer}`;
  return [
    "--name=test",
    `--data-dir=${join(folder, "data")}`,
    `--listen-client-urls=${client}`,
    `--advertise-client-urls=${client}`,
    `--listen-peer-urls=${peer}`,
    `--initial-advertise-peer-urls=${peer}`,
    `--initial-cluster=test=${peer}`,
    "--unsafe-no-fsync",
    "--log-level=warn",
    // A single member elects itself at once. With shorter intervals an idle one takes twice the CPU time.
    "--heartbeat-interval=30",
    "--election-timeout=300",
    ...(tls === undefined ? [] : [`--cert-file=${tls.cert}`, `--key-file=${tls.key}`]),
    ...(tls?.clientCa === undefined
      ? []
      : ["--client-cert-auth", `--trusted-ca-file=${tls.clientCa}`]),
    ...(quotaBytes === undefined ? [] : [`--quota-backend-bytes=${quotaBytes}`]),
    ...args,
  ];
}

/** Uses the HTTP gateway, so that no etcd tool is necessary. */
export async function enableAuth(url: string, rootPassword: string): Promise<void> {
  const steps: readonly (readonly [string, object])[] = [
    ["user/add", { name: "root", password: rootPassword }],
    ["role/add", { name: "root" }],
    ["user/grant", { user: "root", role: "root" }],
    ["enable", {}],
  ];
  for (const [path, body] of steps) {
    const response = await fetch(`${url}/v3/auth/${path}`, {
      method: "POST",
      body: JSON.stringify(body),
      signal: AbortSignal.timeout(60_000),
    });
    if (!response.ok) throw new Error(`etcd refuses auth/${path}: ${await response.text()}`);
  }
}
