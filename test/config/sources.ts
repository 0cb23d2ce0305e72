import { readFileSync } from "node:fs";
import type { Config } from "../../src/config/config.ts";
import { loadConfig } from "../../src/config/load-config.ts";
import { ConfigError } from "../../src/config/setting.ts";

/** A certificate, its key, and a key that does not match. Only these tests use them. */
export const certificates = {
  cert: readFileSync(new URL("certificates/cert.pem", import.meta.url)),
  key: readFileSync(new URL("certificates/key.pem", import.meta.url)),
  otherKey: readFileSync(new URL("certificates/other-key.pem", import.meta.url)),
};

/** A configuration's sources, the flags as on a command line: `--listen 127.0.0.1:1`. */
export interface Given {
  readonly flags?: readonly string[];
  readonly env?: Readonly<Record<string, string>>;
  /** What a command has instead of options' defaults. */
  readonly defaults?: Readonly<Record<string, readonly string[]>>;
  /** The content of wf.yaml, which a flag names. */
  readonly yaml?: string;
  /** Other files, by path. */
  readonly files?: Readonly<Record<string, string | Buffer>>;
}

/** Loads a configuration from these sources. */
export function load({ flags = [], env = {}, defaults = {}, yaml, files = {} }: Given): Config {
  const byName: Record<string, string[]> = {};
  for (let i = 0; i < flags.length; i += 2) {
    const name = (flags[i] ?? "").replace(/^--/, "");
    byName[name] = [...(byName[name] ?? []), flags[i + 1] ?? ""];
  }
  if (yaml !== undefined) byName["config"] = ["wf.yaml"];
  const all = new Map(
    Object.entries({ ...(yaml === undefined ? {} : { "wf.yaml": yaml }), ...files }),
  );
  return loadConfig({
    flags: byName,
    ...{ env, defaults },
    readFile: (path) => {
      const content = all.get(path);
      if (content === undefined) throw new Error(`ENOENT: no such file, open '${path}'`);
      return Buffer.from(content);
    },
  });
}

/** The problems of the configuration; empty if it is accepted. */
export function problemsOf(given: Given): readonly string[] {
  try {
    load(given);
    return [];
  } catch (error) {
    if (error instanceof ConfigError) return error.problems;
    throw error;
  }
}
