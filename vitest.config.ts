import { globSync } from "node:fs";
import { configDefaults, defineConfig } from "vitest/config";
import { BaseSequencer, type TestSpecification, type Vite } from "vitest/node";
import { compileCache } from "./test/compile-cache.ts";
import { mutatedModule, requestedMutations } from "./test/corpus/mutate.ts";
import { isThorough } from "./test/thorough.ts";

/**
 * The rows of the wire contract: they run once for the service's own server, and once added to a server of grpc-js, then
 * over the embedded store only.
 */
const contractTests = [
  "test/contract/{errors,histories,reads,relist,slow-consumers}.test.ts",
  "test/contract/{uncached,watch-opening,watching,writes,subscribing}.test.ts",
];

/**
 * The tests of what is in front of etcd that run again with the embedded store in its place. Those that are not named need
 * users (access, token, tls), etcd's metrics or its process (tiers, bounds, faults, watch, etcd-pages, members, storage/etcd/etcd-leases),
 * a cluster (watch-random-faults), its Lock service (relay, namespace, own-services), its next lease id (rights/leases), its
 * --max-txn-ops (storage/store/etcd-store), a history key that they may change (storage/etcd/conformance), or no etcd. watch and
 * watch-order need events of the past that come late and in one message, storage/etcd/etcd-storage a transaction above the
 * JSON gateway's bound.
 */
const embeddedTests = [
  "test/etcd-api/{etcd3,etcdctl,namespace-escape,watch-random}.test.ts",
  "test/etcd-api/gateway/watch.test.ts",
  "test/etcd-api/range/{compaction,range,range-stream}.test.ts",
  "test/etcd-api/rights/rights.test.ts",
  // Most of these find faults of what is in front alone: `npm run test:thorough` runs them.
  ...(isThorough ? ["test/etcd-api/{drained-connection,watch-bounds}.test.ts"] : []),
  ...(isThorough ? ["test/etcd-api/{gateway/bounds,range/bounds}.test.ts"] : []),
  ...(isThorough ? ["test/etcd-api/rights/{escape,keepalives}.test.ts"] : []),
];

/** The tests that measure the heap, or what is collected of it. */
const lonelyTests = [
  /(-memory|memory-estimates|retained-events|attributes|memory\/limits)\.test\.ts$/,
  /server\/(http2\/pinned-reads|services\/leftovers)\.test\.ts$/,
  /server\/limits\/(kept-headers|kept-requests|waiting-reads)\.test\.ts$/,
];

/** The tests that keep a process busy with faults, workers or other programs for long. */
const busyTests = [
  /faults\/(client-library|downstream|histories|hostile|kills|members|restores|tiers|upstream)\.test\.ts$/,
  /(workers\/(workers|etcd-api|syncing-workers)|corpus\/corpus|docs\/commands)\.test\.ts$/,
  /simulation\/.*\.test\.ts$/,
];

/** The tests that run next to others in one process: they share its modules, which saves loading them. */
const sharingTests = globSync("test/**/*.test.ts").filter(
  (file) => ![...lonelyTests, ...busyTests].some((own) => own.test(file)),
);

/** The tests that take longest, some of them small files: the order by size would leave them for the end. */
const slowTests = new RegExp(
  `/test/(${[
    ...[
      "faults/.*",
      "simulation/.*",
      "workers/.*",
      "examples/.*",
      ".*conformance",
      "deploy/alerts",
    ],
    ...["cli/serve/(serve.*|etcd-connection-errors)", "cli/client/(leases|completion|bench)"],
    ...["client/coordination/(over-a-service|guards)", "client/transact/transfers"],
    ...["etcd-api/(watch-random-faults|tiers|members/spread|rights/(keepalives|leases))"],
    ...["relay/(deep-resume|leases|refusals|tiers)", "storage/etcd/(etcd-.*|faults|lister|past)"],
    ...["tracing/.*", "scripts/(model|traces|walks)", "contract/ranges"],
  ].join("|")})\\.test\\.ts$`,
);

/** Starts the slow tests of each project first, so that no worker is left alone with one at the end. */
class SlowFirst extends BaseSequencer {
  override async sort(files: TestSpecification[]): Promise<TestSpecification[]> {
    const sorted = await super.sort(files);
    const projects = [...Map.groupBy(sorted, (file) => file.project.name).values()];
    return projects.flatMap((ofProject) => [
      ...ofProject.filter((file) => slowTests.test(file.moduleId)),
      ...ofProject.filter((file) => !slowTests.test(file.moduleId)),
    ]);
  }
}

/** The bug of the corpus that these tests run with; none without the variable CORPUS (test/corpus). */
const mutations = requestedMutations(process.env["CORPUS"]);

/** Plants it in the modules as they are loaded. */
const corpus: Vite.Plugin = {
  name: "corpus",
  enforce: "pre",
  transform: (source, id) => mutatedModule(source, id.split("?")[0] ?? id, mutations),
};

// For the processes of vitest, their threads, and what tests start with their environment.
process.env["NODE_COMPILE_CACHE"] ??= compileCache.NODE_COMPILE_CACHE;

export default defineConfig({
  // For examples that are tests: Vite does not resolve the package's own name.
  resolve: {
    alias: [
      {
        find: /^watch-fanout\/(client|testing)$/,
        replacement: `${import.meta.dirname}/src/$1/index.ts`,
      },
    ],
  },
  plugins: mutations.length > 0 ? [corpus] : [],
  test: {
    // Cached modules would have the bug of another run.
    ...(mutations.length > 0 ? { fsModuleCache: false } : {}),
    sequence: { sequencer: SlowFirst },
    // As in Node.js: the default export of a CommonJS module is the module, even if it has a "default" property.
    deps: { interopDefault: false },
    // Scripts of their own run those that need an Envoy, a Chromium, Go, other runtimes or toolchains, or much time.
    exclude: [
      ...configDefaults.exclude,
      ...(process.env["MESH"] ? [] : ["test/mesh/**"]),
      ...(process.env["BROWSER"] ? [] : ["test/browser/**"]),
      ...(process.env["DEMO"] ? [] : ["test/bench/demo.test.ts"]),
      ...(process.env["LANGUAGES"] ? [] : ["test/languages/**"]),
      ...(process.env["LINEARIZABILITY"] ? [] : ["test/linearizability/**"]),
      ...(process.env["RUNTIMES"] ? [] : ["test/runtimes/**"]),
    ],
    // Ends tests that hang. Not an assertion: on a busy machine a test takes many times as long.
    testTimeout: process.env["BROWSER"] ? 300_000 : 180_000,
    hookTimeout: process.env["BROWSER"] ? 300_000 : 180_000,
    expect: { poll: { timeout: 60_000 } },
    // Commands must not read the contexts of the developer.
    env: { XDG_CONFIG_HOME: "/nonexistent" },
    // On two cores. Most tests wait for etcd and other processes more than they compute.
    maxWorkers: 7,
    projects: [
      {
        extends: true,
        test: { name: "sharing", include: sharingTests, isolate: false, restoreMocks: true },
      },
      {
        extends: true,
        test: { name: "isolated", include: ["test/**/*.test.ts"], exclude: sharingTests },
      },
      {
        extends: true,
        test: {
          ...{ name: "grpc-js server", include: contractTests, env: { TEST_SERVER: "grpc-js" } },
          ...{ isolate: false, restoreMocks: true },
        },
      },
      {
        extends: true,
        test: {
          ...{ name: "embedded store", include: embeddedTests, env: { TEST_ETCD: "embedded" } },
          ...{ isolate: false, restoreMocks: true },
        },
      },
    ],
  },
});
