import { spawn } from "node:child_process";
import {
  chmodSync,
  copyFileSync,
  existsSync,
  linkSync,
  mkdirSync,
  readFileSync,
  rmSync,
  symlinkSync,
  truncateSync,
  writeFileSync,
} from "node:fs";
import { join } from "node:path";
import { getuid } from "node:process";
import { DatabaseSync } from "node:sqlite";
import { fileURLToPath } from "node:url";
import { describe, expect, onTestFinished, test } from "vitest";
import { SqliteJournal } from "../../../src/storage/journal/sqlite-journal.ts";
import { FakeClock } from "../../fake-clock.ts";
import { JournalModel } from "./model.ts";
import { openJournal, put, testFolder, write } from "./opened.ts";

/** The message that an opening is refused with. */
async function refusal(file: string): Promise<string> {
  const journal = await SqliteJournal.open(file, { clock: new FakeClock() }).catch(
    (error: unknown) => error,
  );
  if (journal instanceof SqliteJournal) {
    await journal.close();
    throw new Error("It was opened.");
  }
  return (journal as Error).message;
}

/** A data file with one object, which is closed. */
async function dataFile(): Promise<string> {
  const file = join(testFolder(), "data");
  const journal = await openJournal({ file });
  await write(journal, new JournalModel(), put("a"));
  await journal.close();
  return file;
}

/** Changes a database behind the journal's back. */
function change(file: string, sql: string): void {
  const db = new DatabaseSync(file);
  db.exec(sql);
  db.close();
}

describe("A data file", () => {
  test("that is no database is refused, and left as it is", async () => {
    const file = join(testFolder(), "data");
    writeFileSync(file, "text ".repeat(2_000));
    expect(await refusal(file)).toBe(
      `${file} is not a data file of watch-fanout, or its beginning is damaged. Name another file, or restore a backup.`,
    );
    expect(readFileSync(file, "utf8")).toBe("text ".repeat(2_000));
  });

  test("of another program is refused, and left as it is", async () => {
    const file = join(testFolder(), "data");
    change(file, "CREATE TABLE t (a); INSERT INTO t VALUES (1)");
    const before = readFileSync(file);
    expect(await refusal(file)).toBe(
      `${file} is a database of another program, and was left as it is. Name another file.`,
    );
    expect(readFileSync(file)).toEqual(before);
    expect(existsSync(`${file}-wal`)).toBe(false);
  });

  test("of a newer format is refused, with both formats", async () => {
    const file = await dataFile();
    change(file, "PRAGMA user_version = 2");
    expect(await refusal(file)).toBe(
      `The data file ${file} has format 2, and this version of watch-fanout reads formats up to 1. ` +
        "Start the version that wrote it, or a newer one.",
    );
  });

  test("of a format that never existed is damaged", async () => {
    const file = await dataFile();
    change(file, "PRAGMA user_version = 0");
    expect(await refusal(file)).toContain("is damaged: its format is 0");
  });

  test("that is empty is damaged, as one never is", async () => {
    const file = await dataFile();
    truncateSync(file, 0);
    expect(await refusal(file)).toBe(
      `The data file ${file} is damaged: it is empty, which a data file never is. Stop the service and restore a backup.`,
    );
  });

  test.each([
    ["rows of its table keys are missing", "DELETE FROM keys"],
    ["its newest changes are missing", "DELETE FROM log"],
    ["rows of its table leases are missing", "INSERT INTO leases VALUES (1, '{}', 1)"],
    ["rows of its table requests are missing", "INSERT INTO requests VALUES (1, '{}', 1)"],
    ["its row of numbers is missing or wrong", "UPDATE numbers SET body = replace(body, '2', '3')"],
    ["its row of numbers is missing or wrong", "DELETE FROM numbers"],
    ["its tables are not those of its format", "DROP TABLE keys"],
  ])("is damaged if %s", async (what, sql) => {
    const file = await dataFile();
    change(file, sql);
    expect(await refusal(file)).toContain(`The data file ${file} is damaged: ${what}`);
  });

  test("that is missing beside its write-ahead log is not created again", async () => {
    const file = join(testFolder(), "data");
    writeFileSync(`${file}-wal`, "changes");
    expect(await refusal(file)).toContain(`${file}-wal has changes of a data file that is missing`);
    expect(readFileSync(`${file}-wal`, "utf8")).toBe("changes");
    expect(existsSync(file)).toBe(false);
  });

  test("in a folder whose folder is missing is refused", async () => {
    const file = join(testFolder(), "one", "two", "data");
    expect(await refusal(file)).toBe(
      `The folder ${join(file, "..")} can't be created, as its own folder does not exist. Create it for the data file ${file}.`,
    );
  });

  test("that is a folder is refused", async () => {
    const folder = testFolder();
    expect(await refusal(folder)).toBe(`${folder} is not a file. Name a file for the data.`);
  });

  // The superuser may write everything.
  test.skipIf(getuid?.() === 0).each([
    ["the file is read-only", (file: string) => chmodSync(file, 0o400)],
    ["the file can't be read", (file: string) => chmodSync(file, 0o200)],
    ["its folder is read-only", (file: string) => chmodSync(join(file, ".."), 0o500)],
  ])("is refused if %s", async (_, limit) => {
    const file = await dataFile();
    limit(file);
    onTestFinished(() => chmodSync(join(file, ".."), 0o700));
    expect(await refusal(file)).toContain(
      `The data file ${file} can't be opened: this user must be able to read and write the file and its folder`,
    );
  });
});

