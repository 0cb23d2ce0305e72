import { mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { systemClock } from "../../src/base/clock.ts";
import { AuditFile } from "../../src/cli/serve/audit-file.ts";
import { verbs } from "../../src/policy/access.ts";
import { silent } from "../cacher/cached-store.ts";
import { run } from "../cli/client/client-terminal.ts";
import { identityOf } from "../policy/identities.ts";

const page = readFileSync(new URL("../../docs/policy.md", import.meta.url), "utf8");

function blocks(language: string): string[] {
  const found = page.matchAll(new RegExp(`^\`\`\`${language}\\n(.*?)^\`\`\`$`, "gms"));
  return [...found].map(([, content = ""]) => content);
}

/** The commands of the page, each with what it prints. */
const commands = blocks("console").flatMap((block) =>
  block
    .split(/^\$ watch-fanout /m)
    .slice(1)
    .map((text) => {
      const [command = "", ...output] = text.split("\n");
      return { command, output: output.join("\n") };
    }),
);

const [example = ""] = blocks("yaml");

describe("docs/policy.md", () => {
  const folder = mkdtempSync(join(tmpdir(), "watch-fanout-"));
  beforeAll(() => {
    writeFileSync(join(folder, "policy.yaml"), example);
    const wrong = example
      .replace('prefixes: ["payments/"]', 'prefix: ["payments/"], keys: [a]')
      .replace("[get, list, watch]", "[reed, list, watch]");
    writeFileSync(join(folder, "wrong.yaml"), wrong);
  });
  afterAll(() => {
    rmSync(folder, { recursive: true });
  });

  test.each(commands)("shows what $command prints", async ({ command, output }) => {
    // Relative to the folder, as the page is read.
    const args = command.split(" ").map((arg) => (arg.endsWith(".yaml") ? join(folder, arg) : arg));
    const { stdout, stderr } = await run(args);
    expect(`${stdout}${stderr}`.replaceAll(`${folder}/`, "")).toBe(output);
  });

  test("has commands, and an example of each kind of subject", () => {
    expect(commands.length).toBeGreaterThan(7);
    for (const subject of ["/*", "group:", "anonymous"]) expect(example).toContain(subject);
  });

  test("describes each verb", () => {
    for (const verb of verbs) expect(page).toMatch(new RegExp(`^\\| \`${verb}\` \\|`, "m"));
  });

  test("shows a line of the audit", async () => {
    const path = join(folder, "audit.log");
    const now = (): number => Date.parse("2031-04-05T06:07:08.009Z");
    const options = { path, level: "writes", clock: systemClock, logger: silent, now } as const;
    const audit = new AuditFile(options);
    const identity = identityOf("spiffe://corp/ns/payments/sa/deployer");
    audit.record({
      identity: { ...identity, source: "certificate" },
      ...{ address: "10.0.0.7:41234", traceId: "0af7651916cd43dd8448eb211c80319c" },
      method: "watchfanout.v1.WriteService/Put",
      access: { verb: "put", resource: "pods", scope: { key: "payments/1" } },
      ...{ allowed: true, rule: "payments-deployer[0]", code: "OK" },
    });
    await audit.close();
    expect(readFileSync(path, "utf8")).toBe(blocks("json")[0]);
  });
});
