import { Child } from "./child.ts";
import type { HostQuestion } from "./relay-host.ts";

/** The parent's side of relays in a few processes. */
export class RelayHosts {
  readonly #hosts: readonly Child<HostQuestion>[];

  private constructor(hosts: readonly Child<HostQuestion>[]) {
    this.#hosts = hosts;
  }

  /** Starts relays of HOST:PORT, as evenly as possible in so many processes. Resolves when all are ready. */
  static async start(upstream: string, relays: number, processes: number): Promise<RelayHosts> {
    const count = Math.min(relays, processes);
    const all = new RelayHosts(Array.from({ length: count }, () => new Child("relay-host.ts")));
    try {
      await Promise.all(
        all.#hosts.map((host, i) => {
          const share = Math.floor(relays / count) + (i < relays % count ? 1 : 0);
          return host.ask({ do: "start", upstream, relays: share });
        }),
      );
    } catch (error) {
      await all.stop();
      throw error;
    }
    return all;
  }

  /** Resolves when the cache of each relay has come to the revision. */
  async through(revision: number): Promise<void> {
    await Promise.all(this.#hosts.map((host) => host.ask({ do: "await revision", revision })));
  }

  async stop(): Promise<void> {
    await Promise.all(this.#hosts.map((host) => host.stop()));
  }
}
