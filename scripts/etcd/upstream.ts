import { execFile } from "node:child_process";
import { mkdtemp, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { promisify } from "node:util";
import { download, verifySha256 } from "./download.ts";

const run = promisify(execFile);

interface Release {
  readonly version: string;
  /** SHA-256 of the tarballs, by Node's name for the architecture. */
  readonly sha256: Readonly<Record<string, string>>;
}

/** The release of each minor version that the tests can run on. */
const RELEASES: Readonly<Record<string, Release>> = {
  "3.5": {
    version: "3.5.21",
    sha256: {
      x64: "adddda4b06718e68671ffabff2f8cee48488ba61ad82900e639d108f2148501c",
      arm64: "95bf6918623a097c0385b96f139d90248614485e781ec9bee4768dbb6c79c53f",
    },
  },
  "3.6": {
    version: "3.6.6",
    sha256: {
      x64: "887afaa4a99f22d802ccdfbe65730a5e79aa5c9ce2c8799c67e9d804c50ecedb",
    },
  },
};

/** etcd's names of the architectures, by Node's. */
const ARCHITECTURES: Readonly<Record<string, string>> = { x64: "amd64", arm64: "arm64" };

/**
 * Puts the binaries of the upstream project's own release into `folder`.
 *
 * @param minor minor version, as in "3.6"
 * @throws Error if no checksum is known for the release on this platform, or the download differs from it
 */
export async function unpackUpstreamRelease(folder: string, minor: string = "3.5"): Promise<void> {
  const release = RELEASES[minor];
  const sha256 = process.platform === "linux" ? release?.sha256[process.arch] : undefined;
  if (release === undefined || sha256 === undefined) {
    throw new Error(`no checksum is known for ${minor} for ${process.platform} on ${process.arch}`);
  }
  const name = `etcd-v${release.version}-linux-${ARCHITECTURES[process.arch]}`;
  const url = `https://github.com/etcd-io/etcd/releases/download/v${release.version}/${name}.tar.gz`;
  const tarball = await download(url, 64 << 20);
  verifySha256(url, tarball, sha256);
  const work = await mkdtemp(join(tmpdir(), "etcd-release-"));
  try {
    const file = join(work, "etcd.tar.gz");
    await writeFile(file, tarball);
    const binaries = ["etcd", "etcdctl", "etcdutl"].map((binary) => `${name}/${binary}`);
    await run("tar", ["-xzf", file, "-C", folder, "--strip-components=1", ...binaries], {
      timeout: 60_000,
    });
  } finally {
    await rm(work, { recursive: true, force: true });
  }
}
