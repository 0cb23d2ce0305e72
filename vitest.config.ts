import { configDefaults, defineConfig } from "vitest/config";

/** The tests of responses: they run once for each writer of frames. */
const responseTests = [
  "test/server/http2/{cancelling,connections,half-requests,plain-and-compressed}.test.ts",
  "test/server/limits/{kept-requests,stalled-clients,stream-limit,unsent-answers}.test.ts",
  "test/server/services/{get-and-list,health-service,reflection-service}.test.ts",
  "test/server/services/{refusals,watch,watch-sender}.test.ts",
  "test/server/shutdown.test.ts",
];

export default defineConfig({
  test: {
    // As in Node.js: the default export of a CommonJS module is the module, even if it has a "default" property.
    deps: { interopDefault: false },
    // `npm run test:mesh` runs them: they need an Envoy.
    exclude: [...configDefaults.exclude, ...(process.env["MESH"] ? [] : ["test/mesh/**"])],
    // Ends tests that hang. Not an assertion: on a busy machine a test takes many times as long.
    testTimeout: 90_000,
    hookTimeout: 90_000,
    // Most tests wait for etcd more than they compute.
    maxWorkers: 4,
    projects: [
      { extends: true, test: { name: "all", include: ["test/**/*.test.ts"] } },
      {
        extends: true,
        test: { name: "framing direct", include: responseTests, env: { TEST_FRAMING: "direct" } },
      },
    ],
  },
});
