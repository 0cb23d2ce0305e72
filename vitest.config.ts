import { defineConfig } from "vitest/config";

export default defineConfig({
  test: {
    // As in Node.js: the default export of a CommonJS module is the module, even if it has a "default" property.
    deps: { interopDefault: false },
    include: ["test/**/*.test.ts"],
    // Ends tests that hang. Not an assertion: on a busy machine a test takes many times as long.
    testTimeout: 90_000,
    hookTimeout: 90_000,
    // Most tests wait for etcd more than they compute.
    maxWorkers: 4,
  },
});
