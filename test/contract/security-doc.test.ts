import { readFileSync } from "node:fs";
import { describe, expect, test } from "vitest";
import { flagOf, optionNames } from "../../src/config/options.ts";
import { idsIn, rulesOf } from "./page-rules.ts";
import { securityTests } from "./security-tests.ts";
import { filesWith, notOneFile } from "./test-titles.ts";

const text = readFileSync("docs/security.md", "utf8");

describe("docs/security.md", () => {
  test("names tests for each threat", () => {
    const [, threats = ""] = text.split("## Threats\n");
    const rows = rulesOf(threats).filter((rule) => rule.startsWith("|"));
    expect(rows.length).toBeGreaterThan(30);
    expect(rows.filter((row) => idsIn(row).length === 0)).toEqual([]);
  });

  test("names each test of test/contract/security-tests.ts, and no other", () => {
    expect(idsIn(text).sort()).toEqual(Object.keys(securityTests).sort());
  });

  test.each(Object.entries(securityTests))("%s is a test of one file: %s", (_id, title) => {
    expect(filesWith(title), notOneFile).toHaveLength(1);
  });

  test("names only existing options of serve", () => {
    const ofClients = ["--tls-client-cert", "--tls-client-key", "--tls-ca", "--bearer-token-file"];
    const known = [...optionNames.map(flagOf), ...ofClients];
    const options = [...text.matchAll(/`(--[a-z-]+)/g)].map(([, name = ""]) => name);
    expect(options.length).toBeGreaterThan(10);
    expect(options.filter((name) => !known.includes(name))).toEqual([]);
  });
});
