import { execFile, spawn } from "node:child_process";
import { copyFile, mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { text } from "node:stream/consumers";
import { promisify } from "node:util";
import { pino } from "pino";
import { afterAll, beforeAll, describe, expect, onTestFinished, test } from "vitest";
import { runtimeCommand } from "../../scripts/runtimes.ts";
import {
  Cacher,
  MemoryStorage,
  type RunningServer,
  startServer,
  systemClock,
} from "../../src/index.ts";
import { startReady } from "../cacher/ready.ts";
import { CuttingProxy } from "../etcd/cutting-proxy.ts";
import { Authority, type Issued } from "../identity/authority.ts";
import { InstalledApp } from "../packages/installed-app.ts";
import type { Setup } from "./program.ts";

const run = promisify(execFile);

/** A command line that a file follows. */
type Command = readonly string[];

const node22 = runtimeCommand("node");
const deno = runtimeCommand("deno");
const bun = runtimeCommand("bun");
const esbuild = runtimeCommand("esbuild");

const absent = new Set<string>();
for (const command of [node22, deno, bun, esbuild]) {
  try {
    await run(command, ["--version"], { timeout: 60_000 });
  } catch (error) {
    absent.add(command);
    process.stderr.write(`Skipped what needs ${command}, which does not run: ${error}\n`);
  }
}

const denoRun = ["run", "--no-prompt", "--allow-env", "--allow-net=localhost,127.0.0.1"];

/** How each runtime runs a file of the app. */
const runtimes: readonly (readonly [string, Command])[] = [
  [`Node.js ${process.versions.node}`, [process.execPath]],
  ["Node.js 22", [node22]],
  ["Deno", [deno, ...denoRun, "--allow-read"]],
  ["Bun", [bun, "run"]],
];

/** A require() for the CommonJS modules among the dependencies, which esbuild leaves out of ES modules. */
const requireBanner =
  "--banner:js=import { createRequire } from 'node:module'; const require = createRequire(import.meta.url);";

const esbuildForNode = [esbuild, "--bundle", "--platform=node", "--minify"];

/** How each bundler makes a file of the app, with the name of that file. */
const bundlers: readonly (readonly [string, Command, (file: string) => string, string])[] = [
  [
    "esbuild, as CommonJS",
    [...esbuildForNode, "--format=cjs"],
    (file) => `--outfile=${file}`,
    "bundle.cjs",
  ],
  [
    "esbuild, as an ES module",
    [...esbuildForNode, "--format=esm", requireBanner],
    (file) => `--outfile=${file}`,
    "bundle.mjs",
  ],
  ["bun build", [bun, "build", "--target=node"], (file) => `--outfile=${file}`, "bundle.mjs"],
];

/** How each runtime runs a bundle: where it can, with the right to read nothing but the bundle itself. */
const confined: readonly (readonly [string, (bundle: string) => Command])[] = [
  ["Node.js", (bundle) => [process.execPath, "--permission", `--allow-fs-read=${bundle}`, bundle]],
  ["Node.js 22", (bundle) => [node22, "--permission", `--allow-fs-read=${bundle}`, bundle]],
  ["Deno", (bundle) => [deno, ...denoRun, bundle]],
  ["Bun", (bundle) => [bun, "run", bundle]],
];

const logger = pino({ level: "silent" });

/** One cache, served in plain text behind a proxy, and with TLS. */
class Service {
  /** Between the client and the server without TLS. */
  readonly proxy: CuttingProxy;
  readonly #cacher: Cacher;
  readonly #secure: RunningServer;
  readonly #plain: RunningServer;

  private constructor(
    cacher: Cacher,
    plain: RunningServer,
    secure: RunningServer,
    proxy: CuttingProxy,
  ) {
    this.#cacher = cacher;
    this.#plain = plain;
    this.#secure = secure;
    this.proxy = proxy;
  }

  static async start(tls: Issued): Promise<Service> {
    const clock = systemClock;
    const storage = new MemoryStorage({ clock });
    const cacher = new Cacher({ storage, clock, logger, name: "things" });
    await startReady(cacher);
    const resources = new Map([["things", cacher]]);
    const listen = { host: "127.0.0.1", port: 0 };
    const plain = await startServer({ resources, listen, clock, logger });
    const secure = await startServer({ resources, listen, clock, logger, tls });
    const proxy = await CuttingProxy.to(`http://127.0.0.1:${plain.port}`);
    return new Service(cacher, plain, secure, proxy);
  }

  get addresses(): Pick<Setup, "plain" | "secure"> {
    return { plain: new URL(this.proxy.url).host, secure: `localhost:${this.#secure.port}` };
  }

  async put(key: string, value: unknown): Promise<void> {
    await this.#cacher.put({ key, value: Buffer.from(JSON.stringify(value)) });
  }

  async close(): Promise<void> {
    await this.proxy.close();
    await Promise.all([this.#plain.drain(0), this.#secure.drain(0)]);
    await this.#cacher.close();
  }
}

/** What the program has seen when it has succeeded. */
const calls = {
  updated: { n: 2 },
  absent: true,
  metadata: { lease: String(2n ** 63n - 2n) },
  listed: ["calls/a"],
};
const keys = ["followed/before", "followed/after"];
const success = {
  called: calls,
  serving: true,
  resources: ["things"],
  overTls: calls,
  refused: "UPSTREAM_UNAVAILABLE",
  followed: {
    watched: [
      ["ADDED", "followed/before", { n: 1 }],
      ["ADDED", "followed/after", { n: 2 }],
    ],
    worked: keys,
    listed: keys.toSorted(),
  },
};

let authority: Authority;
let app: InstalledApp;

beforeAll(async () => {
  authority = await Authority.create();
  app = await InstalledApp.with("watch-fanout-client");
  await copyFile(join(import.meta.dirname, "program.ts"), join(app.folder, "program.ts"));
});

afterAll(() => app.remove());

/** Runs the program against a service of its own, and returns what it has seen. */
async function seenBy([file = "", ...args]: Command, cwd: string): Promise<unknown> {
  const service = await Service.start(await authority.issueForServer());
  onTestFinished(() => service.close());
  const setup: Setup = { ...service.addresses, ca: authority.cert.toString() };
  const child = spawn(file, [...args, JSON.stringify(setup)], { cwd, env: app.env });
  onTestFinished(() => {
    child.kill("SIGKILL");
  });
  const errors = text(child.stderr);
  let output = "";
  for await (const chunk of child.stdout.setEncoding("utf8")) {
    output += chunk;
    if (output !== "following\n") continue;
    service.proxy.reset();
    await service.put("followed/after", { n: 2 });
  }
  const seen = output.split("\n")[1];
  if (!seen) throw new Error(`It has not succeeded:\n${output}${await errors}`);
  return JSON.parse(seen);
}

function isAbsent(command: Command): boolean {
  return command[0] !== undefined && absent.has(command[0]);
}

describe("The installed client works", () => {
  for (const [runtime, command] of runtimes) {
    test.skipIf(isAbsent(command))(`in ${runtime}`, async () => {
      expect(await seenBy([...command, "program.ts"], app.folder)).toEqual(success);
    });
  }
});

describe.each(bundlers)("Bundled by %s, the client", (_name, command, into, file) => {
  let folder: string;

  beforeAll(async () => {
    folder = await mkdtemp(join(tmpdir(), "watch-fanout-bundle-"));
    if (isAbsent(command)) return;
    const [bundler = "", ...args] = command;
    await run(bundler, [...args, "program.ts", into(join(folder, file))], { cwd: app.folder });
  });

  afterAll(() => rm(folder, { recursive: true }));

  for (const [runtime, confine] of confined) {
    test.skipIf(isAbsent(command) || isAbsent(confine("")))(
      `is one file that works in ${runtime} and reads no other`,
      async () => {
        expect(await seenBy(confine(join(folder, file)), folder)).toEqual(success);
      },
    );
  }
});
