import { mkdirSync, mkdtempSync, renameSync, rmSync, symlinkSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { setImmediate as nextTurn } from "node:timers/promises";
import { pino } from "pino";
import { describe, expect, onTestFinished, test } from "vitest";
import { PassingFailure, WatchedFiles } from "../../src/base/watched-files.ts";
import { FakeClock } from "../fake-clock.ts";

/** Watches the files `names` of a new folder, which contain "1". */
function watch(names: readonly string[] = ["file"]) {
  const folder = mkdtempSync(join(tmpdir(), "watched-files-"));
  onTestFinished(() => rmSync(folder, { recursive: true }));
  const clock = new FakeClock();
  const lines: string[] = [];
  const logger = pino({ level: "info" }, { write: (line) => lines.push(JSON.parse(line).msg) });
  const files = new WatchedFiles(clock, logger);
  onTestFinished(() => files.close());
  const applied: string[] = [];
  const obstacles = { left: 0 };
  const paths = names.map((name) => join(folder, name));
  for (const path of paths) writeFileSync(path, "1");
  files.add({
    ...{ kind: "test", paths, maxBytes: 10 },
    contents: paths.map(() => Buffer.from("1")),
    apply: (contents) => {
      const text = contents.join("+");
      if (text.includes("slow") && obstacles.left-- > 0) throw new PassingFailure("it is slow.");
      if (text.includes("bad")) throw new Error("it is bad.");
      applied.push(text);
    },
  });
  /** As many checks as a version needs. */
  const check = async (): Promise<void> => {
    for (let i = 0; i < 2; i++) await files.check();
  };
  return { folder, clock, files, check, applied, lines, obstacles, path: paths[0] ?? "" };
}

describe("A watched file", () => {
  test("is applied when it is written in place, once per content", async () => {
    const { files, path, applied, check } = watch();
    await check();
    writeFileSync(path, "1");
    await check();
    expect(applied).toEqual([]);
    writeFileSync(path, "2");
    await check();
    await check();
    expect(applied).toEqual(["2"]);
    expect(files.counts()).toEqual([{ kind: "test", applied: 1, refused: 0 }]);
  });

  test("that has changed is applied when all files are settled", async () => {
    const { files, path, applied, clock } = watch();
    await files.settle();
    writeFileSync(path, "2");
    const settled = files.settle();
    let isSettled = false;
    void settled.then(() => {
      isSettled = true;
    });
    while (clock.pendingTimers < 2) await nextTurn();
    expect(isSettled).toBe(false);
    clock.advance(1_000);
    await settled;
    expect(applied).toEqual(["2"]);
  });

  test("is applied once two checks in a row have read the same, so not while it is being written", async () => {
    const { files, path, applied, lines } = watch();
    for (const part of ["", "2", "2 bad", "2", "2 4"]) {
      writeFileSync(path, part);
      await files.check();
    }
    rmSync(path);
    await files.check();
    writeFileSync(path, "2 4");
    await files.check();
    expect(applied).toEqual([]);
    await files.check();
    expect(applied).toEqual(["2 4"]);
    expect(lines).toEqual([
      "can't read a file that was read before; its last version stays in use",
      "reloaded a file that has changed",
    ]);
  });

  test("is applied when another file is renamed to it", async () => {
    const { check, folder, path, applied } = watch();
    writeFileSync(join(folder, "new"), "2");
    renameSync(join(folder, "new"), path);
    await check();
    expect(applied).toEqual(["2"]);
  });

  test("is applied when a symbolic link on its path is replaced, as Kubernetes does it", async () => {
    const { files, folder, applied, check } = watch();
    for (const version of ["v1", "v2"]) {
      mkdirSync(join(folder, version));
      writeFileSync(join(folder, version, "token"), version);
    }
    symlinkSync("v1", join(folder, "..data"));
    symlinkSync("..data/token", join(folder, "token"));
    const paths = [join(folder, "token")];
    const apply = (contents: readonly Buffer[]) => void applied.push(contents.join());
    files.add({ kind: "token", paths, maxBytes: 10, contents: [Buffer.from("v1")], apply });
    await check();
    symlinkSync("v2", join(folder, "..data_tmp"));
    renameSync(join(folder, "..data_tmp"), join(folder, "..data"));
    await check();
    expect(applied).toEqual(["v2"]);
  });

  test("is applied together with the others of its set", async () => {
    const { check, folder, applied } = watch(["cert", "key"]);
    writeFileSync(join(folder, "key"), "2");
    await check();
    expect(applied).toEqual(["1+2"]);
  });

  test("is refused with one log line if it can't be used, and applied once it can be", async () => {
    const { files, path, applied, lines, check } = watch();
    writeFileSync(path, "bad");
    await check();
    await check();
    expect(files.counts()).toEqual([{ kind: "test", applied: 0, refused: 1 }]);
    expect(lines).toEqual(["refused a new version of a file; the version before stays in use"]);
    writeFileSync(path, "3");
    await check();
    expect(applied).toEqual(["3"]);
  });

  test("that is refused for a passing reason is tried again, less and less often, and logged once", async () => {
    const { files, path, clock, applied, lines, obstacles } = watch();
    obstacles.left = 20;
    writeFileSync(path, "slow");
    // An hour. The clock's own checks are the same as these.
    const tries: number[] = [];
    for (let second = 0; second < 3_600 && applied.length === 0; second++) {
      const { left } = obstacles;
      await files.check();
      if (obstacles.left < left) tries.push(second);
      clock.advance(1_000);
    }
    expect(tries.slice(0, 9)).toEqual([1, 3, 7, 15, 31, 63, 127, 255, 511]);
    expect(tries.slice(9)).toEqual([
      811, 1_111, 1_411, 1_711, 2_011, 2_311, 2_611, 2_911, 3_211, 3_511,
    ]);
    expect(lines).toEqual(["refused a new version of a file; the version before stays in use"]);
    expect(files.counts()).toEqual([{ kind: "test", applied: 0, refused: 1 }]);
    obstacles.left = 0;
    clock.advance(300_000);
    // The check that the clock began, and another one.
    for (let i = 0; i < 2; i++) await files.check();
    expect(applied).toEqual(["slow"]);
    await files.check();
    expect(files.counts()).toEqual([{ kind: "test", applied: 1, refused: 1 }]);
  });

  test("that is refused for a passing reason is not tried again once it has changed", async () => {
    const { check, path, clock, applied, obstacles } = watch();
    obstacles.left = 1;
    writeFileSync(path, "slow");
    await check();
    writeFileSync(path, "1");
    await check();
    clock.advance(2_000);
    await check();
    expect([applied, obstacles.left]).toEqual([[], 0]);
    writeFileSync(path, "2");
    await check();
    expect(applied).toEqual(["2"]);
  });

  test.each([
    ["is missing", (path: string) => rmSync(path)],
    ["is larger than its bound", (path: string) => writeFileSync(path, "x".repeat(11))],
  ])("that %s is logged once, and applied when it can be read again", async (_, spoil) => {
    const { files, check, path, applied, lines } = watch();
    await files.check();
    spoil(path);
    for (let i = 0; i < 5; i++) await files.check();
    expect(lines).toEqual([
      "can't read a file that was read before; its last version stays in use",
    ]);
    expect(applied).toEqual([]);
    writeFileSync(path, "2");
    await check();
    expect(applied).toEqual(["2"]);
  });

  test("is checked each second until it is closed", async () => {
    const { files, path, clock, applied } = watch();
    writeFileSync(path, "2");
    while (applied.length === 0) {
      clock.advance(1_000);
      await new Promise((resolve) => setImmediate(resolve));
    }
    expect(applied).toEqual(["2"]);
    files.close();
    expect(clock.pendingTimers).toBe(0);
    writeFileSync(path, "3");
    for (let i = 0; i < 2; i++) await files.check();
    expect(applied).toEqual(["2"]);
  });
});
