import { mkdtemp, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { type Client, connect } from "../../src/client/connect.ts";
import { type Served, startServe } from "../cli/serve/serve-process.ts";
import { startEtcd } from "../etcd/etcd.ts";
import { Authority } from "../identity/authority.ts";
import { Sidecar } from "./sidecar.ts";

/** The SPIFFE IDs of deploy/envoy: this and the name of a workload. */
export const spiffePrefix = "spiffe://example.org/ns/default/sa/";

/** A client behind a sidecar of its own. */
export interface MeshClient {
  /** Does not repeat a call by itself. */
  readonly client: Client;
  readonly sidecar: Sidecar;
}

/** An etcd, and two replicas with the resource `configs`, each behind an Envoy with the configuration of deploy/envoy. */
export class Mesh implements AsyncDisposable {
  readonly #envoy: string;
  readonly #closings = new AsyncDisposableStack();
  readonly #replicas: Served[] = [];
  readonly #inbound: Sidecar[] = [];
  readonly #folder: string;
  readonly #authority: Authority;

  private constructor(envoy: string, folder: string, authority: Authority) {
    this.#envoy = envoy;
    this.#authority = authority;
    this.#folder = folder;
    this.#closings.defer(() => rm(folder, { recursive: true, force: true }));
  }

  /** `policy` is the text of a policy, for callers as their sidecars name them. Default: each caller may do everything. */
  static async start(envoy: string, policy?: string): Promise<Mesh> {
    const folder = await mkdtemp(join(tmpdir(), "watch-fanout-mesh-"));
    const mesh = new Mesh(envoy, folder, await Authority.create());
    try {
      await mesh.#start(policy);
      return mesh;
    } catch (error) {
      await mesh[Symbol.asyncDispose]();
      throw error;
    }
  }

  get replicas(): readonly Served[] {
    return this.#replicas;
  }

  /** The addresses of the replicas' sidecars. */
  get addresses(): readonly string[] {
    return this.#inbound.map(({ address }) => address);
  }

  /** Starts a client with this name, whose sidecar reaches both replicas. */
  async client(name: string): Promise<MeshClient> {
    const config = "deploy/envoy/client-sidecar.yaml";
    const sidecar = await this.#sidecar(config, name, this.addresses);
    await sidecar.untilHealthy(this.#inbound.length);
    const client = connect({ address: sidecar.address, maxAttempts: 1 });
    return { client: this.#closings.use(client), sidecar };
  }

  /** Makes a folder with a certificate of this workload, and with that of the authority. */
  async certificates(name: string): Promise<string> {
    const folder = await mkdtemp(join(this.#folder, `${name}-`));
    const names = [{ type: "url", value: spiffePrefix + name } as const];
    const { cert, key } = await this.#authority.issue({ cn: name, names });
    await writeFile(join(folder, "tls.crt"), cert);
    await writeFile(join(folder, "tls.key"), key);
    await writeFile(join(folder, "ca.crt"), this.#authority.cert);
    return folder;
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.#closings.disposeAsync();
  }

  async #start(policy: string | undefined): Promise<void> {
    const options = ["--trust-forwarded-cert-from", "loopback"];
    if (policy !== undefined) {
      await writeFile(join(this.#folder, "policy.yaml"), policy);
      options.push("--policy", join(this.#folder, "policy.yaml"));
    }
    const etcd = await startEtcd();
    this.#closings.defer(() => etcd.stop());
    const config = "deploy/envoy/server-sidecar.yaml";
    for (let i = 0; i < 2; i++) {
      const over = ["--etcd", etcd.url, "--resource", "configs=/configs/"];
      const replica = await startServe([...over, ...options]);
      this.#closings.use(replica.process);
      this.#replicas.push(replica);
      this.#inbound.push(await this.#sidecar(config, "watch-fanout", [replica.grpc]));
    }
  }

  async #sidecar(config: string, name: string, endpoints: readonly string[]): Promise<Sidecar> {
    const certificates = await this.certificates(name);
    const sidecar = await Sidecar.start({ envoy: this.#envoy, config, certificates, endpoints });
    return this.#closings.use(sidecar);
  }
}