describe("An open data file", () => {
  test("is refused to a second journal of the process, which names the process", async () => {
    const file = join(testFolder(), "data");
    const journal = await openJournal({ file });
    const message =
      `The data file ${file} is in use by this process. End that process first, or name another file: ` +
      "a data file has one owner.";
    expect(await refusal(file)).toBe(message);
    // The lock is still there after the first refusal.
    expect(await refusal(file)).toBe(message);
    await write(journal, new JournalModel(), put("a"));
    expect(journal.revision).toBe(2);
  });

  test("is refused on the path of a symbolic or a hard link", async () => {
    const folder = testFolder();
    const file = join(folder, "data");
    await openJournal({ file });
    const [symbolic, hard] = [join(folder, "symbolic"), join(folder, "hard")];
    symlinkSync(file, symbolic);
    expect(await refusal(symbolic)).toContain(`${file} is in use by this process`);
    linkSync(file, hard);
    expect(await refusal(hard)).toContain(`The data file ${hard} has 2 hard links`);
    rmSync(hard);
  });

  test("is refused while another process has it, whose number is named, and free after kill -9", async () => {
    const file = await dataFile();
    const child = spawn(process.execPath, [
      "--disable-warning=ExperimentalWarning",
      fileURLToPath(new URL("./owner.ts", import.meta.url)),
      file,
    ]);
    onTestFinished(() => void child.kill("SIGKILL"));
    await new Promise((resolve) => child.stdout.once("data", resolve));
    expect(await refusal(file)).toContain(`is in use by process ${child.pid}.`);
    const ended = new Promise((resolve) => child.once("exit", resolve));
    child.kill("SIGKILL");
    await ended;
    expect((await openJournal({ file })).revision).toBe(2);
  });
});

test("A creation that was interrupted after its last step is completed", async () => {
  const file = await dataFile();
  linkSync(file, `${file}.new-1`);
  expect((await openJournal({ file })).revision).toBe(2);
  expect(existsSync(`${file}.new-1`)).toBe(false);
});

test("A data file that was copied while it was closed is a data file", async () => {
  const file = await dataFile();
  const copy = join(file, "..", "folder", "copy");
  mkdirSync(join(copy, ".."));
  copyFileSync(file, copy);
  expect((await openJournal({ file: copy })).revision).toBe(2);
});
