import { spawnSync } from "node:child_process";
import { existsSync, readdirSync, readFileSync, rmSync, statSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { describe, expect, test } from "vitest";
import { restoreBackup, type SqliteJournal } from "../../../src/storage/journal/sqlite-journal.ts";
import { JournalModel, seen, seenChanges } from "./model.ts";
import { noBounds, openJournal, put, state, testFolder, write } from "./opened.ts";

/** A journal of some MiB, in `folder/data`. */
async function filled(folder: string): Promise<{ journal: SqliteJournal; model: JournalModel }> {
  const journal = await openJournal({ file: join(folder, "data") });
  const model = new JournalModel();
  for (let i = 0; i < 6; i++) {
    const writes = Array.from({ length: 500 }, (_, n) => put(`a${(i * 500 + n) % 1_200}`, 1_000));
    await write(journal, model, ...writes);
  }
  return { journal, model };
}

describe("A backup", () => {
  test("has the journal at one revision, also while it is written to, and is one file for its owner", async () => {
    const folder = testFolder();
    const { journal, model } = await filled(folder);
    const copy = join(folder, "copy");
    const before = model.revision;
    let isDone = false;
    const backup = journal.backup(copy).finally(() => {
      isDone = true;
    });
    for (let i = 0; !isDone; i++) await write(journal, model, put(`b${i}`, 100));
    await backup;
    await write(journal, model, put("after"));
    expect(statSync(copy).mode & 0o777).toBe(0o600);
    expect(readdirSync(folder).sort()).toEqual(["copy", "data", "data-wal"]);
    const opened = await openJournal({ file: copy });
    expect(opened.revision).toBeGreaterThanOrEqual(before);
    expect(opened.revision).toBeLessThan(model.revision);
    expect(opened.historyId).toBe(journal.historyId);
    const wanted = [...model.stateAt(opened.revision).values()];
    expect((await state(opened)).map(seen)).toEqual(wanted.map(seen));
    const all = { ...noBounds, after: 1, upTo: opened.revision };
    expect(seenChanges(await opened.changesAfter(all))).toEqual(
      seenChanges(model.changesAfter(all)),
    );
  });

  test("does not replace a file, and needs a folder", async () => {
    const folder = testFolder();
    const journal = await openJournal({ file: join(folder, "data") });
    const copy = join(folder, "copy");
    writeFileSync(copy, "mine");
    await expect(journal.backup(copy)).rejects.toThrow(
      `${copy} exists, and was left as it is. Name another file.`,
    );
    expect(readFileSync(copy, "utf8")).toBe("mine");
    const lost = join(folder, "missing", "copy");
    await expect(journal.backup(lost)).rejects.toThrow("does not exist. Create it");
  });

  test("that is cancelled leaves nothing, and the next one is complete", async () => {
    const folder = testFolder();
    const { journal, model } = await filled(folder);
    const copy = join(folder, "copy");
    for (const turns of [0, 1, 3]) {
      const ending = new AbortController();
      const backup = journal.backup(copy, ending.signal);
      for (let i = 0; i < turns; i++) await write(journal, model, put("b", "x"));
      ending.abort(new Error("enough"));
      const ended = await backup.then(
        () => "complete",
        (error: Error) => error.message,
      );
      // On a slow disk it may have ended before a commit did.
      if (turns > 0 && ended === "complete") {
        const copied = await openJournal({ file: copy });
        expect(copied.revision).toBeGreaterThan(0);
        await copied.close();
        rmSync(copy);
        continue;
      }
      expect(ended).toBe("enough");
      expect(readdirSync(folder).sort()).toEqual(["data", "data-wal"]);
    }
    await expect(journal.backup(copy, AbortSignal.abort(new Error("no")))).rejects.toThrow("no");
    await journal.backup(copy);
    expect((await openJournal({ file: copy })).revision).toBe(model.revision);
  });

  test("is one at a time, and a closed journal has ended it", async () => {
    const folder = testFolder();
    const { journal } = await filled(folder);
    const first = journal.backup(join(folder, "copy"));
    first.catch(() => {});
    await expect(journal.backup(join(folder, "other"))).rejects.toThrow(
      "Another backup of the data file is in progress. Wait until it has ended.",
    );
    await journal.close();
    await expect(first).rejects.toThrow("The backup was cancelled.");
    expect(readdirSync(folder)).toEqual(["data"]);
  });

  test("without room leaves nothing, and the journal continues", async () => {
    const folder = testFolder();
    const { journal, model } = await filled(folder);
    const small = join(folder, "small");
    if (!mountSmall(small)) return;
    try {
      const backup = journal.backup(join(small, "copy"));
      await expect(backup).rejects.toThrow("There is no room on the disk for");
      expect(readdirSync(small)).toEqual([]);
      await write(journal, model, put("b", "x"));
    } finally {
      spawnSync("umount", [small]);
    }
  });
});

/** Mounts a disk of 1 MiB there. Returns whether this user may. */
function mountSmall(folder: string): boolean {
  spawnSync("mkdir", [folder]);
  return spawnSync("mount", ["-t", "tmpfs", "-o", "size=1m", "tmpfs", folder]).status === 0;
}

describe("A restore", () => {
  test("makes a data file with everything, and another history", async () => {
    const folder = testFolder();
    const { journal, model } = await filled(folder);
    await journal.commit([
      { type: "lease", lease: { id: 7n, ttlSeconds: 5, isGranted: true } },
      { type: "request", request: { id: "r", fingerprint: "f", revision: 7, before: 6 } },
    ]);
    const [copy, restored] = [join(folder, "copy"), join(folder, "restored")];
    await journal.backup(copy);
    await restoreBackup(copy, restored);
    expect(statSync(restored).mode & 0o777).toBe(0o600);
    const opened = await openJournal({ file: restored });
    expect(opened.historyId).not.toBe(journal.historyId);
    expect(opened.revision).toBe(model.revision);
    expect((await state(opened)).map(seen)).toEqual(
      [...model.stateAt(model.revision).values()].map(seen),
    );
    expect(await opened.leases()).toEqual(await journal.leases());
    expect(await opened.requests()).toEqual(await journal.requests());
  });

  test("refuses what exists, what is missing, and what is no backup", async () => {
    const folder = testFolder();
    const { journal } = await filled(folder);
    const [file, copy, to] = [join(folder, "data"), join(folder, "copy"), join(folder, "to")];
    await journal.backup(copy);
    await expect(restoreBackup(copy, file)).rejects.toThrow(
      `${file} exists, and was left as it is`,
    );
    await expect(restoreBackup(join(folder, "missing"), to)).rejects.toThrow("does not exist");
    await expect(restoreBackup(file, to)).rejects.toThrow("is the data file of a service");
    const text = join(folder, "text");
    writeFileSync(text, "text ".repeat(2_000));
    await expect(restoreBackup(text, to)).rejects.toThrow(
      `${text} is not a data file of watch-fanout, or its beginning is damaged`,
    );
    writeFileSync(text, "");
    await expect(restoreBackup(text, to)).rejects.toThrow(
      `${text} is a database of another program`,
    );
    writeFileSync(`${to}-wal`, "other");
    await expect(restoreBackup(copy, to)).rejects.toThrow("has changes of another data file");
    expect(existsSync(to)).toBe(false);
    expect(readdirSync(folder).sort()).toEqual(["copy", "data", "data-wal", "text", "to-wal"]);
  });

  test("refuses a backup with one wrong byte of a value, and one that is cut off", async () => {
    const folder = testFolder();
    const { journal } = await filled(folder);
    const [copy, damaged] = [join(folder, "copy"), join(folder, "damaged")];
    await journal.backup(copy);
    const bytes = readFileSync(copy);
    const at = bytes.indexOf("xxxxxxxx") + 500;
    bytes[at] = (bytes[at] as number) ^ 1;
    writeFileSync(damaged, bytes);
    const restore = restoreBackup(damaged, join(folder, "to"));
    await expect(restore).rejects.toThrow(`${damaged} is damaged: the checksum of a record`);
    writeFileSync(damaged, readFileSync(copy).subarray(0, bytes.length / 2));
    await expect(restoreBackup(damaged, join(folder, "to"))).rejects.toThrow(
      `${damaged} is damaged`,
    );
    expect(existsSync(join(folder, "to"))).toBe(false);
  });
});
