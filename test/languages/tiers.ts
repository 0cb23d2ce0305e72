import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { onTestFinished } from "vitest";
import { type Served, startServe, untilStatus } from "../cli/serve/serve-process.ts";
import { type Etcd, startEtcd } from "../etcd/etcd.ts";
import { type Front, startFront, untilReady } from "../etcd-api/front.ts";

/** etcd, a root with all of its keys, and a relay of that with two workers. */
export class Tiers {
  readonly etcd: Etcd;
  readonly #root: Front;
  readonly #folder: string;
  #relay: Served;

  private constructor(etcd: Etcd, root: Front, folder: string, relay: Served) {
    this.etcd = etcd;
    this.#root = root;
    this.#folder = folder;
    this.#relay = relay;
  }

  /** It is stopped after the test. */
  static async start(): Promise<Tiers> {
    const etcd = await startEtcd();
    onTestFinished(() => etcd.stop());
    const root = await startFront([etcd.url], { resource: ["all="] });
    onTestFinished(() => root.stop());
    await untilReady(root);
    const folder = await mkdtemp(join(tmpdir(), "etcd-clients-"));
    onTestFinished(() => rm(folder, { recursive: true }));
    const tiers = new Tiers(etcd, root, folder, await relayOf(root, folder));
    onTestFinished(() => tiers.#relay.process[Symbol.asyncDispose]());
    return tiers;
  }

  /** The address of the relay, which it keeps. */
  get address(): string {
    return this.#relay.grpc;
  }

  /** Kills a worker of the relay (1 or 2), which starts it again. */
  killWorker(number: number): void {
    const started = new RegExp(`"worker":${number},"pid":(\\d+),"msg":"a worker has started"`);
    process.kill(Number(started.exec(this.#relay.process.stderr)?.[1]), "SIGKILL");
  }

  /** Kills the main process, whose workers end, and starts it again. */
  async restart(): Promise<void> {
    const { address } = this;
    await this.#relay.process[Symbol.asyncDispose]();
    this.#relay = await relayOf(this.#root, this.#folder, address);
  }
}

async function relayOf(
  root: Front,
  folder: string,
  address: string = "127.0.0.1:0",
): Promise<Served> {
  const relay = await startServe(
    [
      ...["--upstream", root.address, "--etcd-api", "--workers", "2", "--listen", address],
      ...["--shutdown-timeout", "1s"],
    ],
    { XDG_RUNTIME_DIR: folder },
  );
  await untilStatus(`${relay.admin}/readyz`, 200);
  return relay;
}
