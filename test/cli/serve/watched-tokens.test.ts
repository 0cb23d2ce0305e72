import { mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { pino } from "pino";
import { expect, onTestFinished, test } from "vitest";
import { WatchedFiles } from "../../../src/base/watched-files.ts";
import { watchedTokens } from "../../../src/cli/serve/identity.ts";
import { tokenDigest } from "../../../src/identity/token-file.ts";
import { FakeClock } from "../../fake-clock.ts";

test("A token file that is written in place revokes what it lacks at the end, and nothing while it is empty or incomplete", async () => {
  const folder = mkdtempSync(join(tmpdir(), "watched-tokens-"));
  onTestFinished(() => rmSync(folder, { recursive: true }));
  const path = join(folder, "tokens");
  const [ann, bob] = ["ann", "bob"].map((name) => `sha256:${tokenDigest(name)} ${name}\n`);
  writeFileSync(path, `${ann}${bob}`);
  const lines: { problem?: string }[] = [];
  const logger = pino({}, { write: (line) => lines.push(JSON.parse(line)) });
  const files = new WatchedFiles(new FakeClock(), logger);
  onTestFinished(() => files.close());
  const revoked: string[] = [];
  const onRevoked = ({ name }: { name: string }): void => void revoked.push(name);
  const content = readFileSync(path);
  const tokens = watchedTokens("token-file", { path, content }, files, onRevoked);
  // Without a token for as long as it takes, also with comments only.
  for (const empty of ["", "# alice and bob\n\n"]) {
    writeFileSync(path, empty);
    for (let i = 0; i < 3; i++) await files.check();
  }
  expect(files.counts()).toEqual([{ kind: "token-file", applied: 0, refused: 2 }]);
  expect(lines[0]?.problem).toContain("To revoke all tokens, leave one that no client has");
  // Cut at a line break for less than the interval of the checks.
  writeFileSync(path, `${ann}`);
  await files.check();
  writeFileSync(path, `${ann}${bob}`);
  for (let i = 0; i < 3; i++) await files.check();
  expect(revoked).toEqual([]);
  expect(tokens.find("bob")).toBeDefined();
  writeFileSync(path, `${ann}`);
  await files.check();
  await files.check();
  expect(revoked).toEqual(["bob"]);
  expect(tokens.find("bob")).toBeUndefined();
  expect(tokens.find("ann")).toBeDefined();
});
