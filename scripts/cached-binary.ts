import { execFile } from "node:child_process";
import { mkdir, mkdtemp, rename, rm } from "node:fs/promises";
import { join } from "node:path";
import { promisify } from "node:util";
import { type BinarySource, folderOnPath, fromFirstSource } from "./binary-sources.ts";

const run = promisify(execFile);

/** A program that tests need, on this machine or in .cache. */
export class CachedBinary {
  readonly #name: string;
  /** Arguments that print its version. */
  readonly #versionArguments: readonly string[];
  /** Beside the sources, so that `npm ci` leaves it and deleting the checkout deletes it. */
  readonly #cache: string;

  constructor(name: string, versionArguments: readonly string[]) {
    this.#name = name;
    this.#versionArguments = versionArguments;
    this.#cache = join(import.meta.dirname, "..", ".cache", name);
  }

  /** Returns its path if it is installed; otherwise undefined. Downloads nothing. */
  installed(): Promise<string | undefined> {
    return fromFirstSource(this.#installed(), "").catch(() => undefined);
  }

  /**
   * Returns its path. If it is not installed, `fetch` puts it into the folder that it is given, which becomes the cache.
   *
   * @throws Error with the reason of every source
   */
  path(source: string, fetch: (folder: string) => Promise<void>): Promise<string> {
    return fromFirstSource(
      [...this.#installed(), [source, () => this.#fetched(fetch)]],
      `There is no ${this.#name}. Set ${this.#variable} to one.`,
    );
  }

  get #variable(): string {
    return `${this.#name.toUpperCase()}_BIN`;
  }

  #installed(): readonly BinarySource<string>[] {
    return [
      [this.#variable, () => this.#running(process.env[this.#variable] || undefined)],
      ["PATH", async () => this.#running(this.#in(await folderOnPath(this.#name)))],
      ["the cache", () => this.#running(this.#in(this.#cache))],
    ];
  }

  #in(folder: string | undefined): string | undefined {
    return folder && join(folder, this.#name);
  }

  /** @throws Error if it is absent or does not run here */
  async #running(path: string | undefined): Promise<string> {
    if (path === undefined) throw new Error(`no ${this.#name}`);
    await run(path, this.#versionArguments, { timeout: 20_000 });
    return path;
  }

  /** Fetches into a folder of its own, tries what is there, and moves it into the cache in one step. */
  async #fetched(fetch: (folder: string) => Promise<void>): Promise<string> {
    await mkdir(join(this.#cache, ".."), { recursive: true });
    const work = await mkdtemp(`${this.#cache}-`);
    try {
      await fetch(work);
      await this.#running(this.#in(work));
      await rm(this.#cache, { recursive: true, force: true });
      await rename(work, this.#cache);
      return join(this.#cache, this.#name);
    } finally {
      await rm(work, { recursive: true, force: true });
    }
  }
}
