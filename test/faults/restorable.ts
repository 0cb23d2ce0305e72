import { setTimeout as delay } from "node:timers/promises";
import { onTestFinished } from "vitest";
import { systemClock } from "../../src/base/clock.ts";
import { Cacher } from "../../src/cacher/cacher.ts";
import type { CacherOptions } from "../../src/cacher/options.ts";
import { EtcdStorage } from "../../src/storage/etcd/etcd-storage.ts";
import type { WatchResponse__Output } from "../../src/wire/generated/watchfanout/v1/WatchResponse.ts";
import { ManualTimers } from "../server/limits/manual-timers.ts";
import { serve } from "../server/served.ts";
import type { TestClient, Watching } from "../server/test-client.ts";
import { clientOf, Source, silent } from "../storage/etcd/source.ts";
import type { EtcdCluster } from "./etcd-cluster.ts";
import { Relay } from "./relay.ts";
import type { Snapshot } from "./snapshot-tool.ts";

export const resource = "things";

/** Whether etcd holds an id of its history that the service can use. */
export type Marker = "with the marker key" | "without the marker key";

export interface RestorableOptions {
  readonly cluster: EtcdCluster;
  readonly marker: Marker;
  /** Default: the Cacher's. */
  readonly eventWindow?: CacherOptions["eventWindow"];
}

let opened = 0;

/**
 * A replica in front of an etcd that is restored, and no writer except the test. The replica takes its pauses
 * from a clock that stands still until `goOn`: so what happens before it has found out happens every time.
 */
export class Restorable {
  readonly clock = new ManualTimers();
  readonly source: Source;
  readonly prefix: string;
  readonly historyKey: string;
  readonly cacher: Cacher;
  readonly #cluster: EtcdCluster;
  readonly #relay: Relay;
  #client: TestClient | undefined;

  private constructor({ cluster, eventWindow }: RestorableOptions, relay: Relay, url: string) {
    opened++;
    this.prefix = `/restored-${opened}/`;
    this.historyKey = `/history-${opened}`;
    this.#cluster = cluster;
    this.#relay = relay;
    this.source = new Source({ url });
    const etcd = clientOf(
      { url: relay.url },
      { clock: systemClock, historyKey: this.historyKey, requestTimeoutMs: 3_000 },
    );
    this.cacher = new Cacher({
      storage: new EtcdStorage(etcd, { prefix: this.prefix }),
      clock: this.clock,
      logger: silent,
      name: resource,
      consistencyIntervalMs: 0,
      eventWindow,
    });
    onTestFinished(async () => {
      await this.cacher.close();
      await etcd.close();
      await relay.close();
    });
  }

  /** With the objects `a`, `b` and `c`, and the replica ready. */
  static async open(options: RestorableOptions): Promise<Restorable> {
    const [member] = options.cluster.members;
    if (member === undefined) throw new Error("There is no etcd.");
    const restorable = new Restorable(options, await Relay.to(member.clientPort), member.url);
    if (options.marker === "without the marker key") {
      await restorable.source.putBytes(Buffer.from(restorable.historyKey), "not an id");
    }
    for (const key of ["a", "b", "c"]) await restorable.write([key, "before"]);
    await restorable.#start();
    return restorable;
  }

  get client(): TestClient {
    if (this.#client === undefined) throw new Error("It has not been started.");
    return this.#client;
  }

  /** Writes to etcd itself, in one transaction. null deletes. */
  write(...entries: readonly (readonly [key: string, value: string | null])[]): Promise<number> {
    return this.source.write(
      this.prefix,
      entries.map(([key, value]) =>
        value === null ? { type: "delete", key } : { type: "put", key, value: Buffer.from(value) },
      ),
    );
  }

  /** Writes keys outside of the resource, until etcd is at `revision`. */
  async growTo(revision: number): Promise<void> {
    while ((await this.source.revision()) < revision) {
      await this.source.putBytes(Buffer.from(`/elsewhere-${opened}`), "something");
    }
  }

  /** Resolves to etcd's revision, once the replica is there. */
  async level(): Promise<number> {
    const { revision } = await this.client.list({ resource });
    return Number(revision);
  }

  snapshot(): Promise<Snapshot> {
    return this.#cluster.snapshot();
  }

  /** The replica no longer reaches etcd, and has noticed. */
  async away(): Promise<void> {
    this.#relay.refuse();
    while (this.cacher.upstreamFailure === undefined) await delay(1);
  }

  back(): void {
    this.#relay.heal();
  }

  async restore(snapshot: Snapshot): Promise<void> {
    await this.#cluster.restore(snapshot);
  }

  /** Advances the replica's clock until `reached`. */
  async goOn(reached: () => boolean): Promise<void> {
    while (!reached()) {
      this.clock.advance(50);
      await delay(2);
    }
  }

  /** Advances it until its watch has been resumed. */
  async connected(): Promise<void> {
    await this.goOn(() => this.cacher.upstreamFailure === undefined);
  }

  /** A stream of everything after `revision`, which has begun. */
  async watch(revision: number): Promise<Watching<WatchResponse__Output>> {
    const stream = this.client.watch({ resource, after_revision: revision });
    await stream.next();
    return stream;
  }

  async #start(): Promise<void> {
    const { clock, cacher } = this;
    cacher.start();
    await this.goOn(() => cacher.ready);
    const { client } = await serve(new Map([[resource, cacher]]), clock);
    this.#client = client;
  }
}
