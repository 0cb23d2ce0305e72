import { defineConfig } from "vitest/config";

export default defineConfig({
  test: {
    // As Node does it: a CommonJS module is its default export, whatever it calls "default" itself.
    deps: { interopDefault: false },
    include: ["test/**/*.test.ts"],
    testTimeout: 20_000,
    hookTimeout: 30_000,
    // Most tests wait for etcd more than they compute.
    maxWorkers: 4,
  },
});
