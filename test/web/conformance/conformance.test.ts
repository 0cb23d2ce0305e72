import { spawn } from "node:child_process";
import { once } from "node:events";
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { expect, onTestFinished, test } from "vitest";

/*
 * The Connect project's conformance suite against the door of this service (`server.ts`). It needs Go, and takes a minute:
 * `CONFORMANCE=1 npx vitest run test/web/conformance`.
 */

const suite = "connectrpc.com/conformance";
const version = "v1.0.7";

/**
 * What may fail on a busy machine: the client's own deadline passes between the headers and the body of the response with
 * DEADLINE_EXCEEDED, which arrive one after the other, and the suite finds a body without JSON.
 */
const knownToBeFlaky = "Timeouts/HTTPVersion:2/Protocol:PROTOCOL_CONNECT/**/unary";

async function run(command: string, args: readonly string[], env = {}): Promise<string> {
  const child = spawn(command, args, { env: { ...process.env, ...env } });
  let output = "";
  for (const stream of [child.stdout, child.stderr]) {
    stream.setEncoding("utf8").on("data", (text: string) => {
      output += text;
    });
  }
  await once(child, "close");
  return output;
}

test.skipIf(process.env["CONFORMANCE"] === undefined)(
  "Connect and gRPC-Web conform to the suite of the Connect project",
  async () => {
    const folder = mkdtempSync(join(tmpdir(), "conformance-"));
    onTestFinished(() => rmSync(folder, { recursive: true }));
    await run("go", ["install", `${suite}/cmd/connectconformance@${version}`], { GOBIN: folder });
    const module = await run("go", ["mod", "download", "-json", `${suite}@${version}`]);
    const { Dir: source } = JSON.parse(module.slice(module.indexOf("{"))) as { Dir: string };
    const descriptors = join(folder, "descriptors.binpb");
    await run("buf", ["build", join(source, "proto"), "-o", descriptors]);
    const output = await run(join(folder, "connectconformance"), [
      ...["--conf", join(import.meta.dirname, "config.yaml"), "--mode", "server"],
      ...["--max-servers", "1", "--parallel", "4"],
      ...["--known-flaky", knownToBeFlaky],
      ...["--", process.execPath, "--disable-warning=ExperimentalWarning"],
      ...[join(import.meta.dirname, "server.ts"), descriptors],
    ]);
    expect(output).toMatch(/^Total cases: 1408$/m);
    expect(output).not.toMatch(/^FAILED/m);
  },
  600_000,
);
