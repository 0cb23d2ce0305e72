import { defineConfig } from "vitest/config";

export default defineConfig({
  test: {
    // As Node does it: a CommonJS module is its default export, whatever it calls "default" itself.
    deps: { interopDefault: false },
    include: ["test/**/*.test.ts"],
    // Ends what hangs. It is no assertion: on a machine whose cores are busy a test takes many times as long.
    testTimeout: 90_000,
    hookTimeout: 90_000,
    // Most tests wait for etcd more than they compute.
    maxWorkers: 4,
  },
});
