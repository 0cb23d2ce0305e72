import { execFile } from "node:child_process";
import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { promisify } from "node:util";
import { describe, it, onTestFinished } from "vitest";
import { Example } from "../examples/example.ts";
import { testProxyless } from "../xds/proxyless.ts";
import { buildTimeoutMs } from "./documented.ts";

const run = promisify(execFile);

const hasGo = await run("go", ["version"]).then(
  () => true,
  () => {
    process.stderr.write('Skipped xDS in Go, since "go version" fails.\n');
    return false;
  },
);

describe.runIf(hasGo)("A client of grpc-go by xDS", () => {
  it("calls the instances that there are, without a failed call", {
    timeout: 2 * buildTimeoutMs,
  }, async () => {
    const folder = await mkdtemp(join(tmpdir(), "watch-fanout-xds-go-"));
    onTestFinished(() => rm(folder, { recursive: true, force: true }));
    const program = join(folder, "client");
    await run("go", ["build", "-o", program, "."], {
      ...{ cwd: "examples/xds/go", timeout: buildTimeoutMs },
    });
    await testProxyless(
      (bootstrap) => new Example(["env", `GRPC_XDS_BOOTSTRAP=${bootstrap}`, program]),
    );
  });
});
