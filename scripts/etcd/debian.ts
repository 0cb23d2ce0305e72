import { execFile } from "node:child_process";
import { mkdtemp, readdir, readFile, rename, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { promisify } from "node:util";
import { gunzipSync } from "node:zlib";
import { download, reasonOf, verifySha256 } from "./download.ts";

const run = promisify(execFile);

/** Debian's names of the architectures, by Node's. */
const ARCHITECTURES: Readonly<Record<string, string>> = {
  x64: "amd64",
  arm64: "arm64",
  arm: "armhf",
  ppc64: "ppc64el",
  riscv64: "riscv64",
  s390x: "s390x",
};

const APT = "/etc/apt";
const KEYRINGS = "/usr/share/keyrings";

/**
 * Puts the binaries of Debian stable's `packages` into `folder`, without root: the packages are
 * only unpacked. They come from a mirror that the machine's own package sources name, whatever release
 * those are of, and each step is verified by the one before: the suite's signature by the Debian keys
 * on this machine, the index by the suite, the packages by the index.
 */
export async function unpackDebianPackages(
  folder: string,
  packages: readonly string[] = ["etcd-server", "etcd-client"],
): Promise<void> {
  const architecture = ARCHITECTURES[process.arch];
  if (architecture === undefined) throw new Error(`Debian has no packages for ${process.arch}`);
  const mirrors = await mirrorsOfMachine();
  if (mirrors.length === 0) throw new Error(`no http(s) package source is named below ${APT}`);
  const failures: string[] = [];
  for (const mirror of mirrors) {
    try {
      await unpackFrom(mirror, architecture, packages, folder);
      return;
    } catch (error) {
      failures.push(reasonOf(error));
    }
  }
  throw new Error(failures.join("; "));
}

async function unpackFrom(
  mirror: string,
  architecture: string,
  packages: readonly string[],
  folder: string,
): Promise<void> {
  const suite = `${mirror}/dists/stable`;
  const work = await mkdtemp(join(tmpdir(), "debian-packages-"));
  try {
    const release = await signedRelease(`${suite}/InRelease`, work);
    if (!/^Origin: Debian$/m.test(release)) throw new Error(`${suite} is not of Debian`);
    const index = await packagesIndex(suite, release, architecture, work);
    for (const name of packages) {
      const { path, sha256, size } = packageIn(index, name);
      const deb = await download(`${mirror}/${path}`, size);
      verifySha256(path, deb, sha256);
      const file = join(work, `${name}.deb`);
      await writeFile(file, deb);
      await run("dpkg-deb", ["-x", file, join(work, "root")], { timeout: 60_000 });
    }
    const binaries = join(work, "root", "usr", "bin");
    for (const name of await readdir(binaries)) {
      await moveFile(join(binaries, name), join(folder, name));
    }
  } finally {
    await rm(work, { recursive: true, force: true });
  }
}

/** `rename` works only within one file system, and the temporary folder may be on another one. */
async function moveFile(from: string, to: string): Promise<void> {
  try {
    await rename(from, to);
  } catch {
    await writeFile(to, await readFile(from), { mode: 0o755 });
  }
}

/** The signed part of the suite's release file: only content that gpgv has verified counts. */
async function signedRelease(url: string, work: string): Promise<string> {
  const keyrings = (await list(KEYRINGS)).filter((name) => /^debian-archive-.*\.gpg$/.test(name));
  const trusted = keyrings.filter((name) => !name.includes("removed"));
  if (trusted.length === 0) throw new Error(`no Debian archive keys in ${KEYRINGS}`);
  const signed = join(work, "InRelease");
  const verified = join(work, "Release");
  await writeFile(signed, await download(url, 4 << 20));
  const rings = trusted.flatMap((name) => ["--keyring", join(KEYRINGS, name)]);
  try {
    await run("gpgv", [...rings, "--output", verified, signed], { timeout: 20_000 });
  } catch (error) {
    throw new Error(`the signature of ${url} does not verify: ${reasonOf(error)}`);
  }
  return readFile(verified, "utf8");
}

async function packagesIndex(
  suite: string,
  release: string,
  architecture: string,
  work: string,
): Promise<string> {
  const checksums = release.slice(release.indexOf("\nSHA256:"));
  for (const extension of ["xz", "gz"]) {
    const path = `main/binary-${architecture}/Packages.${extension}`;
    const entry = new RegExp(`^ ([0-9a-f]{64}) +\\d+ ${path.replaceAll(".", "\\.")}$`, "m");
    const sha256 = entry.exec(checksums)?.[1];
    if (sha256 === undefined) continue;
    const content = await download(`${suite}/${path}`, 64 << 20);
    verifySha256(path, content, sha256);
    if (extension === "gz") return gunzipSync(content).toString("utf8");
    const file = join(work, "Packages.xz");
    await writeFile(file, content);
    const { stdout } = await run("xz", ["-dc", file], { maxBuffer: 512 << 20, timeout: 60_000 });
    return stdout;
  }
  throw new Error(`${suite} lists no package index for ${architecture}`);
}

function packageIn(
  index: string,
  name: string,
): { readonly path: string; readonly sha256: string; readonly size: number } {
  const start = `\n${index}`.indexOf(`\nPackage: ${name}\n`);
  if (start < 0) throw new Error(`Debian stable has no package ${name}`);
  const stanza = index.slice(start).split("\n\n", 1)[0] ?? "";
  const field = (key: string): string => {
    const value = new RegExp(`^${key}: (.+)$`, "m").exec(stanza)?.[1];
    if (value === undefined) throw new Error(`the package index says no ${key} of ${name}`);
    return value;
  };
  return { path: field("Filename"), sha256: field("SHA256"), size: Number(field("Size")) };
}

/** The base URLs in both formats of apt's sources, in the order of the files, each once. */
async function mirrorsOfMachine(): Promise<readonly string[]> {
  const files = [
    "sources.list",
    ...(await list(join(APT, "sources.list.d"))).map((name) => join("sources.list.d", name)),
  ];
  const mirrors = new Set<string>();
  for (const file of files) {
    const content = await readFile(join(APT, file), "utf8").catch(() => "");
    for (const line of content.split("\n")) {
      const uris = file.endsWith(".sources")
        ? /^URIs:(.*)$/i.exec(line)?.[1]
        : /^deb\s+(?:\[[^\]]*\]\s*)?(\S+)/.exec(line)?.[1];
      for (const uri of uris?.split(/\s+/) ?? []) {
        if (/^https?:/.test(uri)) mirrors.add(uri.replace(/\/+$/, ""));
      }
    }
  }
  // The main archive first: others (security, vendors') have no stable suite of Debian's.
  return [...mirrors].sort((a, b) => Number(b.endsWith("/debian")) - Number(a.endsWith("/debian")));
}

async function list(folder: string): Promise<readonly string[]> {
  return readdir(folder).then(
    (names) => names.sort(),
    () => [],
  );
}
