import { afterAll, beforeAll, describe, it } from "vitest";
import { type Served, startServe, untilStatus } from "../../cli/serve/serve-process.ts";
import { type Etcd, startEtcd } from "../../etcd/etcd.ts";
import fc, { costlyRuns } from "../../property.ts";
import { type Options, Tier } from "../../relay/tiers.ts";
import { MeshWorld, meshStep } from "./mesh-world.ts";
import { StoredHistory } from "./stored-history.ts";
import { StoredMesh } from "./stored-mesh.ts";

/*
 * What clients of xDS receive at a root, a relay that collects changes, and a relay with workers, while a mesh is written, and streams
 * are cut, paused and resumed, held to what docs/xds.md promises.
 */

const types = ["cds", "eds", "lds", "rds"];
const resource = types.map((type) => `${type}=/${type}/`);
const xds = types.map((type) => `${type}=${type}`);

/** One server of each tier, over one store. */
class Tiers {
  readonly #root: Tier;
  readonly #relay: Tier;
  readonly #workers: Served;
  readonly #etcd: Etcd | undefined;
  readonly #mesh: StoredMesh;

  private constructor(root: Tier, relay: Tier, workers: Served, etcd: Etcd | undefined) {
    this.#root = root;
    this.#relay = relay;
    this.#workers = workers;
    this.#etcd = etcd;
    this.#mesh = new StoredMesh(root.client(), new StoredHistory());
  }

  static async start(etcd: Etcd | undefined): Promise<Tiers> {
    const store: Options = etcd === undefined ? {} : { etcd: etcd.url };
    const root = await Tier.start({ ...store, resource, xds });
    // The least that often lasts from one transaction to the next.
    const relay = await Tier.relay(root.address, { xds, "xds-debounce": "20ms" });
    const args = ["--workers", "2", "--upstream", root.address];
    const workers = await startServe([...args, ...xds.flatMap((each) => ["--xds", each])]);
    await untilStatus(`${workers.admin}/readyz`, 200);
    return new Tiers(root, relay, workers, etcd);
  }

  world(): MeshWorld {
    const workers = Number(this.#workers.grpc.split(":")[1]);
    return new MeshWorld(this.#mesh, { root: this.#root.port, relay: this.#relay.port, workers });
  }

  async stop(): Promise<void> {
    await this.#workers.process[Symbol.asyncDispose]();
    await this.#relay.stop();
    await this.#root.stop();
    await this.#etcd?.stop();
  }
}

const stores = [
  ["the embedded store", undefined, costlyRuns(40)],
  ["etcd", startEtcd, costlyRuns(12)],
] as const;

describe.each(stores)("xDS at a root, a relay and workers, over %s", (_, startStore, numRuns) => {
  let tiers: Tiers;

  beforeAll(async () => {
    tiers = await Tiers.start(await startStore?.());
  });

  afterAll(async () => {
    await tiers?.stop();
  });

  it("keeps its guarantees, whatever is written and however clients read", {
    timeout: 120_000 * numRuns,
  }, async () => {
    const steps = fc.array(meshStep, { minLength: 50, maxLength: 60 });
    await fc.assert(
      fc.asyncProperty(steps, async (taken) => {
        const world = tiers.world();
        try {
          await world.live(taken);
        } finally {
          world.close();
        }
      }),
      // To shrink a case would take minutes. Its seed repeats it.
      { numRuns, endOnFailure: true },
    );
  });
});
