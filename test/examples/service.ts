import { onTestFinished } from "vitest";
import { type Client, connect } from "../../src/client/connect.ts";
import { CommandProcess } from "../cli/serve/serve-process.ts";
import type { Etcd } from "../etcd/etcd.ts";

/** A service as `npm start` starts it, in its own process, with its store in memory or in etcd. */
export class Service {
  readonly client: Client;
  readonly #args: readonly string[];
  #process: CommandProcess;
  /** `127.0.0.1:PORT`, the same after a restart. */
  readonly address: string;

  private constructor(args: readonly string[], started: CommandProcess, address: string) {
    this.#args = args;
    this.#process = started;
    this.address = address;
    this.client = connect({ address });
    onTestFinished(async () => {
      this.client.close();
      await this.kill();
    });
  }

  /** With these resources; by default, with the resource "default". */
  static start(...resources: readonly string[]): Promise<Service> {
    return Service.#start(argsOf(resources));
  }

  static onEtcd({ url }: Etcd, ...resources: readonly string[]): Promise<Service> {
    return Service.#start(["--etcd", url, ...argsOf(resources)]);
  }

  static async #start(args: readonly string[]): Promise<Service> {
    const started = serve(args, "127.0.0.1:0");
    return new Service(args, started, await addressOf(started));
  }

  async kill(): Promise<void> {
    await this.#process[Symbol.asyncDispose]();
  }

  /** Starts it again after a kill, with an empty store. */
  async startAgain(): Promise<void> {
    this.#process = serve(this.#args, this.address);
    await addressOf(this.#process);
  }
}

function argsOf(resources: readonly string[]): readonly string[] {
  return resources.flatMap((name) => ["--resource", `${name}=/${name}/`]);
}

function serve(args: readonly string[], listen: string): CommandProcess {
  return new CommandProcess(["serve", "--listen", listen, "--admin", "127.0.0.1:0", ...args]);
}

async function addressOf(started: CommandProcess): Promise<string> {
  const [, address = ""] = await started.printed(/serves gRPC on (\S+)/);
  return address;
}
