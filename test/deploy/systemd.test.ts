import { execFile } from "node:child_process";
import { access, mkdtemp, readFile, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { promisify } from "node:util";
import { describe, expect, onTestFinished, test } from "vitest";
import { openAccess } from "../../src/cli/serve/start-up-text.ts";
import { run } from "../cli/client/client-terminal.ts";
import { certificates, load } from "../config/sources.ts";

const execute = promisify(execFile);
const folder = "deploy/systemd";
const unit = await readFile(join(folder, "watch-fanout.service"), "utf8");
const analyze = "/usr/bin/systemd-analyze";
const hasSystemd = await access(analyze).then(
  () => true,
  () => false,
);

/** The values of a setting of the unit. */
function settings(name: string): string[] {
  return [...unit.matchAll(new RegExp(`^${name}=(.*)$`, "gm"))].map(([, value = ""]) => value);
}

/** The file that the unit's service has at a path. */
async function fileAt(path: string): Promise<string | Buffer> {
  const credentials = settings("LoadCredential").map((value) => value.split(":")[0]);
  const credential = /^\/run\/credentials\/watch-fanout\.service\/(.+)$/.exec(path)?.[1];
  if (credential !== undefined && !credentials.includes(credential)) {
    throw new Error(`The unit has no credential ${credential}.`);
  }
  if (path.endsWith(".key")) return certificates.key;
  if (path.endsWith(".crt")) return certificates.cert;
  if (credential === undefined)
    return readFile(join(folder, path.slice("/etc/watch-fanout/".length)));
  if (credential === "admin-tokens") return `sha256:${"0".repeat(64)} prometheus\n`;
  return "secret";
}

describe("The systemd unit", () => {
  test("starts the service with a configuration that it accepts, with TLS and a policy", async () => {
    const yaml = await readFile(join(folder, "watch-fanout.yaml"), "utf8");
    const paths = [...yaml.matchAll(/: (\/(?:etc|run)\/\S+)$/gm)].map(([, path = ""]) => path);
    const files: Record<string, string | Buffer> = {};
    for (const path of paths) {
      if (!path.includes("audit")) files[path] = await fileAt(path);
    }
    const config = load({ yaml, files });
    expect(settings("ExecStart")).toEqual([
      "/usr/bin/watch-fanout serve --config /etc/watch-fanout/watch-fanout.yaml",
    ]);
    expect(config.tls).toBeDefined();
    expect(openAccess(config)).toBeUndefined();
    const rules = config.policy?.definition.roles.flatMap((role) => role.rules) ?? [];
    expect(rules.flatMap(({ resources }) => resources)).toEqual(
      rules.map(() => config.resources[0]?.name),
    );
  });

  test("has a policy that passes `policy check` without a remark", async () => {
    expect(await run(["policy", "check", join(folder, "policy.yaml")])).toMatchObject({
      code: 0,
      stderr: "",
    });
  });

  test("writes the audit log and the data into the only folders that the service may write to", async () => {
    expect(settings("LogsDirectory")).toEqual(["watch-fanout"]);
    expect(settings("StateDirectory")).toEqual(["watch-fanout"]);
    // The folder of an embedded store without --data, and the one that the comment of the configuration names.
    expect(settings("WorkingDirectory")).toEqual(["%S/watch-fanout"]);
    const yaml = await readFile(join(folder, "watch-fanout.yaml"), "utf8");
    expect(yaml).toContain("\naudit-log: /var/log/watch-fanout/");
    expect(yaml).toContain("data: /var/lib/watch-fanout/");
  });

  test.skipIf(!hasSystemd)(
    "passes `systemd-analyze verify`, and its exposure is at most 1.5 of 10 (needs systemd-analyze)",
    async () => {
      const work = await mkdtemp(join(tmpdir(), "watch-fanout-unit-"));
      onTestFinished(() => rm(work, { recursive: true }));
      const file = join(work, "watch-fanout.service");
      // `verify` asks whether the program exists.
      await writeFile(file, unit.replace("/usr/bin/watch-fanout", process.execPath));
      expect(await execute(analyze, ["verify", "--man=no", file])).toMatchObject({
        stdout: "",
        stderr: "",
      });
      await execute(analyze, ["security", "--offline=true", "--threshold=15", "--no-pager", file]);
    },
  );
});
