/**
 * Obtains an etcd for the tests and prints where it is: `node scripts/etcd.ts`.
 *
 * In this order: $ETCD_BIN (the binary, or the folder that it is in); etcd on PATH; the one fetched
 * before, in .cache; the upstream project's release; Debian stable's packages. Every one has to be
 * 3.5.13 or newer and, if $ETCD_RELEASE names a minor version such as 3.6, of that version.
 */
import { mkdir, mkdtemp, rename, rm } from "node:fs/promises";
import { join } from "node:path";
import { folderOnPath, fromFirstSource, printPath } from "./binary-sources.ts";
import { binariesIn, type EtcdBinaries, folderOf } from "./etcd/binaries.ts";
import { unpackDebianPackages } from "./etcd/debian.ts";
import { reasonOf } from "./etcd/download.ts";
import { unpackUpstreamRelease } from "./etcd/upstream.ts";

/** Beside the sources, so that `npm ci` leaves it and deleting the checkout deletes it. */
const CACHE = join(import.meta.dirname, "..", ".cache");

/**
 * The first etcd that one of the sources has, downloaded if necessary.
 *
 * @throws Error with the reason of every source
 */
export async function etcdBinaries(): Promise<EtcdBinaries> {
  const minor = wantedMinor();
  const named = process.env["ETCD_BIN"];
  // An explicit path has no fallback, which would hide a mistake in it.
  if (named) {
    return folderOf(named)
      .then((folder) => binariesIn(folder, minor))
      .catch((error) => {
        throw new Error(`ETCD_BIN is ${JSON.stringify(named)}, but ${reasonOf(error)}`);
      });
  }

  const cache = join(CACHE, minor === undefined ? "etcd" : `etcd-${minor}`);
  return fromFirstSource(
    [
      ["PATH", () => onPath(minor)],
      ["the cache", () => binariesIn(cache, minor)],
      [
        "the upstream release",
        () => fetched((folder) => unpackUpstreamRelease(folder, minor), cache, minor),
      ],
      ["Debian stable", () => fetched(unpackDebianPackages, cache, minor)],
    ],
    `There is no etcd for the tests. Set ETCD_BIN to one of ${minor ?? "3.5.13 or newer"}.`,
  );
}

/** The minor version that the environment asks for. An empty variable counts as not set. */
function wantedMinor(): string | undefined {
  const minor = process.env["ETCD_RELEASE"];
  if (!minor) return undefined;
  if (/^\d+\.\d+$/.test(minor)) return minor;
  throw new Error(`ETCD_RELEASE is ${JSON.stringify(minor)}, not a minor version such as 3.6`);
}

async function onPath(minor: string | undefined): Promise<EtcdBinaries> {
  const folder = await folderOnPath("etcd");
  if (folder === undefined) throw new Error("no etcd");
  return binariesIn(folder, minor);
}

/**
 * Unpacks into a folder of its own, tries what is there, and then moves it into the cache in one step: two processes
 * may fetch at once, and the later one finds the cache filled.
 */
async function fetched(
  unpack: (folder: string) => Promise<void>,
  cache: string,
  minor: string | undefined,
): Promise<EtcdBinaries> {
  await mkdir(CACHE, { recursive: true });
  const work = await mkdtemp(`${cache}-`);
  try {
    await unpack(work);
    await binariesIn(work, minor);
    return await moveIntoCache(work, cache, minor);
  } finally {
    await rm(work, { recursive: true, force: true });
  }
}

async function moveIntoCache(
  work: string,
  cache: string,
  minor: string | undefined,
): Promise<EtcdBinaries> {
  try {
    await rename(work, cache);
    return await binariesIn(cache, minor);
  } catch {
    const others = await binariesIn(cache, minor).catch(() => undefined);
    if (others !== undefined) return others;
    await rm(cache, { recursive: true, force: true }); // what is there is broken
    await rename(work, cache);
    return binariesIn(cache, minor);
  }
}

if (import.meta.main) await printPath(async () => (await etcdBinaries()).etcd);
