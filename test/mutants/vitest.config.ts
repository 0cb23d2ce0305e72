import { configDefaults, defineConfig } from "vitest/config";
import { BaseSequencer, type TestSpecification } from "vitest/node";
import { warmThreads } from "./warm-threads.ts";

/** The tests that judge the mutants, a folder or a pattern of files: scripts/mutants.ts sets it. */
const tests = process.env["MUTANTS_TESTS"] ?? "test";

/** Tests that start an etcd, or measure the heap or what is collected of it: too slow to run for each mutant. */
const slowTests = [
  "**/*{etcd-conformance,raw-keys,raw-keys-resume}.test.ts",
  "**/*{-memory,memory-estimates,retained-events}.test.ts",
];

/** Tests that take most of the time of the others together. */
const longTests =
  /(dispatcher|event-window-backfill|ordered-store|time-sliced-reads|coalesced-backlog|conformance)\.test\.ts$/;

/** The first failure ends the judgement of a mutant: most mutants are killed before the long tests begin. */
class LongTestsLast extends BaseSequencer {
  override async sort(files: TestSpecification[]): Promise<TestSpecification[]> {
    const isLong = ({ moduleId }: TestSpecification): boolean => longTests.test(moduleId);
    return [...files.filter((file) => !isLong(file)), ...files.filter(isLong)];
  }
}

/** One project in one thread, which stays: a mutant costs its tests, not the load of their modules. */
export default defineConfig({
  plugins: [
    {
      name: "warm-threads",
      configureVitest({ project }) {
        Object.assign(project.config, { pool: warmThreads.name, poolRunner: warmThreads });
      },
    },
  ],
  test: {
    include: [tests.endsWith(".ts") ? tests : `${tests}/**/*.test.ts`],
    exclude: [...configDefaults.exclude, ...slowTests],
    setupFiles: ["test/mutants/switched-off.ts"],
    deps: { interopDefault: false },
    isolate: false,
    sequence: { sequencer: LongTestsLast },
    restoreMocks: true,
    env: { PROPERTY_DIVISOR: "16" },
    // A mutant that makes a test wait indefinitely is found by the test's end, not by the end of the process.
    testTimeout: 8_000,
    hookTimeout: 8_000,
    expect: { poll: { timeout: 3_000 } },
  },
});
