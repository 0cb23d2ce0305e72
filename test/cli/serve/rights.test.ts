import { mkdtempSync, readFileSync, renameSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { Metadata } from "@grpc/grpc-js";
import { pino } from "pino";
import { describe, expect, onTestFinished, test } from "vitest";
import { systemClock } from "../../../src/base/clock.ts";
import { startService } from "../../../src/cli/serve/main-process.ts";
import { loadConfig } from "../../../src/config/load-config.ts";
import { tokenDigest } from "../../../src/identity/token-file.ts";
import { TestClient } from "../../server/test-client.ts";
import { portOf } from "./port-of.ts";

const policyOf = (prefix: string): string => `
roles:
  - name: app
    rules: [{ resources: [default], prefixes: ["${prefix}"], verbs: ["*"] }]
bindings: [{ role: app, subjects: [ann] }]
`;

/** Replaces a file as Kubernetes and editors do: at once. */
function replace(path: string, content: string): void {
  writeFileSync(`${path}.new`, content);
  renameSync(`${path}.new`, path);
}

/** Lines of a log, and a wait for one. */
class Log {
  readonly lines: string[] = [];
  readonly #waiting: (() => void)[] = [];

  write(line: string): void {
    this.lines.push(line);
    for (const wake of this.#waiting.splice(0)) wake();
  }

  async until(text: string): Promise<string> {
    for (;;) {
      const found = this.lines.find((line) => line.includes(text));
      if (found !== undefined) return found;
      await new Promise<void>((resolve) => this.#waiting.push(resolve));
    }
  }
}

async function serving() {
  const folder = mkdtempSync(join(tmpdir(), "watch-fanout-"));
  onTestFinished(() => rmSync(folder, { recursive: true }));
  const [policy, tokens, audit] = ["policy.yaml", "tokens", "audit.log"].map((name) =>
    join(folder, name),
  ) as [string, string, string];
  writeFileSync(policy, policyOf("a/"));
  writeFileSync(tokens, `sha256:${tokenDigest("secret")} ann\n`);
  const free = ["127.0.0.1:0"];
  const config = loadConfig({
    flags: {
      ...{ listen: free, admin: free, "audit-log": [audit] },
      ...{ policy: [policy], "token-file": [tokens], data: [":memory:"] },
    },
    env: {},
    readFile: (path) => readFileSync(path),
  });
  const log = new Log();
  const service = await startService(config, systemClock, pino({ level: "info" }, log));
  const metadata = new Metadata();
  metadata.set("authorization", "Bearer secret");
  const client = new TestClient(portOf(service)).withMetadata(metadata);
  onTestFinished(async () => {
    client.close();
    await service.stop();
  });
  const metrics = async (): Promise<string> =>
    (await fetch(`http://127.0.0.1:${service.admin.port}/metrics`)).text();
  return { policy, audit, log, client, service, metrics };
}

const resource = "default";

describe("A policy file", () => {
  test("that changes ends the streams that lose their right, and no others", async () => {
    const { policy, client, log, metrics } = await serving();
    const [wide, narrow] = ["a/", "a/b/"].map((prefix) => client.watch({ resource, prefix }));
    await wide?.next();
    await narrow?.next();
    replace(policy, policyOf("a/b/"));
    expect(await wide?.ended).toMatchObject({
      reason: "PERMISSION_DENIED",
      metadata: { resume_revision: expect.any(String), prefix: "a/" },
    });
    await client.put({ resource, key: "a/b/1" });
    expect((await narrow?.next())?.events).toHaveLength(1);
    await log.until("reloaded a file that has changed");
    const rendered = await metrics();
    expect(rendered).toContain('watch_fanout_file_reloads_total{file="policy",result="applied"} 1');
    expect(rendered).toContain("watch_fanout_revoked_streams_total 1");
    narrow?.cancel();
  });

  test("whose new version is broken stays in use, with one line in the log", async () => {
    const { policy, client, log, metrics } = await serving();
    const watch = client.watch({ resource, prefix: "a/" });
    await watch.next();
    replace(policy, policyOf("a/").replace('["*"]', "[all]"));
    const line = await log.until("refused a new version of a file");
    expect(JSON.parse(line)).toMatchObject({
      kind: "policy",
      problem: `${policy}:4: roles[0].rules[0].verbs[0]: "all" is not get, list, watch, put, delete or *.`,
    });
    await client.put({ resource, key: "a/1" });
    expect((await watch.next()).events).toHaveLength(1);
    expect(await metrics()).toContain(
      'watch_fanout_file_reloads_total{file="policy",result="refused"} 1',
    );
    replace(policy, policyOf("b/"));
    expect((await watch.ended).reason).toBe("PERMISSION_DENIED");
    expect(log.lines.filter((text) => text.includes("refused a new version"))).toHaveLength(1);
  });

  test("with rules for resources that are not served is used, with a warning", async () => {
    const { policy, log } = await serving();
    replace(policy, policyOf("a/").replace("[default]", "[default, defualt, others]"));
    expect(JSON.parse(await log.until("resources that are not served"))).toMatchObject({
      resources: "defualt (did you mean default?), others",
    });
  });
});

test("The audit log has every write and every denied call when the service has stopped.", async () => {
  const { client, service, audit, metrics } = await serving();
  await client.put({ resource, key: "a/1", value: Buffer.from("a value") });
  await client.put({ resource, key: "b/1" }).catch(() => {});
  await client.get({ resource, key: "a/1" });
  expect(await metrics()).toContain("watch_fanout_audit_lines_total 2");
  await service.stop();
  const lines = readFileSync(audit, "utf8").trimEnd().split("\n");
  expect(lines.map((line) => JSON.parse(line))).toMatchObject([
    { identity: "ann", verb: "put", key: "a/1", decision: "allowed", rule: "app[0]", code: "OK" },
    { identity: "ann", verb: "put", key: "b/1", decision: "denied", code: "PERMISSION_DENIED" },
  ]);
});

test("A service whose audit log can't be opened does not start, and says why.", async () => {
  const free = ["127.0.0.1:0"];
  const config = loadConfig({
    flags: { listen: free, admin: free, data: [":memory:"], "audit-log": ["/gone/audit.log"] },
    env: {},
    readFile: (path) => readFileSync(path),
  });
  await expect(startService(config, systemClock, pino({ level: "silent" }))).rejects.toThrow(
    /^--audit-log: can't write to "\/gone\/audit.log": ENOENT/,
  );
});
