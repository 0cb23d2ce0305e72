import { writeFile } from "node:fs/promises";
import { join } from "node:path";
import { setTimeout as delay } from "node:timers/promises";
import { CommandProcess } from "../../cli/serve/serve-process.ts";
import { inTime, untilSeen } from "../patience.ts";
import { fields } from "../replica.ts";
import type { Seeded } from "../seeded.ts";
import { resource } from "../wire.ts";
import type { KilledStore } from "./kill-run.ts";

/** How long a start may take, in milliseconds: on a busy machine, with sources that were not compiled before, a minute. */
const startMs = 300_000;

/** How long it lives at most, in milliseconds. Not an assertion: a busy machine writes slowly. */
const livesMs = 5_000;

/** `watch-fanout serve --data`, which is killed with -9. */
export class StoreProcess implements KilledStore {
  readonly #args: (random: Seeded) => readonly string[];
  readonly #random: Seeded;
  #process: CommandProcess | undefined;
  /** Where it serves gRPC now. */
  url = "";

  /** `args`: the arguments of a start, besides its addresses. */
  constructor(random: Seeded, args: (random: Seeded) => readonly string[]) {
    this.#random = random;
    this.#args = args;
  }

  /** One with its data in a folder, which only sometimes waits for the disk. */
  static async within(folder: string, random: Seeded): Promise<StoreProcess> {
    const config = join(folder, "config.yaml");
    // JSON is YAML.
    const resources = [{ name: resource, prefix: `${resource}/`, codec: "json", fields }];
    await writeFile(config, JSON.stringify({ resources }));
    return new StoreProcess(random, (drawn) => [
      ...["--config", config, "--data", join(folder, "store")],
      ...["--log-level", "warn", "--consistency-interval", "0s"],
      ...["--data-sync", drawn.chance(0.7) ? "full" : "off"],
    ]);
  }

  async start(): Promise<string> {
    const started = this.#spawn();
    const said = async (what: RegExp): Promise<string> => {
      const found = started.printed(what);
      const [, address = ""] = await inTime(
        () => `the store to start: ${started.stderr}`,
        found,
        startMs,
      );
      return address;
    };
    const grpc = await said(/serves gRPC on (\S+)/);
    const admin = await said(/admin +(\S+)\/readyz/);
    const ready = untilSeen("the store to be ready", async () =>
      (await fetch(`${admin}/readyz`)).ok ? true : undefined,
    );
    const ended = started.exit.then(({ code, signal, stderr }) => {
      throw new Error(`The store ended by itself, with ${code ?? signal}: ${stderr}`);
    });
    // It ends later.
    ended.catch(() => {});
    await Promise.race([ready, ended]);
    this.url = `http://${grpc}`;
    return this.url;
  }

  async kill(acknowledged: () => number, gone: () => void): Promise<void> {
    const random = this.#random;
    const enough = acknowledged() + random.between(0, 15) ** 2;
    const late = performance.now() + livesMs;
    while (acknowledged() < enough && performance.now() < late) await delay(1);
    // At any moment between two answers.
    await delay(random.between(0, 5));
    gone();
    await this.#kill();
  }

  async killWhileStarting(): Promise<void> {
    this.#spawn();
    await delay(this.#random.between(100, 900));
    await this.#kill();
  }

  /** Ends it in order. Then the next ones start faster: Node.js keeps what it has compiled. */
  async close(): Promise<void> {
    const ended = this.#process;
    this.#process = undefined;
    if (ended === undefined) return;
    ended.kill("SIGTERM");
    try {
      await inTime(() => "the store to end", ended.exit);
    } finally {
      await ended[Symbol.asyncDispose]();
    }
  }

  #spawn(): CommandProcess {
    const free = ["--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0"];
    const started = new CommandProcess(["serve", ...free, ...this.#args(this.#random)]);
    this.#process = started;
    return started;
  }

  async #kill(): Promise<void> {
    const killed = this.#process;
    if (killed === undefined) throw new Error("The store does not run.");
    killed.kill("SIGKILL");
    const { code, signal, stderr } = await killed.exit;
    if (signal !== "SIGKILL") throw new Error(`The store ended by itself, with ${code}: ${stderr}`);
  }
}
