import { execFile } from "node:child_process";
import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { describe, expect, it, onTestFinished } from "vitest";
import { etcdBinaries } from "../../scripts/etcd.ts";
import { type Etcd, startEtcd } from "../etcd/etcd.ts";
import { prelude, reads, steps } from "./etcdctl-steps.ts";
import { Tiers } from "./tiers.ts";

const { etcdctl } = await etcdBinaries();

/** What a command has printed, and how it ended. */
interface Printed {
  readonly command: string;
  readonly output: string;
}

/** A shell with etcdctl for one endpoint, and a folder for its files. */
class Shell {
  readonly #endpoint: string;
  readonly #folder: string;

  private constructor(endpoint: string, folder: string) {
    this.#endpoint = endpoint;
    this.#folder = folder;
  }

  /** Its folder is deleted after the test. `endpoint` is HOST:PORT. */
  static async of(endpoint: string): Promise<Shell> {
    const folder = await mkdtemp(join(tmpdir(), "etcdctl-"));
    onTestFinished(() => rm(folder, { recursive: true }));
    return new Shell(endpoint, folder);
  }

  run(command: string, variables: Readonly<Record<string, string>> = {}): Promise<string> {
    const env = {
      ...variables,
      PATH: `${dirname(etcdctl ?? "")}:${process.env["PATH"]}`,
      DIR: this.#folder,
      ETCDCTL_ENDPOINTS: this.#endpoint,
      // A busy machine needs more than the 2 s and 5 s that are usual.
      ETCDCTL_DIAL_TIMEOUT: "30s",
      ETCDCTL_COMMAND_TIMEOUT: "30s",
    };
    const options = { env, timeout: 60_000, encoding: "latin1", maxBuffer: 1 << 24 } as const;
    return new Promise((resolve) => {
      execFile("sh", ["-c", prelude + command], options, (error, stdout, stderr) => {
        const exit = `exit ${error?.code ?? error?.signal ?? 0}`;
        resolve(`${stdout}${stderr}${exit}`.replaceAll(this.#endpoint, "ENDPOINT"));
      });
    });
  }
}

/**
 * What differs between two stores, or two moments, is removed: ids become numbers by the order in which they appear,
 * without the spaces that fill them to 16 digits.
 */
class Normalizer {
  readonly #ids = new Map<string, string>();

  text(output: string): string {
    return output
      .replaceAll(/"ts":"[^"]*"|"target":"[^"]*"/g, "")
      .replaceAll(/"raft_index":\d+|remaining\(\d+s\)|"(ttl|TTL)" ?: ?5\d\d/g, "")
      .replaceAll(/^Terminated\n/gm, "") // what the shell says of a command, or not, by when it ends
      .replaceAll(/0x[0-9a-f]+/g, "ADDRESS") // in a panic of etcdctl
      .replaceAll(/127\.0\.0\.1:\d{4,5}|ENDPOINT/g, "HOST:PORT")
      .replaceAll(/\b(?:[0-9a-f]{13,16}|\d{16,20})\b/g, (id) => {
        const name = this.#ids.get(id) ?? `id${this.#ids.size}`;
        this.#ids.set(id, name);
        return name;
      })
      .replaceAll(/ +(?=id\d)/g, " ");
  }
}

async function printed(endpoint: string): Promise<readonly Printed[]> {
  const shell = await Shell.of(endpoint);
  const normalizer = new Normalizer();
  const all: Printed[] = [];
  for (const command of steps) {
    all.push({ command, output: normalizer.text(await shell.run(command)) });
  }
  return all;
}

function hostOf({ url }: Etcd): string {
  return new URL(url).host;
}

// Not each release has the tool: see scripts/etcd.ts.
describe.skipIf(etcdctl === undefined)("etcdctl", { timeout: 600_000 }, () => {
  it("prints the same with etcd and with a relay that has two workers", async () => {
    const etcd = await startEtcd();
    onTestFinished(() => etcd.stop());
    const tiers = await Tiers.start();
    // Each store has as many revisions, then: the root has written this key.
    await (await Shell.of(hostOf(etcd))).run("etcdctl put /watchfanout/history x");
    const [direct, relayed] = await Promise.all([printed(hostOf(etcd)), printed(tiers.address)]);
    expect(relayed).toEqual(direct);

    const member = await Shell.of(hostOf(tiers.etcd));
    const relay = await Shell.of(tiers.address);
    const response = await member.run("etcdctl get x -w json");
    const REV = /"revision":(\d+)/.exec(response)?.[1] ?? "";
    for (const command of reads) {
      const output = await member.run(command, { REV });
      const relayed = await relay.run(command, { REV });
      // Members' addresses are those of etcd.
      const same = relayed.replaceAll(hostOf(tiers.etcd), "ENDPOINT");
      expect({ command, output: same }).toEqual({ command, output });
    }
  });
});
