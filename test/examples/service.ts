import { onTestFinished } from "vitest";
import { type Client, connect } from "../../src/client/client.ts";
import { CommandProcess } from "../cli/serve/serve-process.ts";

/** A service as `npm start` starts it, in its own process, with its store in memory. */
export class Service {
  readonly client: Client;
  readonly #resources: readonly string[];
  #process: CommandProcess;
  /** `127.0.0.1:PORT`, the same after a restart. */
  readonly address: string;

  private constructor(resources: readonly string[], started: CommandProcess, address: string) {
    this.#resources = resources;
    this.#process = started;
    this.address = address;
    this.client = connect({ address });
    onTestFinished(async () => {
      this.client.close();
      await this.kill();
    });
  }

  /** With these resources; by default, with the resource "default". */
  static async start(...resources: readonly string[]): Promise<Service> {
    const started = serve(resources, "127.0.0.1:0");
    return new Service(resources, started, await addressOf(started));
  }

  async kill(): Promise<void> {
    await this.#process[Symbol.asyncDispose]();
  }

  /** Starts it again after a kill, with an empty store. */
  async startAgain(): Promise<void> {
    this.#process = serve(this.#resources, this.address);
    await addressOf(this.#process);
  }
}

function serve(resources: readonly string[], listen: string): CommandProcess {
  const prefixes = resources.flatMap((name) => ["--resource", `${name}=/${name}/`]);
  return new CommandProcess(["serve", "--listen", listen, "--admin", "127.0.0.1:0", ...prefixes]);
}

async function addressOf(started: CommandProcess): Promise<string> {
  const [, address = ""] = await started.printed(/serves gRPC on (\S+)/);
  return address;
}
