import { etcdBinaries } from "../../scripts/etcd.ts";
import { startEmbedded } from "../etcd-api/front.ts";

/** As those of an etcd. Its arguments have no effect. */
interface Options {
  readonly rootPassword?: string;
  readonly tls?: object;
  readonly quotaBytes?: number;
}

/**
 * Starts a service with an embedded store in the place of an etcd. No resource has the keys of the test, so that its server
 * answers, not a cache. Rejects for what it has not: users, TLS of its own, a quota, another process.
 */
export async function startAsEtcd(options: Options) {
  const { rootPassword, tls, quotaBytes } = options;
  const unknown = [rootPassword, tls, quotaBytes].some((option) => option !== undefined);
  if (unknown) throw new Error("The embedded store has no such option of etcd.");
  const front = await startEmbedded({
    resource: ["others=/no-key-of-a-test/"],
    "watch-progress-notify-interval": ["10m"],
  });
  const { etcdctl } = await etcdBinaries();
  const refuse = (): never => {
    throw new Error("The embedded store is no process that could be stopped.");
  };
  return {
    ...{ url: front.url, bin: "", etcdctl, version: "3.6.0", pid: undefined },
    ...{ kill: refuse, start: refuse, pause: refuse, resume: refuse },
    stop: () => front.stop(),
  };
}
