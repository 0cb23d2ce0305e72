import { execFile } from "node:child_process";
import { dirname, join } from "node:path";
import { promisify } from "node:util";
import { isExecutable } from "../binary-sources.ts";

const run = promisify(execFile);

/** The executables of an etcd that the tests use. All paths are absolute or found on PATH. */
export interface EtcdBinaries {
  readonly etcd: string;
  /** Undefined where only the server is installed. */
  readonly etcdctl: string | undefined;
  /** As in "3.5.16". */
  readonly version: string;
}

/** The oldest etcd whose watch is reliable (etcd issues 15220 and 17507). */
export const OLDEST_VERSION = "3.5.13";

/**
 * The etcd in `folder`.
 *
 * @param minor the minor version that it must have, as in "3.6"; undefined: any that is not too old
 * @throws Error if it is absent, does not run here, is too old or has another minor version
 */
export async function binariesIn(folder: string, minor?: string): Promise<EtcdBinaries> {
  const etcd = join(folder, "etcd");
  const version = await versionOf(etcd);
  if (compareVersions(version, OLDEST_VERSION) < 0) {
    throw new Error(`${etcd} is version ${version}, older than ${OLDEST_VERSION}`);
  }
  if (minor !== undefined && !version.startsWith(`${minor}.`)) {
    throw new Error(`${etcd} is version ${version}, and ETCD_RELEASE is ${minor}`);
  }
  const etcdctl = join(folder, "etcdctl");
  return { etcd, etcdctl: (await isExecutable(etcdctl)) ? etcdctl : undefined, version };
}

/** The folder of `$ETCD_BIN`, which may name the binary or its folder. */
export async function folderOf(path: string): Promise<string> {
  return (await isExecutable(join(path, "etcd"))) ? path : dirname(path);
}

async function versionOf(etcd: string): Promise<string> {
  if (!(await isExecutable(etcd))) throw new Error(`there is no executable ${etcd}`);
  const { stdout } = await run(etcd, ["--version"], { timeout: 20_000 });
  const version = /^etcd Version: (\d+\.\d+\.\d+)/m.exec(stdout)?.[1];
  if (version === undefined) throw new Error(`${etcd} --version says ${JSON.stringify(stdout)}`);
  return version;
}

function compareVersions(a: string, b: string): number {
  return a.localeCompare(b, "en", { numeric: true });
}
