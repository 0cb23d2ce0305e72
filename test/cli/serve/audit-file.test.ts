import { mkdtempSync, readFileSync, rmSync, statSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { setImmediate as turn } from "node:timers/promises";
import { pino } from "pino";
import { describe, expect, onTestFinished, test } from "vitest";
import { systemClock } from "../../../src/base/clock.ts";
import { AuditFile, type AuditFileOptions } from "../../../src/cli/serve/audit-file.ts";
import type { AuditEntry } from "../../../src/server/server.ts";
import { identityOf } from "../../policy/identities.ts";

const entry: AuditEntry = {
  identity: identityOf("ann", "dev"),
  address: "127.0.0.1:5",
  traceId: "0af7651916cd43dd8448eb211c80319c",
  method: "watchfanout.v1.WriteService/Put",
  access: { verb: "put", resource: "pods", scope: { key: "a/1" } },
  allowed: true,
  rule: "writer[0]",
  code: "OK",
};

const logged: string[] = [];

function opened(options: Partial<AuditFileOptions> & { readonly path: string }): AuditFile {
  logged.length = 0;
  const logger = pino({}, { write: (line: string) => void logged.push(line) });
  return new AuditFile({
    ...{ level: "writes", clock: systemClock, logger, now: () => 1_900_000_000_000 },
    ...options,
  });
}

function scratch(): string {
  const folder = mkdtempSync(join(tmpdir(), "watch-fanout-"));
  onTestFinished(() => rmSync(folder, { recursive: true }));
  return join(folder, "audit.log");
}

describe("An audit file", () => {
  test("has a line of JSON for each entry, without what is absent", async () => {
    const path = scratch();
    const audit = opened({ path });
    audit.record(entry);
    audit.record({
      ...{ ...entry, access: { verb: "list", resource: "pods", scope: { prefix: "" } } },
      ...{ allowed: false, rule: undefined, traceId: undefined, code: "PERMISSION_DENIED" },
    });
    audit.record({ ...entry, access: undefined, rule: undefined, code: undefined });
    await audit.close();
    const lines = readFileSync(path, "utf8").trimEnd().split("\n");
    const common = {
      time: "2030-03-17T17:46:40.000Z",
      identity: "ann",
      source: "token",
      address: "127.0.0.1:5",
      method: "watchfanout.v1.WriteService/Put",
    };
    const trace = { trace_id: "0af7651916cd43dd8448eb211c80319c" };
    expect(lines.map((line) => JSON.parse(line))).toEqual([
      {
        ...{ ...common, verb: "put", resource: "pods", key: "a/1", decision: "allowed" },
        ...{ rule: "writer[0]", code: "OK", ...trace },
      },
      {
        ...{ ...common, verb: "list", resource: "pods", prefix: "", decision: "denied" },
        code: "PERMISSION_DENIED",
      },
      { ...common, decision: "allowed", ...trace },
    ]);
    expect(audit.lines).toBe(3);
    expect(statSync(path).mode & 0o007).toBe(0);
  });

  test("is continued, not replaced", async () => {
    const path = scratch();
    for (let i = 0; i < 2; i++) {
      const audit = opened({ path });
      audit.record(entry);
      await audit.close();
    }
    expect(readFileSync(path, "utf8").trimEnd().split("\n")).toHaveLength(2);
  });

  test("has keys and names of a bounded length", async () => {
    const path = scratch();
    const audit = opened({ path });
    const key = "k".repeat(100_000);
    audit.record({ ...entry, access: { verb: "put", resource: key, scope: { key } } });
    await audit.close();
    expect(readFileSync(path, "utf8").length).toBeLessThan(3_000);
  });

  test("that takes nothing has a bounded number of lines in memory, and counts those that it drops", async () => {
    // Every write to this device fails because there is no space left.
    const audit = opened({ path: "/dev/full", maxUnwrittenBytes: 2_000 });
    for (let i = 0; i < 100; i++) audit.record(entry);
    while (audit.failures === 0) await turn();
    expect(audit.dropped).toBeGreaterThan(80);
    expect(audit.lines + audit.dropped).toBe(100);
    expect(logged.some((line) => line.includes("ENOSPC"))).toBe(true);
    await audit.close();
  });

  test("that can't be opened is an error", () => {
    expect(() => opened({ path: "/gone/audit.log" })).toThrow("ENOENT");
  });

  test("records nothing more when it is closed", async () => {
    const path = scratch();
    const audit = opened({ path });
    await audit.close();
    await audit.close();
    audit.record(entry);
    expect(audit.lines).toBe(0);
  });
});
