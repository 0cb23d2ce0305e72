import { setImmediate as nextTurn } from "node:timers/promises";
import { expect, onTestFinished } from "vitest";
import { type Client, connect } from "../../../src/client/connect.ts";
import type { SharedInformer } from "../../../src/client/informer/shared-informer.ts";
import type { ResourceInformerOptions } from "../../../src/client/typed/typed-resource.ts";
import { EtcdStorage } from "../../../src/storage/etcd/etcd-storage.ts";
import type { Storage } from "../../../src/storage/storage.ts";
import type { Etcd } from "../../etcd/etcd.ts";
import { InProcessReplica } from "../../faults/in-process-replica.ts";
import { Changing, inTime } from "../../faults/patience.ts";
import { Seeded } from "../../faults/seeded.ts";
import { batches } from "../../storage/batches.ts";
import { clientOf, eventually, newPrefix, Source } from "../../storage/etcd/source.ts";
import { CheckedHandler } from "./handlers/checked-handler.ts";
import { stateOf, texts } from "./informed.ts";

/** A handler that signals each of its calls. */
class Watching extends CheckedHandler {
  readonly changing = new Changing();

  override onAdd(...called: Parameters<CheckedHandler["onAdd"]>): unknown {
    super.onAdd(...called);
    return this.#called();
  }

  override onUpdate(...called: Parameters<CheckedHandler["onUpdate"]>): unknown {
    super.onUpdate(...called);
    return this.#called();
  }

  override onDelete(...called: Parameters<CheckedHandler["onDelete"]>): unknown {
    super.onDelete(...called);
    return this.#called();
  }

  /** The slow one takes a few turns of the event loop per call. */
  async #called(): Promise<void> {
    if (this.manner === "slow") for (let i = 0; i < 3; i++) await nextTurn();
    this.release();
    this.changing.changed();
  }
}

interface Options {
  readonly seed: number;
  /** The size of the service's event window, in events. */
  readonly historyEvents?: number;
  /** Whether the service reads what is older from etcd. Default true. */
  readonly hasDeepReads?: boolean;
  readonly delivery?: ResourceInformerOptions<string>["delivery"];
}

/** A real etcd, a service before it, an informer over a connection to that, and a writer to etcd. */
export class Informing {
  readonly replica: InProcessReplica;
  readonly client: Client;
  readonly informer: SharedInformer<string>;
  readonly quick = new Watching("quick");
  readonly slow = new Watching("slow");
  readonly random: Seeded;
  /** The state of etcd, over its own connection. */
  readonly account: Storage;
  readonly #source: Source;
  readonly #prefix: string;
  readonly #delivery: Options["delivery"];
  /** Etcd's revision when the informer had synced, with no objects. */
  #from = 0;
  #written = 0;

  private constructor(
    etcd: Etcd,
    prefix: string,
    replica: InProcessReplica,
    { seed, delivery }: Options,
  ) {
    this.replica = replica;
    this.random = new Seeded(seed);
    this.#source = new Source(etcd);
    this.#prefix = prefix;
    this.#delivery = delivery;
    const etcdClient = clientOf(etcd);
    this.account = new EtcdStorage(etcdClient, { prefix });
    this.client = connect({ address: `127.0.0.1:${replica.relay.port}` });
    const backoff = { initialMs: 5, maxMs: 50 };
    this.informer = this.client.resource("things", texts).informer({ delivery, backoff });
    this.quick.registration = this.informer.addEventHandler(this.quick);
    this.slow.registration = this.informer.addEventHandler(this.slow, { queueSize: 2 });
    onTestFinished(async () => {
      await this.informer.stop();
      this.client.close();
      await replica.stop();
      await etcdClient.close();
    });
  }

  static async open(etcd: Etcd, options: Options): Promise<Informing> {
    const prefix = newPrefix();
    const replica = await InProcessReplica.create({
      name: "replica",
      prefix,
      etcd: [Number(new URL(etcd.url).port)],
      historyEvents: options.historyEvents,
      hasDeepReads: options.hasDeepReads,
    });
    await replica.start();
    const informing = new Informing(etcd, prefix, replica, options);
    informing.informer.start();
    await inTime(() => "the informer to sync", informing.informer.waitForSync());
    informing.#from = informing.informer.revision ?? 0;
    return informing;
  }

  /** Makes transactions of a few writes each. Returns etcd's revision after them. */
  async write(transactions: number): Promise<number> {
    let revision = 0;
    for (let i = 0; i < transactions; i++) {
      const keys = new Set(Array.from({ length: this.random.between(1, 3) }, () => this.#key()));
      revision = await this.#source.write(
        this.#prefix,
        [...keys].map((key) =>
          this.random.chance(0.3)
            ? { type: "delete" as const, key }
            : { type: "put" as const, key, value: Buffer.from(`${++this.#written}`) },
        ),
      );
    }
    return revision;
  }

  compact(revision: number): Promise<void> {
    return this.#source.compact(revision);
  }

  /** Writes a marker, and resolves when the quick handler was called for it. */
  async arrived(): Promise<void> {
    const value = Buffer.from(`${++this.#written}`);
    const put = { type: "put" as const, key: "marker", value };
    await eventually(() => this.#source.write(this.#prefix, [put]));
    const { quick } = this;
    await inTime(
      () => `marker ${value}, after ${this.informer.failure?.message}`,
      quick.changing.until(() => quick.knows.get("marker")?.value === `${value}`),
    );
  }

  /** Checks that the state equals that of etcd, and that nothing is queued. */
  async check(): Promise<void> {
    await this.arrived();
    const { informer, quick, slow } = this;
    const objects = informer.indexer.list().map(({ key, value }) => [key, value]);
    expect(Object.fromEntries(objects)).toEqual(await eventually(() => stateOf(this.account)));
    await informer.stop({ drain: true });
    for (const handler of [quick, slow]) {
      expect(handler.faults).toEqual([]);
      expect(handler.differences(informer.indexer)).toEqual([]);
      expect(handler.registration?.pending).toBe(0);
    }
    expect(informer.stats()).toMatchObject({ pendingKeys: 0, rejected: 0, handlers: [] });
  }

  /** Checks that there was no gap: by EVERY_EVENT the quick handler was called for each change once. */
  async checkNoGap(): Promise<void> {
    expect(this.informer.stats().relists).toBe(0);
    if (this.#delivery === "LATEST_STATE") return;
    expect(byKey(this.quick.recorded)).toEqual(byKey(await this.#history()));
  }

  /** Every change, read from etcd. */
  async #history(): Promise<string[]> {
    const current = await this.account.currentRevision();
    const scope = { prefix: "" };
    const stream = this.account.watch({ scope, afterRevision: this.#from, withPrevious: false });
    this.account.requestProgress();
    const all: string[] = [];
    for await (const { events, revision = 0 } of batches(stream)) {
      for (const { type, object } of events) {
        all.push(`${type} ${object.key}@${object.modRevision}`);
      }
      if (revision >= current) break;
    }
    return all;
  }

  #key(): string {
    return `${this.random.pick(["a", "b"])}/${this.random.between(1, 6)}`;
  }
}

/** In order for each key. */
function byKey(lines: readonly string[]): string[] {
  const keyOf = (line: string): string => line.split(/[ @]/)[1] ?? "";
  return lines.toSorted((a, b) => (keyOf(a) < keyOf(b) ? -1 : keyOf(a) > keyOf(b) ? 1 : 0));
}
