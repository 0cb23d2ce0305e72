import { execFileSync } from "node:child_process";
import {
  closeSync,
  constants,
  existsSync,
  mkdirSync,
  mkdtempSync,
  openSync,
  readFileSync,
  readSync,
  renameSync,
  rmSync,
  statSync,
  symlinkSync,
} from "node:fs";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { setImmediate as turn } from "node:timers/promises";
import { pino } from "pino";
import { describe, expect, onTestFinished, test } from "vitest";
import { systemClock } from "../../../src/base/clock.ts";
import { AuditFile, type AuditFileOptions } from "../../../src/cli/serve/audit-file.ts";
import { anonymous } from "../../../src/identity/identity.ts";
import type { AuditEntry } from "../../../src/server/server.ts";
import { identityOf } from "../../policy/identities.ts";
import { ManualTimers } from "../../server/limits/manual-timers.ts";

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

/** The lines of a file; none if it does not exist. */
function linesOf(path: string): Record<string, unknown>[] {
  if (!existsSync(path)) return [];
  const lines = readFileSync(path, "utf8").split("\n").slice(0, -1);
  return lines.map((line) => JSON.parse(line));
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

  test("that takes nothing keeps the lines of others while one caller floods it, and says later what is missing", async () => {
    const path = scratch();
    symlinkSync("/dev/full", path);
    const clock = new ManualTimers();
    const audit = opened({ path, clock, maxUnwrittenBytes: 10_000 });
    for (let i = 0; i < 1_000; i++) {
      audit.record({ ...entry, identity: identityOf("mallory") });
      // An attempt to hide behind other callers: without a credential, by host.
      audit.record({ ...entry, identity: anonymous, address: `192.0.2.1:${i}` });
    }
    const flooded = audit.dropped;
    expect(flooded).toBeGreaterThan(1_900);
    for (const name of ["ann", "bob"]) audit.record({ ...entry, identity: identityOf(name) });
    audit.record({ ...entry, identity: anonymous, address: "192.0.2.2:1" });
    expect(audit.dropped).toBe(flooded);
    // Another disk takes what the first one has not.
    rmSync(path);
    clock.advance(1_000);
    const kept = 2_003 - flooded;
    while (linesOf(path).length < kept + 2) await turn();
    expect([audit.lines, audit.dropped]).toEqual([kept + 2, flooded]);
    const lines = linesOf(path);
    const names = new Set(lines.slice(0, kept).map(({ identity }) => identity));
    expect(names).toEqual(new Set(["mallory", "anonymous", "ann", "bob"]));
    const missing = Object.fromEntries(
      lines.slice(kept).map(({ caller, dropped }) => [caller, dropped]),
    );
    expect(Object.keys(missing).sort()).toEqual(["host 192.0.2.1", "token mallory"]);
    expect(Number(missing["token mallory"]) + Number(missing["host 192.0.2.1"])).toBe(flooded);
    await audit.close();
  });

  test("that takes nothing keeps the lines of others while one host floods it from many IPv6 addresses", async () => {
    const audit = opened({
      path: "/dev/full",
      clock: new ManualTimers(),
      maxUnwrittenBytes: 10_000,
    });
    for (let i = 0; i < 100; i++) {
      const address = `[2001:db8:0:1::${i.toString(16)}]:${i}`;
      audit.record({ ...entry, identity: anonymous, address });
    }
    const flooded = audit.dropped;
    expect(flooded).toBeGreaterThan(90);
    for (const address of ["[2001:db8:0:2::1]:1", "192.0.2.1:1", "unix:7"]) {
      audit.record({ ...entry, identity: anonymous, address });
    }
    expect(audit.dropped).toBe(flooded);
    await audit.close();
  });

  test("that has failed is written to again within a second, without a further line, and logs that once", async () => {
    // A FIFO refuses lines as long as it has no reader.
    const path = scratch();
    execFileSync("mkfifo", [path]);
    const open = (): number => openSync(path, constants.O_RDONLY | constants.O_NONBLOCK);
    const first = open();
    const clock = new ManualTimers();
    const audit = opened({ path, clock });
    closeSync(first);
    audit.record(entry);
    while (audit.failures < 3) {
      clock.advance(1_000);
      await turn();
    }
    expect(logged).toHaveLength(1);
    expect(logged[0]).toContain("EPIPE");
    const second = open();
    const text = Buffer.alloc(10_000);
    let read = 0;
    while (read === 0) {
      clock.advance(1_000);
      await turn();
      try {
        read = readSync(second, text);
      } catch (error) {
        // The reader may be first.
        expect(error).toMatchObject({ code: "EAGAIN" });
      }
    }
    expect(JSON.parse(text.toString("utf8", 0, read))).toMatchObject({ identity: "ann" });
    expect([audit.lines, audit.dropped]).toEqual([1, 0]);
    await audit.close();
    closeSync(second);
  });

  test("that is deleted with its folder keeps lines in memory, counts each failure, and has them once it can be opened", async () => {
    const path = scratch();
    const clock = new ManualTimers();
    const audit = opened({ path, clock });
    rmSync(dirname(path), { recursive: true });
    while (audit.failures < 3) {
      clock.advance(1_000);
      await turn();
    }
    expect(logged).toHaveLength(1);
    expect(logged[0]).toContain("its lines wait in memory");
    for (const code of ["OK", "ABORTED", "NOT_FOUND"]) audit.record({ ...entry, code });
    const { failures } = audit;
    while (audit.failures === failures) {
      clock.advance(1_000);
      await turn();
    }
    expect(logged).toHaveLength(1);
    mkdirSync(dirname(path));
    while (linesOf(path).length < 3) {
      clock.advance(1_000);
      await turn();
    }
    expect(linesOf(path).map(({ code }) => code)).toEqual(["OK", "ABORTED", "NOT_FOUND"]);
    expect([audit.lines, audit.dropped]).toEqual([3, 0]);
    await audit.close();
  });

  test("that was moved away or deleted is continued in a new one, within a second", async () => {
    const path = scratch();
    const clock = new ManualTimers();
    const audit = opened({ path, clock });
    const write = (code: string): void => audit.record({ ...entry, code });
    write("first");
    while (linesOf(path).length < 1) await turn();
    renameSync(path, `${path}.1`);
    write("second");
    while (linesOf(`${path}.1`).length < 2) await turn();
    clock.advance(1_000);
    while (!existsSync(path)) await turn();
    while (!logged.some((line) => line.includes("in a new file"))) await turn();
    write("third");
    while (linesOf(path).length < 1) await turn();
    expect([`${path}.1`, path].map((file) => linesOf(file).map(({ code }) => code))).toEqual([
      ["first", "second"],
      ["third"],
    ]);
    expect(statSync(path).mode & 0o007).toBe(0);
    rmSync(path);
    while (!existsSync(path)) {
      clock.advance(1_000);
      await turn();
    }
    await audit.close();
    while (clock.pendingTimers > 0) await turn();
  });

  test("that can't be opened again is used further while it exists, and tried again", async () => {
    const path = scratch();
    const clock = new ManualTimers();
    const audit = opened({ path, clock });
    renameSync(path, `${path}.1`);
    mkdirSync(path);
    while (logged.length === 0) {
      clock.advance(1_000);
      await turn();
    }
    expect(logged[0]).toContain("EISDIR");
    expect(logged[0]).toContain("the file before is used");
    audit.record(entry);
    while (linesOf(`${path}.1`).length < 1) await turn();
    while (audit.failures < 3) {
      clock.advance(1_000);
      await turn();
    }
    expect(logged).toHaveLength(1);
    rmSync(path, { recursive: true });
    while (!existsSync(path)) {
      clock.advance(1_000);
      await turn();
    }
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
