import { execFile } from "node:child_process";
import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { promisify } from "node:util";
import { afterAll, beforeAll, describe, expect, it, onTestFinished } from "vitest";
import { type Served, startServe, untilStatus } from "../cli/serve/serve-process.ts";
import { type Etcd, startEtcd } from "../etcd/etcd.ts";
import { type Front, startFront, untilReady } from "../etcd-api/front.ts";
import { Example } from "../examples/example.ts";
import { Source } from "../storage/etcd/source.ts";
import { buildTimeoutMs } from "./documented.ts";

const run = promisify(execFile);

/** A program that uses etcd's API through the usual client of its language, in a folder of `etcd-clients`. */
interface ClientProgram {
  readonly language: string;
  /** Commands that succeed if its toolchain is installed. */
  readonly probes: readonly string[];
  /** Run in its folder. $BUILD is a folder for what they make. */
  readonly build: string;
  /** Its command, without the arguments. */
  readonly start: string;
}

const programs: readonly ClientProgram[] = [
  {
    language: "go",
    probes: ["go version"],
    build: 'go build -o "$BUILD/client" .',
    start: '"$BUILD/client"',
  },
  {
    language: "python",
    probes: ["python3 -c 'import ensurepip, venv'"],
    build: 'python3 -m venv "$BUILD" && "$BUILD/bin/pip" install --quiet -r requirements.txt',
    start: '"$BUILD/bin/python" main.py',
  },
  {
    language: "java",
    probes: ["javac -version", "mvn --version"],
    build:
      'mvn --quiet dependency:copy-dependencies -DoutputDirectory="$BUILD" && ' +
      'javac -cp "$BUILD/*" -d "$BUILD" src/main/java/Main.java',
    start: 'java -cp "$BUILD:$BUILD/*" Main',
  },
];

async function hasToolchain({ language, probes }: ClientProgram): Promise<boolean> {
  for (const probe of probes) {
    try {
      await run("sh", ["-c", probe], { timeout: 20_000 });
    } catch {
      process.stderr.write(`Skipped etcd's client in ${language}, since "${probe}" fails.\n`);
      return false;
    }
  }
  return true;
}

const installed = new Set<ClientProgram>();
for (const program of programs) if (await hasToolchain(program)) installed.add(program);

const prefix = "/followed/";

/** etcd, a root with all of its keys, and a relay of that with two workers. */
class Tiers {
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

describe.each(programs)("etcd's client in $language", { timeout: 180_000 }, (program) => {
  describe.skipIf(!installed.has(program))("with its toolchain", () => {
    let folder: string;

    beforeAll(async () => {
      folder = await mkdtemp(join(tmpdir(), `etcd-client-${program.language}-`));
      const built = inFolder(program.build);
      await run("sh", ["-e", "-c", built], { timeout: buildTimeoutMs });
    }, buildTimeoutMs);

    afterAll(() => rm(folder, { recursive: true, force: true }));

    function inFolder(command: string): string {
      return `cd test/languages/etcd-clients/${program.language} && BUILD="${folder}" && ${command}`;
    }

    /** The lines that it prints when it runs all of its steps. */
    async function steps(address: string): Promise<readonly string[]> {
      const command = inFolder(`${program.start} ${address}`);
      const { stdout } = await run("sh", ["-c", command], { timeout: 120_000 });
      return stdout.split("\n");
    }

    it("prints the same with etcd and with a relay that has two workers", async () => {
      const etcd = await startEtcd();
      onTestFinished(() => etcd.stop());
      const direct = await steps(new URL(etcd.url).host);
      expect(direct.length).toBeGreaterThan(15);
      const tiers = await Tiers.start();
      expect(await steps(tiers.address)).toEqual(direct);
    });

    it("gets each event once while workers and the relay are killed", async () => {
      const tiers = await Tiers.start();
      const source = new Source(tiers.etcd);
      const expected: string[] = [];
      const put = async (key: string, value: string): Promise<void> => {
        const bytes = Buffer.from(value);
        const revision = await source.write(prefix, [{ type: "put", key, value: bytes }]);
        expected.push(`PUT ${prefix}${key}=${value} at ${revision}`);
      };
      await put("first", "0");
      const command = inFolder(`exec ${program.start} ${tiers.address} ${prefix}`);
      const followers = Array.from({ length: 3 }, () => new Example(["sh", "-c", command]));
      for (const each of followers) await each.said(/^PUT \/followed\/first=0 at \d+$/m);
      for (let i = 0; i < 400; i++) {
        if (i === 100) tiers.killWorker(1);
        if (i === 200) await tiers.restart();
        if (i === 300) tiers.killWorker(2);
        await put(String(i % 7), String(i));
        if (i % 10 > 0) continue;
        const revision = await source.write(prefix, [{ type: "delete", key: String(i % 7) }]);
        expected.push(`DELETE ${prefix}${i % 7}= at ${revision}`);
      }
      await put("end", "");
      for (const each of followers) {
        await each.said(/^PUT \/followed\/end= at \d+$/m);
        expect(each.lines.filter((line) => / at \d+$/.test(line))).toEqual(expected);
      }
    });
  });
});
