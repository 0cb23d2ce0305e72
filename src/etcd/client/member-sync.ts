import { ClusterClient } from "etcd3";
import type { Logger } from "pino";
import type { Clock, Timer } from "../../base/clock.ts";
import { messageOf } from "../../base/errors.ts";
import { OutageLog } from "../../base/logger.ts";
import type { EtcdClient } from "./etcd-client.ts";

interface MemberSyncOptions {
  readonly client: Pick<EtcdClient, "call" | "endpoints">;
  readonly intervalMs: number;
  /** Called with the endpoints of all members, when they have changed. */
  readonly apply: (endpoints: readonly string[]) => void;
  readonly clock: Clock;
  readonly logger: Logger;
}

/** Asks etcd for its members at an interval, and replaces the endpoints by theirs, as clientv3 does on request. */
export class MemberSync {
  readonly #options: MemberSyncOptions;
  readonly #failures: OutageLog;
  #timer: Timer | undefined;

  constructor(options: MemberSyncOptions) {
    this.#options = options;
    this.#failures = new OutageLog(options.clock, options.logger);
    this.#wait();
  }

  close(): void {
    this.#timer?.cancel();
    this.#timer = undefined;
  }

  #wait(): void {
    const { clock, intervalMs } = this.#options;
    this.#timer = clock.setTimeout(() => void this.#sync(), intervalMs);
  }

  async #sync(): Promise<void> {
    const { client, apply, logger } = this.#options;
    const timer = this.#timer;
    try {
      const urls = await memberUrls(client);
      if (this.#timer !== timer) return;
      this.#failures.ended("etcd names its members again");
      const { endpoints } = client;
      // Certificates are there for one scheme alone.
      const [known = ""] = endpoints;
      const scheme = known.startsWith("https:") ? "https:" : "http:";
      const usable = [...new Set(urls.filter((url) => url.startsWith(scheme)))].toSorted();
      if (usable.length === 0) throw new Error(`no member has a client URL with ${scheme}//`);
      if (usable.join() !== endpoints.toSorted().join()) {
        logger.info({ before: endpoints, endpoints: usable }, "the members of etcd have changed");
        apply(usable);
      }
    } catch (error) {
      if (this.#timer !== timer) return;
      const why = messageOf(error);
      this.#failures.failed(why, { why }, "can't get the members of etcd; the endpoints stay");
    }
    this.#wait();
  }
}

/** The client URLs of all members but learners and those that have not started. Rejects if etcd does not answer. */
async function memberUrls(client: Pick<EtcdClient, "call">): Promise<readonly string[]> {
  const { members } = await client.call((member) =>
    new ClusterClient(member).memberList({ linearizable: true }),
  );
  return members
    .filter(({ name, isLearner }) => name !== "" && !isLearner)
    .flatMap(({ clientURLs }) => clientURLs);
}
