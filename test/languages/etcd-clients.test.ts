import { execFile } from "node:child_process";
import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { promisify } from "node:util";
import { afterAll, beforeAll, describe, expect, it, onTestFinished } from "vitest";
import { startEtcd } from "../etcd/etcd.ts";
import { Example } from "../examples/example.ts";
import { Source } from "../storage/etcd/source.ts";
import { buildTimeoutMs } from "./documented.ts";
import { Tiers } from "./tiers.ts";

const run = promisify(execFile);

/** A program that uses etcd's API through the usual client of a language, or a part of other software. */
interface ClientProgram {
  /** Below `etcd-clients`. */
  readonly folder: string;
  /** Commands that succeed if its toolchain is installed. */
  readonly probes: readonly string[];
  /** Run in its folder. $BUILD is a folder for what they make. */
  readonly build: string;
  /** Its command, without the arguments. */
  readonly start: string;
  /** Prints the events below a prefix, and resumes its watch when it has lost it. */
  readonly isFollower: boolean;
}

const programs: readonly ClientProgram[] = [
  {
    folder: "go",
    probes: ["go version"],
    build: 'go build -o "$BUILD/client" .',
    start: '"$BUILD/client"',
    isFollower: true,
  },
  {
    folder: "python",
    probes: ["python3 -c 'import ensurepip, venv'"],
    build: 'python3 -m venv "$BUILD" && "$BUILD/bin/pip" install --quiet -r requirements.txt',
    start: '"$BUILD/bin/python" main.py',
    isFollower: true,
  },
  {
    folder: "java",
    probes: ["javac -version", "mvn --version"],
    build:
      'mvn --quiet dependency:copy-dependencies -DoutputDirectory="$BUILD" && ' +
      'javac -cp "$BUILD/*" -d "$BUILD" src/main/java/Main.java',
    start: 'java -cp "$BUILD:$BUILD/*" Main',
    isFollower: true,
  },
  {
    folder: "rust",
    probes: ["cargo --version", "protoc --version"],
    build: 'cargo build --quiet --locked --target-dir "$BUILD"',
    start: '"$BUILD/debug/client"',
    isFollower: true,
  },
  {
    folder: "coredns",
    probes: ["go version"],
    build: 'go build -o "$BUILD/client" .',
    start: '"$BUILD/client"',
    isFollower: false,
  },
  {
    folder: "patroni",
    probes: ["python3 -c 'import ensurepip, venv'"],
    build: 'python3 -m venv "$BUILD" && "$BUILD/bin/pip" install --quiet -r requirements.txt',
    start: '"$BUILD/bin/python" main.py',
    isFollower: false,
  },
];

async function hasToolchain({ folder, probes }: ClientProgram): Promise<boolean> {
  for (const probe of probes) {
    try {
      await run("sh", ["-c", probe], { timeout: 20_000 });
    } catch {
      process.stderr.write(`Skipped etcd's client ${folder}, since "${probe}" fails.\n`);
      return false;
    }
  }
  return true;
}

const installed = new Set<ClientProgram>();
for (const program of programs) if (await hasToolchain(program)) installed.add(program);

const prefix = "/followed/";

describe.each(programs)("etcd's client $folder", { timeout: 180_000 }, (program) => {
  describe.skipIf(!installed.has(program))("with its toolchain", () => {
    let folder: string;

    beforeAll(async () => {
      folder = await mkdtemp(join(tmpdir(), `etcd-client-${program.folder}-`));
      const built = inFolder(program.build);
      await run("sh", ["-e", "-c", built], { timeout: buildTimeoutMs });
    }, buildTimeoutMs);

    afterAll(() => rm(folder, { recursive: true, force: true }));

    function inFolder(command: string): string {
      return `cd test/languages/etcd-clients/${program.folder} && BUILD="${folder}" && ${command}`;
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

    it.runIf(program.isFollower)(
      "gets each event once while workers and the relay are killed",
      async () => {
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
      },
    );

    it.runIf(program.folder === "patroni")(
      "keeps its leader while workers and the relay are killed, and has the next once its lease has ended",
      async () => {
        const tiers = await Tiers.start();
        const part = (name: string): Example =>
          new Example(["sh", "-c", inFolder(`exec ${program.start} ${tiers.address} ${name}`)]);
        const leader = part("a");
        await leader.said(/^leader$/m);
        const others = [part("b"), part("c")];
        for (const each of others) await each.said(/^replica of a$/m);
        const renewedAfter = async (change: () => Promise<void> | void): Promise<void> => {
          const before = leader.lines.filter((line) => line.startsWith("updated")).length;
          await change();
          await leader.said(new RegExp(`^updated ${before + 3}$`, "m"));
        };
        await renewedAfter(() => tiers.killWorker(1));
        await renewedAfter(() => tiers.restart());
        await renewedAfter(() => tiers.killWorker(2));
        const roles = (each: Example): readonly string[] =>
          each.lines.filter((line) => /^(leader|replica of|without a store)/.test(line));
        expect(roles(leader)).toEqual(["leader"]);
        for (const each of others) expect(roles(each)).toEqual(["replica of a"]);
        await leader.kill();
        const next = await Promise.race(
          others.map((each) => each.said(/^leader$/m).then(() => each)),
        );
        const [last] = others.filter((each) => each !== next);
        const name = next === others[0] ? "b" : "c";
        await last?.said(new RegExp(`^replica of ${name}$`, "m"));
        expect([roles(next), last && roles(last)]).toEqual([
          ["replica of a", "leader"],
          ["replica of a", `replica of ${name}`],
        ]);
      },
    );
  });
});
