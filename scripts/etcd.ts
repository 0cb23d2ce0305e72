/**
 * Obtains an etcd for the tests and prints where it is: `node scripts/etcd.ts`.
 *
 * In this order: $ETCD_BIN (the binary, or the folder that it is in); etcd on PATH; the one fetched
 * before, in .cache; the upstream project's release; Debian stable's packages. Every one has to be
 * 3.5.13 or newer.
 */
import { mkdir, mkdtemp, rename, rm } from "node:fs/promises";
import { join } from "node:path";
import { binariesIn, type EtcdBinaries, folderOf, folderOnPath } from "./etcd/binaries.ts";
import { unpackDebianPackages } from "./etcd/debian.ts";
import { reasonOf } from "./etcd/download.ts";
import { unpackUpstreamRelease } from "./etcd/upstream.ts";

/** Beside the sources, so that `npm ci` leaves it and deleting the checkout deletes it. */
const CACHE = join(import.meta.dirname, "..", ".cache", "etcd");

/**
 * The first etcd to be had, fetched if need be.
 *
 * @throws Error that says of every source why it had none
 */
export async function etcdBinaries(): Promise<EtcdBinaries> {
  const named = process.env["ETCD_BIN"];
  // Whoever names one means that one: to go on with another would hide the mistake.
  if (named) {
    return folderOf(named)
      .then(binariesIn)
      .catch((error) => {
        throw new Error(`ETCD_BIN is ${JSON.stringify(named)}, but ${reasonOf(error)}`);
      });
  }

  const failures: string[] = [];
  const sources: readonly (readonly [string, () => Promise<EtcdBinaries>])[] = [
    ["PATH", onPath],
    ["the cache", () => binariesIn(CACHE)],
    ["the upstream release", () => fetched(unpackUpstreamRelease)],
    ["Debian stable", () => fetched(unpackDebianPackages)],
  ];
  for (const [name, source] of sources) {
    try {
      return await source();
    } catch (error) {
      failures.push(`  ${name}: ${reasonOf(error)}`);
    }
  }
  throw new Error(
    "There is no etcd for the tests. Set ETCD_BIN to one of 3.5.13 or newer. What was tried:\n" +
      failures.join("\n"),
  );
}

async function onPath(): Promise<EtcdBinaries> {
  const folder = await folderOnPath("etcd");
  if (folder === undefined) throw new Error("no etcd");
  return binariesIn(folder);
}

/**
 * Unpacks into a folder of its own, tries what is there, and then moves it into the cache in one step:
 * two processes may do so at once, and the later one finds the place taken.
 */
async function fetched(unpack: (folder: string) => Promise<void>): Promise<EtcdBinaries> {
  await mkdir(join(CACHE, ".."), { recursive: true });
  const work = await mkdtemp(`${CACHE}-`);
  try {
    await unpack(work);
    await binariesIn(work);
    return await moveIntoCache(work);
  } finally {
    await rm(work, { recursive: true, force: true });
  }
}

async function moveIntoCache(work: string): Promise<EtcdBinaries> {
  try {
    await rename(work, CACHE);
    return await binariesIn(CACHE);
  } catch {
    const others = await binariesIn(CACHE).catch(() => undefined);
    if (others !== undefined) return others;
    await rm(CACHE, { recursive: true, force: true }); // what is there is broken
    await rename(work, CACHE);
    return binariesIn(CACHE);
  }
}

if (import.meta.main) {
  try {
    const { etcd } = await etcdBinaries();
    process.stdout.write(`${etcd}\n`);
  } catch (error) {
    process.stderr.write(`${reasonOf(error)}\n`);
    process.exitCode = 1;
  }
}
