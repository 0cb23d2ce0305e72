import { execFile } from "node:child_process";
import { mkdtemp, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { promisify } from "node:util";
import { download, verifySha256 } from "./download.ts";

const run = promisify(execFile);

const VERSION = "3.5.21";

/** Of the release's tarballs, by Node's name for the architecture. */
const SHA256: Readonly<Record<string, { readonly name: string; readonly sha256: string }>> = {
  x64: {
    name: `etcd-v${VERSION}-linux-amd64`,
    sha256: "adddda4b06718e68671ffabff2f8cee48488ba61ad82900e639d108f2148501c",
  },
  arm64: {
    name: `etcd-v${VERSION}-linux-arm64`,
    sha256: "95bf6918623a097c0385b96f139d90248614485e781ec9bee4768dbb6c79c53f",
  },
};

/** Puts the binaries of the upstream project's own release into `folder`. */
export async function unpackUpstreamRelease(folder: string): Promise<void> {
  const release = process.platform === "linux" ? SHA256[process.arch] : undefined;
  if (release === undefined) {
    throw new Error(`no checksum is known for ${process.platform} on ${process.arch}`);
  }
  const url = `https://github.com/etcd-io/etcd/releases/download/v${VERSION}/${release.name}.tar.gz`;
  const tarball = await download(url, 64 << 20);
  verifySha256(url, tarball, release.sha256);
  const work = await mkdtemp(join(tmpdir(), "etcd-release-"));
  try {
    const file = join(work, "etcd.tar.gz");
    await writeFile(file, tarball);
    const binaries = ["etcd", "etcdctl", "etcdutl"].map((name) => `${release.name}/${name}`);
    await run("tar", ["-xzf", file, "-C", folder, "--strip-components=1", ...binaries], {
      timeout: 60_000,
    });
  } finally {
    await rm(work, { recursive: true, force: true });
  }
}
