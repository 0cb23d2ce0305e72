import { execFile } from "node:child_process";
import { existsSync, readFileSync } from "node:fs";
import { mkdir, mkdtemp, rm, symlink, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { promisify } from "node:util";
import { expect } from "vitest";
import { isolatedEnvironment, type PackageName, packCopy } from "../../scripts/pack.ts";

const run = promisify(execFile);
const checkout = join(import.meta.dirname, "../..");

/** An app in a folder of its own, with a package as it is published and, of others, only those that it declares. */
export class InstalledApp {
  /** The folder of the app, which has a package.json and node_modules. */
  readonly folder: string;
  /** The folder of the package. */
  readonly installed: string;
  /** For programs that run in the app: none of the settings of this process, and no network for npm. */
  readonly env: Readonly<Record<string, string>>;
  readonly #temporary: string;

  private constructor(name: PackageName, temporary: string) {
    this.#temporary = temporary;
    this.folder = join(temporary, "app");
    this.installed = join(this.folder, "node_modules", name);
    this.env = isolatedEnvironment(temporary);
  }

  /** Installs the file that `npm test` has just packed, from the folder in PACKAGES; without that, packs a copy. */
  static async with(name: PackageName): Promise<InstalledApp> {
    const temporary = await mkdtemp(join(tmpdir(), "watch-fanout-app-"));
    const app = new InstalledApp(name, temporary);
    const { PACKAGES } = process.env;
    if (PACKAGES === undefined) await packCopy(temporary);
    const tarball = join(PACKAGES ?? temporary, `${name}.tgz`);
    await mkdir(app.installed, { recursive: true });
    await run("tar", ["-xzf", tarball, "-C", app.installed, "--strip-components=1"]);
    const manifest = { name: "app", type: "module", dependencies: { [name]: "*" } };
    await writeFile(join(app.folder, "package.json"), JSON.stringify(manifest));
    const { dependencies } = JSON.parse(readFileSync(join(app.installed, "package.json"), "utf8"));
    for (const dependency of Object.keys(dependencies)) await app.link(dependency);
    return app;
  }

  /** Links the checkout's copy of a package into the app. Idempotent. */
  async link(name: string): Promise<void> {
    const path = join(this.folder, "node_modules", name);
    if (existsSync(path)) return;
    await mkdir(dirname(path), { recursive: true });
    await symlink(join(checkout, "node_modules", name), path);
  }

  /** Runs a module in the app, and returns the JSON that it prints. It prints nothing else. */
  async evaluate(source: string): Promise<unknown> {
    const args = ["--input-type=module", "--eval", source];
    const { folder, env } = this;
    const { stdout, stderr } = await run(process.execPath, args, { cwd: folder, env });
    expect(stderr).toBe("");
    return JSON.parse(stdout);
  }

  /** The lines that the compiler prints about a module, with the types of Node.js as the only others. */
  async typeErrors(source: string): Promise<readonly string[]> {
    await this.link("@types/node");
    await writeFile(join(this.folder, "use.ts"), source);
    const options = ["--noEmit", "--strict", "--module", "nodenext", "--target", "es2024"];
    const tsc = join(checkout, "node_modules/.bin/tsc");
    const { folder, env } = this;
    const checked = run(tsc, [...options, "--types", "node", "use.ts"], { cwd: folder, env });
    const { stdout } = await checked.catch((error: { readonly stdout: string }) => error);
    return stdout.trim().split("\n");
  }

  async remove(): Promise<void> {
    await rm(this.#temporary, { recursive: true });
  }
}
